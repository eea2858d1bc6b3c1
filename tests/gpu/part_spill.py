# SPDX-License-Identifier: Apache-2.0
"""Part 6: live memory goes to the host and back: contents, speed, and what a step takes where less
is there than the job needs, beside managed memory, PyTorch's offloading of activations, and an
optimizer whose state waits on the host."""

from __future__ import annotations

import statistics
from typing import Any

from jobs import FULL, NATIVE, Configuration, Server, Trained, servers, spread, train
from world import MIB, Fail, Part, Skip, context_bytes, expect, main, only_device

BATCH_MIB, SIMULATED_BATCH_MIB = 256, 16
BATCHES = 10
EXCHANGES, SIMULATED_EXCHANGES = 5, 1  # of each way
SPARE_MIB = 24
SHARES = (0.9, 0.8, 0.7)  # the one with a target first
SPILLING: dict[str, Any] = {"MEMSHIM_SPILL": "auto"}
REAL = ("--batch", 16, "--length", 512, "--width", 768, "--layers", 8)
SMALL = ("--batch", 8, "--length", 256, "--width", 256, "--layers", 3)
STEPS, SIMULATED_STEPS = (9, 4), (7, 3)  # measured, and before
# What programs do themselves, without memshim: how it is called, and train.py's word for it.
OFFLOADS = (("save_on_cpu", "--offload"), ("optimizer offload", "--offload-optimizer"))
MANAGED = "libgpu_managed.so"
START_S = 3.0
# PyTorch with the allocator of managed.c.
OTHER = Configuration("managed memory", False, {})


