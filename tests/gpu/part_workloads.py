# SPDX-License-Identifier: Apache-2.0
"""Part 10: the five workloads of tests/workloads at their sizes, the shortest first, as many as
time allows. Fewer steps than a training has; the shapes are what counts."""

from __future__ import annotations

from dataclasses import dataclass

from world import GIB, MIB, ROOT, Fail, Part, Skip, expect, main, only_device


@dataclass(frozen=True)
class Workload:
    name: str
    script: str
    limit_gib: int
    arguments: tuple[str, ...]


WORKLOADS = (
    Workload("spectrum fine-tuning", "spectrum_finetune.py", 24, ("--epochs", "2")),
    Workload("mixture of experts", "moe.py", 24, ("--steps", "4", "--evaluate-every", "2")),
    Workload("peptide model", "peptide_recurrent.py", 24, ("--steps", "2", "--batch", "64")),
    Workload("ASV transformer", "asv_transformer.py", 24, ("--steps", "2", "--accumulation", "4")),
    Workload("512 M language model", "lm512m.py", 44, ("--steps", "1", "--accumulation", "4")),
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
    part.figure(f"{name}, a step", ends[0]["seconds"] / ends[0]["steps"], "s")


def run(part: Part) -> None:
    for workload in WORKLOADS:
        with part.case(f"workload: {workload.name}"):
            part.world.need(LEAST_S)
            try_one(part, workload)


if __name__ == "__main__":
    main(run)
