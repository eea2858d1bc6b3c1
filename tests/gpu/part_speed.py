# SPDX-License-Identifier: Apache-2.0
"""Part 4: the same training job under each allocator: steps a second, and the most device memory in
use, seen from outside; and allocation and free alone.

One process for each, all alive at the same time; they take turns, a pass over the same batches,
and all wait but one. A round is one turn of each; what is told are medians of rounds, and of the
ratios within a round. Shapes have all been met, twice, before the first round.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from jobs import ASYNC, EXPANDABLE, FULL, NATIVE, OFF, TENSOR, Rounds, Server, servers, spread
from nvml import Nvml, NvmlError, Peak
from targets import TIGHT, over
from world import GIB, MIB, PREFIX, Fail, Part, Skip, World, main

CONFIGURATIONS = (NATIVE, FULL, OFF, TENSOR, EXPANDABLE, ASYNC)
# A pass takes some 0.5 s: long beside what begins and ends it, short beside what drifts. The device
# is what takes time in the first two, the host in the third, with many small kernels.
WIDE = ("--length", 1024, "--width", 2048, "--layers", 2)
REAL: dict[str, Sequence[object]] = {
    "fixed": (20, "--batch", 8, *WIDE),
    "variable": (16, "--batch", 12, *WIDE, "--vary"),
    "many kernels": (16, "--batch", 4, "--length", 256, "--width", 512, "--layers", 8),
}
# All jobs are there at the same time; where that is too much, they are smaller.
ROOMY_BYTES = 64 * GIB
TIGHTER = ("--batch", 6)
SMALL: dict[str, Sequence[object]] = {
    "fixed": (2, "--batch", 4, "--length", 128, "--width", 128, "--layers", 2),
    "variable": (3, "--batch", 4, "--length", 128, "--width", 128, "--layers", 2, "--vary"),
    "many kernels": (2, "--batch", 2, "--length", 64, "--width", 64, "--layers", 2),
}
WARM_UP = 2  # passes
FEWEST_ROUNDS, MOST_ROUNDS, SIMULATED_ROUNDS = 7, 21, 2
START_S = 3.0
TIGHT_RATIO = 1.05
PAIRS = 20000
PAIRS_S = 2.0
# Whose speed is told as a share of whose.
RATIOS = (
    *((one.name, NATIVE.name) for one in CONFIGURATIONS[1:]),
    (FULL.name, OFF.name),
    (TIGHT, FULL.name),
)


def open_nvml(world: World) -> Nvml | None:
    try:
        folder = world.build / "simgpu" if world.simulated else None
        return Nvml(os.environ.get(PREFIX + "UUID", ""), folder)
    except NvmlError:
        return None


class Turns:
    """One allocator's job, and what was measured of it."""

    def __init__(
        self, nvml: Nvml | None, name: str, server: Server, job: Sequence[object], **settings: Any
    ) -> None:
        self.nvml = nvml
        self.name = name
        self.server = server
        self.job = job
        self.settings = settings
        self.rounds: Rounds | None = None
        self.problem: Exception | None = None
        self.memory: dict[str, Any] = {}
        self.held_bytes = self.outside_bytes = 0
        self.steps_per_s: list[float] = []

    def used_bytes(self) -> int:
        return self.nvml.used_bytes() if self.nvml else 0

    def warm_up(self) -> None:
        self.rounds = Rounds(self.server, self.job, **self.settings)
        self.rounds.go(WARM_UP)
        self.memory = self.rounds.memory()

    def begin(self) -> None:
        before = self.used_bytes()
        try:
            if self.nvml is None:
                self.warm_up()
            else:
                with Peak(self.nvml) as peak:
                    self.warm_up()
                self.outside_bytes = peak.bytes
        except (Fail, Skip) as problem:
            self.problem = problem
        self.held_bytes = self.used_bytes() - before

    def turn(self) -> None:
        """The others wait meanwhile, so that what comes to be used is this one's."""
        if self.problem or not self.rounds:
            return
        before = self.used_bytes()
        try:
            self.steps_per_s.append(self.rounds.go(1))
        except (Fail, Skip) as problem:
            self.problem = problem
        self.held_bytes += self.used_bytes() - before
        self.outside_bytes = max(self.outside_bytes, self.held_bytes)

    def end(self) -> None:
        if self.rounds:
            self.rounds.close()
            self.rounds.running.result()


