# SPDX-License-Identifier: Apache-2.0
"""Part 9: live memory goes to the host and back: contents, speed, and what a step takes where less
is there than the job needs, beside managed memory and beside PyTorch's own offloading."""

from __future__ import annotations

from typing import Any

from jobs import FULL, NATIVE, Configuration, Server, Trained, servers, train
from world import MIB, Fail, Part, Skip, World, context_bytes, expect, main, only_device

BATCH_MIB, SIMULATED_BATCH_MIB = 256, 16
BATCHES = 10
SPARE_MIB = 24
PARTS = (0.9, 0.8, 0.95)  # the one with a target first
SPILLING: dict[str, Any] = {"MEMSHIM_SPILL": "auto"}
REAL = ("--batch", 16, "--length", 512, "--width", 768, "--layers", 8)
SMALL = ("--batch", 8, "--length", 256, "--width", 256, "--layers", 3)
STEPS = ("--each", "--steps", 8, "--warm-up", 4)
MANAGED = "libgpu_managed.so"
START_S = 4.0
# PyTorch with the allocator of managed.c.
OTHER = Configuration("managed memory", False, {})


def moved(world: World, others: int, way: str) -> dict[str, Any]:
    """The report's ledger of a run of spill_speed.c, whose contents were right."""
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
    return ledger


def bandwidth(part: Part) -> None:
    """Standstill, copy and remapping together: what the device waited."""
    down: dict[str, Any] = {}
    others = 0
    with part.case("spill: down, contents as written"):
        others = context_bytes(part.world)
        down = moved(part.world, others, "down")
        part.figure("spill/spill down", down["spilled_bytes"] / down["held_ns"], "GB/s")
    if not down:
        return
    with part.case("spill: back up, contents as written"):
        both = moved(part.world, others, "up")
        expect(both["promoted_bytes"] > 0, "nothing came back")
        down_ns = both["spilled_bytes"] * down["held_ns"] / down["spilled_bytes"]
        up_ns = both["held_ns"] - down_ns
        if up_ns <= 0:
            raise Skip("it cannot be told from the way down")
        part.figure("spill/spill up", both["promoted_bytes"] / up_ns, "GB/s")


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


def steps(part: Part, made: dict[str, Server], job: list[object]) -> None:
    """Need: what is alive at the peak."""
    ample: list[Trained] = []
    server = made[FULL.name]
    with part.case("spill: a step with ample memory"):
        part.world.need(START_S)
        ample.append(train(server, *job))
        part.figure("spill/need", ample[0].live_bytes / MIB, "MiB")
        part.figure("spill/step with ample memory", milliseconds(ample[0]), "ms")
    if not ample:
        return
    need, others = ample[0].live_bytes, ample[0].others_bytes
    for share in PARTS:
        with part.case(f"spill: a step at {share:g} x need"):
            part.world.need(START_S)
            limit = others + int(share * need)
            short = train(server, *job, MEMSHIM_LIMIT=limit, **SPILLING)
            expect(short.device["peak_charged_bytes"] <= limit, "more was charged than the limit")
            part.figure(f"spill/step at {share:g} x need", milliseconds(short), "ms")
        with part.case(f"spill: a step on managed memory at {share:g} x need"):
            part.world.need(START_S)
            cap = int(share * need)
            library = part.world.program(MANAGED)
            managed = train(made[OTHER.name], *job, "--managed", library, GPU_CHECK_MANAGED_CAP=cap)
            part.figure(f"spill/step managed at {share:g} x need", milliseconds(managed), "ms")
    with part.case("spill: a step with PyTorch's save_on_cpu hooks"):
        part.world.need(START_S)
        offloaded = train(made[NATIVE.name], *job, "--offload")
        part.figure("spill/step with save_on_cpu", milliseconds(offloaded), "ms")
        part.figure("spill/save_on_cpu, peak live", offloaded.live_bytes / need, "x need")


def milliseconds(run: Trained) -> float:
    assert run.step_s is not None
    return run.step_s * 1000


def run(part: Part) -> None:
    world = part.world
    bandwidth(part)
    if not world.python:
        with part.case("spill: a training job"):
            raise Skip("no python3 with PyTorch here")
        return
    job: list[object] = [*(SMALL if world.simulated else REAL), *STEPS]
    with servers(world, FULL, NATIVE, OTHER) as made:
        steps(part, made, job)
        same_losses(part, made[FULL.name], job)


if __name__ == "__main__":
    main(run)
