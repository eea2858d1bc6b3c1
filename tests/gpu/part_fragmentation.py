# SPDX-License-Identifier: Apache-2.0
"""Part 5: the smallest limit at which each allocator completes the variable-shape job, over what is
alive at its peak. PyTorch's own are limited by their fraction, the driver's pool by its size.

All of them search at the same time, each with some limits at a time: times do not matter here. What
is known is told whenever it is better known.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jobs import (
    ASYNC,
    EXPANDABLE,
    FULL,
    NATIVE,
    TENSOR,
    Server,
    Trained,
    out_of_memory,
    servers,
    train,
)
from targets import at_least
from world import MIB, Fail, Part, Skip, main

CONFIGURATIONS = (FULL, NATIVE, EXPANDABLE, ASYNC, TENSOR)
JOB = ("--vary", "--checkpoint", "--warm-up", 1)
REAL = ("--steps", 11, "--batch", 24, "--length", 512, "--width", 768)
SMALL = ("--steps", 4, "--batch", 8, "--length", 512, "--width", 256, "--layers", 2)
GRANULE = 2 * MIB
# What memshim says where it had no device memory left for a tensor.
ON_HOST = ("they lie in host memory", "whose memory could not be put back")
# Of peak live bytes: what is tried first, beyond which none is, and how near is near enough.
FIRST, WIDEST = (1.01, 1.03, 1.1), 3.0
TOLERANCE = 0.005
# Limits that one allocator tries at a time.
TRIALS_AT_ONCE = 3
CONTEXT_BYTES = 640 * MIB
TRIAL_S, STARTED_S = 4.0, 2.0


class Search:
    """For the smallest limit of one configuration."""

    def __init__(self, part: Part, server: Server, ample: Trained, at_once: int) -> None:
        self.part = part
        self.server = server
        self.ample = ample
        self.at_once = at_once
        live = ample.live_bytes
        self.fails, self.works = live - GRANULE, 0  # 0: none is known
        self.name = f"fragmentation/{server.configuration.name}"

    def completes(self, limit_bytes: int) -> bool | None:
        """With so much for the pool or for PyTorch; None where no time was left to tell."""
        size = SMALL if self.part.world.simulated else REAL
        arguments: list[object] = [*JOB, *size]
        if not self.server.configuration.shim:
            result = self.server.run("train", [*arguments, "--allowed", limit_bytes], 120)
        else:
            output = self.part.world.output("fragmentation")
            limit = limit_bytes + self.ample.others_bytes
            result = self.server.run(
                "train", arguments, 120, MEMSHIM_LIMIT=limit, MEMSHIM_OUTPUT=output
            )
        if result.out_of_time:
            return None
        if out_of_memory(result):
            return False
        result.check()
        # A tensor on the host is not on the device. (Host memory that is set aside holds none.)
        return not any(words in result.stderr for words in ON_HOST)

    def try_all(self, limits: list[int]) -> bool:
        """Whether all of them could be tried. The answers are taken as those of a limit: what is
        below one that fails fails."""
        with ThreadPoolExecutor(self.at_once) as threads:
            found = list(threads.map(self.completes, limits))
        for limit, completes in zip(limits, found, strict=True):
            if completes is False:
                self.fails = max(self.fails, limit)
        works = [
            limit
            for limit, completes in zip(limits, found, strict=True)
            if completes and limit > self.fails
        ]
        if works:
            self.works = min([*works, *([self.works] if self.works > self.fails else [])])
        self.tell()
        return None not in found

    def tell(self) -> None:
        live = self.ample.live_bytes
        if self.works:
            self.part.figure(self.name, self.works / live, "x peak live")
            self.part.figure(at_least(self.name), self.fails / live, "x peak live")

    def between(self) -> list[int]:
        """Limits that share out what is not known, or that reach further up; none where it is
        known."""
        live = self.ample.live_bytes
        if not self.works:
            if self.fails >= WIDEST * live:
                raise Fail(f"it does not complete with {WIDEST:g} x its live bytes")
            return [
                live + (self.fails - live) * 2 ** (n + 1) + GRANULE for n in range(self.at_once)
            ]
        room = self.works - self.fails
        count = min(self.at_once, room // GRANULE - 1)
        return [self.fails + room * (n + 1) // (count + 1) for n in range(count)]

    def go(self) -> None:
        limits = [int(self.ample.live_bytes * share) for share in FIRST]
        while limits:
            if self.part.world.left_s() < STARTED_S or not self.try_all(limits):
                break
            limits = self.between()
        live = self.ample.live_bytes
        if not self.works:
            raise Skip(f"no time left: it needs more than {self.fails / live:.3f} x live")
        if self.works - self.fails > max(2 * GRANULE, TOLERANCE * live):
            low, high = self.fails / live, self.works / live
            raise Skip(f"no time left: between {low:.3f} and {high:.3f} x live")


def search(part: Part, server: Server, at_once: int) -> None:
    name = server.configuration.name
    with part.case(f"smallest limit: {name}"):
        part.world.need(2 * TRIAL_S)
        size = SMALL if part.world.simulated else REAL
        ample = train(server, *JOB, *size)
        live = ample.live_bytes
        part.figure(f"fragmentation/{name}, peak live", live / MIB, "MiB")
        part.figure(f"fragmentation/{name}, ample", ample.reserved_bytes / live, "x peak live")
        Search(part, server, ample, at_once).go()


def run(part: Part) -> None:
    world = part.world
    if not world.python:
        with part.case("fragmentation"):
            raise Skip("no python3 with PyTorch here")
        return
    with servers(world, *CONFIGURATIONS) as made:
        ample: list[Trained] = []
        with part.case("fragmentation: the job with ample memory"):
            part.world.need(2 * TRIAL_S)
            size = SMALL if world.simulated else REAL
            ample.append(train(made[NATIVE.name], *JOB, *size))
            part.figure("fragmentation/peak live", ample[0].live_bytes / MIB, "MiB")
        if not ample:
            return
        # As far as the limit of the check allows, contexts included.
        most = max(1, world.limit_bytes // (ample[0].reserved_bytes + CONTEXT_BYTES))
        trials = 1 if world.simulated else max(1, min(TRIALS_AT_ONCE, most // len(CONFIGURATIONS)))
        part.side_by_side(
            [partial(search, part, made[one.name], trials) for one in CONFIGURATIONS],
            1 if world.simulated else max(1, min(len(CONFIGURATIONS), most // trials)),
        )


if __name__ == "__main__":
    main(run)
