# SPDX-License-Identifier: Apache-2.0
"""Part 6: the same training job under each allocator: steps per second, and the most device memory
in use, seen from outside; and allocation and free alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from jobs import ASYNC, EXPANDABLE, FULL, NATIVE, OFF, TENSOR, Server, Trained, servers, train
from nvml import Nvml, NvmlError, Peak
from targets import TIGHT
from world import MIB, PREFIX, Part, Skip, World, main

CONFIGURATIONS = (NATIVE, FULL, TENSOR, EXPANDABLE, OFF, ASYNC)
REAL = ("--batch", 16, "--length", 1024, "--width", 1024, "--layers", 8)
SMALL = ("--batch", 4, "--length", 128, "--width", 128, "--layers", 2)
# Steps take turns: what drifts on a machine then drifts for all.
ROUNDS, START_S = 2, 3.0
TRY_STEPS, FEWEST_STEPS, MOST_STEPS = 4, 3, 400
TIGHT_RATIO = 1.05
PAIRS = 20000


def open_nvml(world: World) -> Nvml | None:
    try:
        folder = world.build / "simgpu" if world.simulated else None
        return Nvml(os.environ.get(PREFIX + "UUID", ""), folder)
    except NvmlError:
        return None


class Measured:
    """Of one configuration: its runs, and the most memory seen from outside."""

    def __init__(self) -> None:
        self.runs: list[Trained] = []
        self.outside_bytes = 0

    def steps_per_s(self) -> float:
        """The fastest: what disturbs a run makes it slower."""
        return max(run.steps_per_s for run in self.runs)


def run_once(
    nvml: Nvml | None, server: Server, into: Measured, job: Sequence[object], **settings: Any
) -> None:
    if nvml is None:
        into.runs.append(train(server, *job, **settings))
        return
    with Peak(nvml) as peak:
        into.runs.append(train(server, *job, **settings))
    into.outside_bytes = max(into.outside_bytes, peak.bytes)


def steps_that_fit(part: Part, server: Server, job: Sequence[object], runs: int) -> int:
    """So that as many runs take what the part has left for them."""
    first = train(server, *job, "--steps", TRY_STEPS, "--warm-up", 2)
    each_s = 1 / first.steps_per_s
    room_s = part.world.left_s() / runs - START_S
    return max(FEWEST_STEPS, min(MOST_STEPS, int(room_s / each_s * 0.7)))


def tell(part: Part, shapes: str, name: str, measured: Measured, outside: bool) -> None:
    best = measured.runs[0]
    part.figure(f"speed/{shapes}/{name}", measured.steps_per_s(), "steps/s")
    part.figure(f"speed/{shapes}/{name}, peak live", best.live_bytes / MIB, "MiB")
    if outside:
        part.figure(f"speed/{shapes}/{name}, NVML peak", measured.outside_bytes / MIB, "MiB")


def measure(
    part: Part, made: dict[str, Server], nvml: Nvml | None, shapes: str, parts_left: int
) -> None:
    size = SMALL if part.world.simulated else REAL
    job: list[object] = [*size, *(["--vary"] if shapes == "variable" else [])]
    found = {configuration.name: Measured() for configuration in CONFIGURATIONS}
    found[TIGHT] = Measured()
    steps = 0
    with part.case(f"speed, {shapes} shapes: the length of runs"):
        runs = ROUNDS * (len(CONFIGURATIONS) + (shapes == "variable")) * parts_left
        steps = steps_that_fit(part, made[NATIVE.name], job, runs)
    if not steps:
        return
    job += ["--steps", steps, "--warm-up", max(2, steps // 4)]
    for turn in range(ROUNDS):
        for configuration in CONFIGURATIONS:
            name = configuration.name
            if turn and not found[name].runs:
                continue
            with part.case(f"speed, {shapes} shapes, run {turn + 1}: {name}"):
                part.world.need(START_S)
                run_once(nvml, made[name], found[name], job)
                tell(part, shapes, name, found[name], nvml is not None)
        if shapes == "variable" and found[FULL.name].runs:
            with part.case(f"speed, {shapes} shapes, run {turn + 1}: {TIGHT}"):
                part.world.need(START_S)
                ample = found[FULL.name].runs[0]
                limit = int(ample.live_bytes * TIGHT_RATIO) + ample.others_bytes
                run_once(nvml, made[FULL.name], found[TIGHT], job, MEMSHIM_LIMIT=limit)
                tell(part, shapes, TIGHT, found[TIGHT], nvml is not None)


def pairs(part: Part, made: dict[str, Server]) -> None:
    """From Python, one size: what a call costs on the way through PyTorch."""
    for configuration in CONFIGURATIONS:
        name = configuration.name
        with part.case(f"alloc + free pairs: {name}"):
            part.world.need(START_S)
            server = made[name]
            settings: dict[str, object] = {}
            if configuration.shim:
                settings["MEMSHIM_OUTPUT"] = part.world.output("pairs")
            count = PAIRS // 10 if part.world.simulated else PAIRS
            result = server.run("pairs", (count,), 30, **settings).check()
            for row in result.lines("pairs"):
                part.figure(f"speed/pairs {row['kib']} KiB/{name}", row["ns"], "ns")


def run(part: Part) -> None:
    world = part.world
    if not world.python:
        with part.case("speed"):
            raise Skip("no python3 with PyTorch here")
        return
    nvml = open_nvml(world)
    with part.case("memory is seen from outside"):
        if nvml is None:
            raise Skip("no NVML here")
    with servers(world, *CONFIGURATIONS) as made:
        pairs(part, made)
        measure(part, made, nvml, "variable", parts_left=2)
        measure(part, made, nvml, "fixed", parts_left=1)


if __name__ == "__main__":
    main(run)
