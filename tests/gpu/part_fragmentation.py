# SPDX-License-Identifier: Apache-2.0
"""Part 7: the smallest limit at which each allocator completes the variable-shape job, over what is
alive at its peak. PyTorch's own are limited by their fraction, the driver's pool by its size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from jobs import (
    ASYNC,
    EXPANDABLE,
    FULL,
    NATIVE,
    TENSOR,
    Server,
    Trained,
    out_of_memory,
    outcome,
    servers,
    train,
)
from world import MIB, Fail, Part, Skip, main

CONFIGURATIONS = (FULL, NATIVE, EXPANDABLE, ASYNC, TENSOR)
JOB = ("--vary", "--checkpoint", "--warm-up", 1)
REAL = ("--steps", 20, "--batch", 24, "--length", 512, "--width", 768)
SMALL = ("--steps", 4, "--batch", 8, "--length", 512, "--width", 256, "--layers", 2)
GRANULE = 2 * MIB
# Of peak live bytes: how near to the smallest limit the search goes, and where it begins.
TOLERANCE = 0.003
FIRST_GUESS, WIDEST = 1.02, 3.0
TRIAL_S = 4.0


class Search:
    """For the smallest limit of one configuration."""

    def __init__(self, part: Part, server: Server, ample: Trained, at_once: int) -> None:
        self.part = part
        self.server = server
        self.ample = ample
        self.end_s = TRIAL_S * at_once

    def completes(self, limit_bytes: int) -> bool:
        """With so much for the pool or for PyTorch."""
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
            if result.status == 0:
                # On the host is not on the device.
                return int(outcome(result, output).device["peak_host_chunk_bytes"]) == 0
        if result.status != 0 and not out_of_memory(result):
            result.check()
        return result.status == 0

    def smallest(self) -> int:
        """To the tolerance; where time does not allow that, what is known is the reason to skip."""
        live = self.ample.live_bytes
        fails, works = live - GRANULE, int(live * FIRST_GUESS)
        while not self.completes(works):
            fails, works = works, live + 2 * (works - live) + GRANULE
            if works > WIDEST * live:
                raise Fail(f"it does not complete with {WIDEST:g} x its live bytes")
        while works - fails > max(GRANULE, TOLERANCE * live):
            if self.part.world.left_s() < self.end_s:
                raise Skip(
                    f"no time left: between {fails / live:.3f} and {works / live:.3f} x live"
                )
            middle = (works + fails) // 2
            if self.completes(middle):
                works = middle
            else:
                fails = middle
        return works


def search(part: Part, server: Server, at_once: int) -> None:
    name = server.configuration.name
    with part.case(f"smallest limit: {name}"):
        part.world.need(2 * TRIAL_S)
        size = SMALL if part.world.simulated else REAL
        ample = train(server, *JOB, *size)
        live = ample.live_bytes
        part.figure(f"fragmentation/{name}, ample", ample.reserved_bytes / live, "x peak live")
        smallest = Search(part, server, ample, at_once).smallest()
        part.figure(f"fragmentation/{name}", smallest / live, "x peak live")


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
        # Times do not matter here, so searches share the device, as far as the limit allows.
        peak = ample[0].reserved_bytes
        at_once = 1 if world.simulated else max(1, min(5, world.limit_bytes // (2 * peak)))
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(lambda one: search(part, made[one.name], at_once), CONFIGURATIONS))


if __name__ == "__main__":
    main(run)
