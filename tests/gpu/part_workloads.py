# SPDX-License-Identifier: Apache-2.0
"""Part 11: the five workloads of tests/workloads at their sizes, the largest first, as many side by
side as the limit allows. Fewer steps than a training has; the shapes are what counts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from world import GIB, MIB, ROOT, Fail, Part, Skip, expect, main, only_device


@dataclass(frozen=True)
class Workload:
    name: str
    script: str
    limit_gib: int
    arguments: tuple[str, ...]


WORKLOADS = (
    Workload("512 M language model", "lm512m.py", 44, ("--steps", "1", "--accumulation", "4")),
    Workload("peptide model", "peptide_recurrent.py", 24, ("--steps", "2", "--batch", "64")),
    Workload("ASV transformer", "asv_transformer.py", 24, ("--steps", "2", "--accumulation", "4")),
    Workload("mixture of experts", "moe.py", 24, ("--steps", "4", "--evaluate-every", "2")),
    Workload("spectrum fine-tuning", "spectrum_finetune.py", 24, ("--epochs", "2")),
)
LEAST_S = 8.0


def try_one(part: Part, workload: Workload) -> None:
    world = part.world
    limit = workload.limit_gib * GIB
    if limit > world.limit_bytes and not world.simulated:
        raise Skip(f"it wants MEMSHIM_LIMIT={workload.limit_gib}GiB")
    output = world.output("workload")
    result = world.run(
        [world.need_python(), ROOT / "tests" / "workloads" / workload.script, *workload.arguments],
        shim=True,
        torch=True,
        timeout_s=world.left_s(),
        MEMSHIM_LIMIT=limit,
        MEMSHIM_OUTPUT=output,
        SIMGPU_CONTENTS="none",
    )
    ends = result.lines("end")
    if result.timed_out and not ends:
        raise Skip(f"no time left, after {len(result.lines('step'))} steps")
    if result.lines("out_of_memory"):
        raise Fail(f"out of memory at its size: {result.lines('out_of_memory')[0]['message']}")
    result.check()
    device = only_device(output)
    expect(device["peak_charged_bytes"] <= limit, "more was charged than the limit")
    name = f"workloads/{workload.name}"
    part.figure(f"{name}, peak live", device["peak_live_bytes"] / MIB, "MiB")
    part.figure(f"{name}, peak charged", device["peak_charged_bytes"] / MIB, "MiB")
    part.figure(f"{name}, a step beside others", ends[0]["seconds"] / ends[0]["steps"], "s")


class Room:
    """Of the check's limit: who is let in has its workload's limit to itself."""

    def __init__(self, gib: int) -> None:
        self.free_gib = gib
        self.changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, gib: int) -> Iterator[None]:
        with self.changed:
            self.changed.wait_for(lambda: self.free_gib >= gib)
            self.free_gib -= gib
        try:
            yield
        finally:
            with self.changed:
                self.free_gib += gib
                self.changed.notify_all()


def run(part: Part) -> None:
    world = part.world
    room = Room(max(world.limit_bytes // GIB, max(one.limit_gib for one in WORKLOADS)))

    def tried(workload: Workload) -> None:
        with room.of(workload.limit_gib), part.case(f"workload: {workload.name}"):
            world.need(LEAST_S)
            try_one(part, workload)

    part.side_by_side([partial(tried, workload) for workload in WORKLOADS])


if __name__ == "__main__":
    main(run)