def moved(part: Part, others: int, way: str) -> None:
    """Bytes a nanosecond that the device was held, by a run of spill_speed.c, whose contents were
    right; and what the thread that asks for a batch waits in all."""
    world = part.world
    batch = SIMULATED_BATCH_MIB if world.simulated else BATCH_MIB
    output = world.output(f"spill-{way}")
    limit = others + (BATCHES // 2 * batch + SPARE_MIB) * MIB
    result = world.run(
        [world.program("gpu_spill_speed"), str(batch), str(BATCHES), way],
        shim=True,
        MEMSHIM_LIMIT=limit,
        MEMSHIM_OUTPUT=output,
        **SPILLING,
    )
    found = result.lines("spill")
    if found and found[0]["wrong_bytes"]:
        raise Fail(f"{found[0]['wrong_bytes']} bytes came back wrong")
    result.check()
    ledger: dict[str, Any] = only_device(output)["spill"]
    expect(ledger["spilled_bytes"] > 0, "nothing was spilled")
    expect(found[0]["moved_bytes"] > 0, "nothing came back")
    part.figure(f"spill/spill {way}", found[0]["moved_bytes"] / found[0]["held_ns"], "GB/s")
    if way != "up":
        part.figure(f"spill/spill {way}, held", found[0]["held_ns"] / 1e6, "ms in all batches")
        part.figure(
            f"spill/spill {way}, asking for a batch", found[0]["median_ns"] / 1e6, "ms (median)"
        )


def exchanges(part: Part) -> None:
    """The same by the driver's calls alone, in several ways, and how long which of them takes: what
    could be reached here, and what it would take (exchange.c)."""
    world = part.world
    batch = SIMULATED_BATCH_MIB if world.simulated else BATCH_MIB
    rounds = SIMULATED_EXCHANGES if world.simulated else EXCHANGES
    with part.case("spill: exchanges by the driver's calls"):
        part.world.need(START_S)
        result = world.run([world.program("gpu_exchange"), str(batch), str(rounds)])
        for row in result.lines("exchange"):
            name = (
                f"spill/exchange {row['way']}, chunks of {row['device_mib']} MiB, "
                f"copies of {row['part_mib']} MiB, access {row['access']}"
            )
            part.figure(name, batch * MIB / row["total_ns"], "GB/s")
            for phase in ("waited", "unmap", "map", "access"):
                part.figure(f"{name}: {phase}", row[f"{phase}_ns"] / 1e6, "ms")
        for row in result.lines("beside"):
            name = f"spill/access to 2 MiB beside copies of {row['part_mib']} MiB"
            part.figure(name, row["access_ns"] / 1000, "us (median)")
            part.figure(f"{name}, longest", row["longest_ns"] / 1000, "us")
        result.check()


def bandwidth(part: Part) -> None:
    """Standstill, copy and remapping together: what the device waited."""
    others = 0
    with part.case("spill: down, contents as written"):
        others = context_bytes(part.world)
        moved(part, others, "down")
    if not others:
        return
    with part.case("spill: back up, contents as written"):
        moved(part, others, "up")
    with part.case("spill: down again, contents as written"):
        moved(part, others, "again")


def same_losses(part: Part, server: Server, job: list[object]) -> None:
    ample: list[Trained] = []
    with part.case("losses: memshim native, spilling at 0.8 x need"):
        part.world.need(2 * START_S)
        ample.append(train(server, *job, "--deterministic"))
        limit = ample[0].others_bytes + int(0.8 * ample[0].live_bytes)
        short = train(server, *job, "--deterministic", MEMSHIM_LIMIT=limit, **SPILLING)
        expect(short.device["spill"]["spilled_bytes"] > 0, "nothing was spilled")
        expect(list(short.losses) == list(ample[0].losses), "other losses than with ample memory")
        part.needs_kernels()


def within(part: Part, figure: str, run: Trained, limit: int, context: int) -> None:
    """What the driver takes by itself is charged when it has been taken, over the limit, too; that
    is at most all that it took beyond the bare context."""
    over = int(run.device["peak_charged_bytes"]) - limit
    by_itself = run.others_bytes - context
    if over > 0:
        part.figure(f"{figure}, over the limit by what the driver took", over / MIB, "MiB")
    expect(over <= max(0, by_itself), f"{over} bytes over the limit, {by_itself} of them explained")


def steps(part: Part, made: dict[str, Server], job: list[object]) -> None:
    """Need: what is alive at the peak."""
    ample: list[Trained] = []
    context = 0
    server = made[FULL.name]
    with part.case("spill: a step with ample memory"):
        part.world.need(START_S)
        context = context_bytes(part.world)
        ample.append(train(server, *job))
        part.figure("spill/need", ample[0].live_bytes / MIB, "MiB")
        tell(part, "spill/step with ample memory", ample[0])
    if not ample:
        return
    need, others = ample[0].live_bytes, ample[0].others_bytes
    for name, word in OFFLOADS:
        with part.case(f"spill: a step with {name}"):
            part.world.need(START_S)
            offloaded = train(made[NATIVE.name], *job, word)
            tell(part, f"spill/step with {name}", offloaded)
            part.figure(f"spill/{name}, peak live", offloaded.live_bytes / need, "x need")
    with part.case("spill: a step without memshim, memory ample"):
        part.world.need(START_S)
        tell(part, "spill/step without memshim", train(made[NATIVE.name], *job))
    for share in SHARES:
        with part.case(f"spill: a step at {share:g} x need"):
            part.world.need(START_S)
            limit = others + int(share * need)
            short = train(server, *job, MEMSHIM_LIMIT=limit, **SPILLING)
            tell(part, f"spill/step at {share:g} x need", short)
            within(part, f"spill/at {share:g} x need", short, limit, context)
            moves(part, f"spill/at {share:g} x need", short, (1 - share) * need)
        with part.case(f"spill: a step on managed memory at {share:g} x need"):
            part.world.need(START_S)
            cap = int(share * need)
            library = part.world.program(MANAGED)
            managed = train(made[OTHER.name], *job, "--managed", library, GPU_CHECK_MANAGED_CAP=cap)
            tell(part, f"spill/step managed at {share:g} x need", managed)


def tell(part: Part, figure: str, run: Trained) -> None:
    part.figure(figure, 1000 * statistics.median(run.each_s), "ms")
    part.figure(f"{figure}, spread", spread(run.each_s), "% between quartiles")


def moves(part: Part, figure: str, run: Trained, missing: float) -> None:
    """Of all steps, the first ones included. What is missing has to go and to come back in each, at
    least, where nothing is used over the bus."""
    spill = run.device["spill"]
    steps = sum(SIMULATED_STEPS if part.world.simulated else STEPS)
    moved = (spill["spilled_bytes"] + spill["promoted_bytes"]) / steps
    part.figure(f"{figure}, moved a step", moved / MIB, "MiB")
    part.figure(f"{figure}, moved over what is missing, twice", moved / (2 * missing))
    part.figure(f"{figure}, held a step", spill["held_ns"] / steps / 1e6, "ms")


def run(part: Part) -> None:
    world = part.world
    bandwidth(part)
    exchanges(part)
    if not world.python:
        with part.case("spill: a training job"):
            raise Skip("no python3 with PyTorch here")
        return
    measured, before = SIMULATED_STEPS if world.simulated else STEPS
    sizes = SMALL if world.simulated else REAL
    job: list[object] = [*sizes, "--each", "--steps", measured, "--warm-up", before]
    with servers(world, FULL, NATIVE, OTHER) as made:
        steps(part, made, job)
        same_losses(part, made[FULL.name], job)


if __name__ == "__main__":
    main(run)