def tell(part: Part, shapes: str, turns: Turns, fewest: int) -> None:
    with part.case(f"speed, {shapes}: {turns.name}"):
        if turns.steps_per_s:
            name = f"speed/{shapes}/{turns.name}"
            part.figure(name, statistics.median(turns.steps_per_s), "steps/s")
            part.figure(f"{name}, spread", spread(turns.steps_per_s), "% between quartiles")
            part.figure(f"{name}, peak live", turns.memory["peak_live_bytes"] / MIB, "MiB")
            if turns.nvml:
                part.figure(f"{name}, NVML peak", turns.outside_bytes / MIB, "MiB")
        if turns.problem:
            raise turns.problem
        if len(turns.steps_per_s) < fewest:
            raise Skip(f"no time left: {len(turns.steps_per_s)} rounds, not {fewest}")


def tell_ratios(part: Part, shapes: str, found: Sequence[Turns]) -> None:
    """Of those that were there in every round."""
    speeds = {turns.name: turns.steps_per_s for turns in found if not turns.problem}
    for above, below in RATIOS:
        both = list(zip(speeds.get(above, ()), speeds.get(below, ()), strict=False))
        if both:
            ratios = [one / other for one, other in both]
            name = over(shapes, above, below)
            part.figure(name, statistics.median(ratios), "x")
            part.figure(f"{name}, spread", spread(ratios), "% between quartiles")


def measure(
    part: Part, made: dict[str, Server], nvml: Nvml | None, shapes: str, until: float
) -> None:
    simulated = part.world.simulated
    job = (SMALL if simulated else REAL)[shapes]
    if not simulated and part.world.limit_bytes < ROOMY_BYTES and shapes != "many kernels":
        job = (*job, *TIGHTER)
    found: list[Turns] = []
    for configuration in CONFIGURATIONS:
        found.append(Turns(nvml, configuration.name, made[configuration.name], job))
        found[-1].begin()
    full = next(turns for turns in found if turns.name == FULL.name)
    if shapes == "variable" and full.memory:
        most = int(full.memory["peak_live_bytes"] * TIGHT_RATIO) + full.memory["others_bytes"]
        found.append(Turns(nvml, TIGHT, made[FULL.name], job, MEMSHIM_LIMIT=most))
        found[-1].begin()
    fewest = SIMULATED_ROUNDS if simulated else FEWEST_ROUNDS
    count, longest_s = 0, 0.0
    while count < (fewest if simulated else MOST_ROUNDS):
        start = time.monotonic()
        if start + longest_s > until and count >= fewest or part.world.left_s() < longest_s + 1:
            break
        first = count % len(found)
        for turns in found[first:] + found[:first]:
            turns.turn()
        count += 1
        longest_s = max(longest_s, time.monotonic() - start)
    for turns in found:
        turns.end()
        tell(part, shapes, turns, fewest)
    part.figure(f"speed/{shapes}/rounds", count)
    tell_ratios(part, shapes, found)


def pairs(part: Part, made: dict[str, Server]) -> None:
    """From Python, one size: what a call costs on the way through PyTorch."""
    for configuration in CONFIGURATIONS:
        name = configuration.name
        with part.case(f"alloc + free pairs: {name}"):
            part.world.need(PAIRS_S)
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
        with part.case("speed: all have loaded PyTorch"):
            for server in made.values():
                server.wait_loaded()
        pairs_s = PAIRS_S * len(CONFIGURATIONS)
        for left, shapes in ((3, "variable"), (2, "fixed"), (1, "many kernels")):
            room_s = max(0.0, world.left_s() - pairs_s) / left
            measure(part, made, nvml, shapes, time.monotonic() + room_s)
        pairs(part, made)


if __name__ == "__main__":
    main(run)
