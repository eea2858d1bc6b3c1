# SPDX-License-Identifier: Apache-2.0
"""Part 6: live memory goes to the host and back: contents, speed, and what a step takes where less
is there than the job needs, beside managed memory, PyTorch's offloading of activations, and an
optimizer whose state waits on the host."""

from __future__ import annotations

import statistics
from typing import Any

from jobs import FULL, NATIVE, Configuration, Server, Trained, servers, spread, train
from world import MIB, Fail, Part, Skip, World, context_bytes, expect, main, only_device

BATCH_MIB, SIMULATED_BATCH_MIB = 256, 16
BATCHES = 10
SPARE_MIB = 24
SHARES = (0.9, 0.8, 0.7)  # the one with a target first
SPILLING: dict[str, Any] = {"MEMSHIM_SPILL": "auto"}
REAL = ("--batch", 16, "--length", 512, "--width", 768, "--layers", 8)
SMALL = ("--batch", 8, "--length", 256, "--width", 256, "--layers", 3)
STEPS = ("--each", "--steps", 9, "--warm-up", 4)
SIMULATED_STEPS = ("--each", "--steps", 7, "--warm-up", 3)
# What programs do themselves, without memshim: how it is called, and train.py's word for it.
OFFLOADS = (("save_on_cpu", "--offload"), ("optimizer offload", "--offload-optimizer"))
MANAGED = "libgpu_managed.so"
START_S = 3.0
# PyTorch with the allocator of managed.c.
OTHER = Configuration("managed memory", False, {})


def moved(world: World, others: int, way: str) -> float:
    """Bytes a nanosecond that the device was held, by a run of spill_speed.c, whose contents were
    right."""
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
    return float(found[0]["moved_bytes"] / found[0]["held_ns"])


def bandwidth(part: Part) -> None:
    """Standstill, copy and remapping together: what the device waited."""
    others = 0
    with part.case("spill: down, contents as written"):
        others = context_bytes(part.world)
        part.figure("spill/spill down", moved(part.world, others, "down"), "GB/s")
    if not others:
        return
    with part.case("spill: back up, contents as written"):
        part.figure("spill/spill up", moved(part.world, others, "up"), "GB/s")


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
        with part.case(f"spill: a step on managed memory at {share:g} x need"):
            part.world.need(START_S)
            cap = int(share * need)
            library = part.world.program(MANAGED)
            managed = train(made[OTHER.name], *job, "--managed", library, GPU_CHECK_MANAGED_CAP=cap)
            tell(part, f"spill/step managed at {share:g} x need", managed)


def tell(part: Part, figure: str, run: Trained) -> None:
    part.figure(figure, 1000 * statistics.median(run.each_s), "ms")
    part.figure(f"{figure}, spread", spread(run.each_s), "% between quartiles")


def run(part: Part) -> None:
    world = part.world
    bandwidth(part)
    if not world.python:
        with part.case("spill: a training job"):
            raise Skip("no python3 with PyTorch here")
        return
    sizes = (*SMALL, *SIMULATED_STEPS) if world.simulated else (*REAL, *STEPS)
    job: list[object] = list(sizes)
    with servers(world, FULL, NATIVE, OTHER) as made:
        steps(part, made, job)
        same_losses(part, made[FULL.name], job)


if __name__ == "__main__":
    main(run)
