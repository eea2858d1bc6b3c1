# SPDX-License-Identifier: Apache-2.0
"""What memshim and its call sites cost in a PyTorch training step, beside PyTorch's own recording
of stacks.

    scripts/simgpu.sh python tests/bench/sites.py [--rounds N] [--steps N] [--json FILE]

Every configuration trains the same small GPT in a process of its own. They take turns, step by
step, so that whatever else the machine does falls on all of them alike. What counts is the lower
quartile of the CPU times of a configuration's steps, less that of its base: other programs only
ever add to them. Columns:

  cpu ms     of a step
  added      CPU ms that are added to a step of `off`, where nothing is recorded of where memory is
             asked for (`off`, `tensor` and `record`: to one of plain PyTorch)
  x          with them over without them
  ns         what is added to each allocation of the step
  +-         its standard error (by resampling)

`tensor` is tensor mode, without stacks as `off`; `record` is
torch.cuda.memory._record_memory_history(stacks="all") without memshim. A process has a bias of its
own, of some percent, which +- does not see: only rounds, each with new processes, even it out. The
last line is the host memory that 100,000 distinct stacks take.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
MODES = ("off", "native", "python", "full")
TENSOR, RECORD = "tensor", "record"
BASES = {
    "plain": "plain",
    "off": "plain",
    "tensor": "plain",
    "native": "off",
    "python": "off",
    "full": "off",
    "record": "plain",
}
STACKS = 100_000
WARM_STEPS = 8


def train(record: bool) -> None:
    """The job: a step for each line of input, whose CPU milliseconds and allocations it says."""
    import time

    import torch

    sys.path.insert(0, str(ROOT / "tests" / "workloads"))
    from gpt import Gpt

    torch.manual_seed(0)
    options = argparse.Namespace(
        checkpoint=False,
        explicit_attention=True,
        vocabulary=512,
        width=64,
        length=32,
        heads=4,
        layers=8,
    )
    model = Gpt(options).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    ids = torch.zeros(2, 32, dtype=torch.long, device="cuda")
    if record:
        torch.cuda.memory._record_memory_history(stacks="all", max_entries=100_000)

    def step() -> None:
        model(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_STEPS):
        step()
    for _ in sys.stdin:
        step()  # the others' steps have taken the caches
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        start = time.process_time_ns()
        step()
        cpu_ns = time.process_time_ns() - start
        allocations = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        print(cpu_ns, allocations, flush=True)


def start(what: str, folder: Path) -> subprocess.Popen[str]:
    """The process of one configuration."""
    settings = {
        "SIMGPU_CONTENTS": "none",
        "MEMSHIM_LOG": "off",
        "MEMSHIM_OUTPUT": str(folder),
        "XDG_CACHE_HOME": str(folder),  # what is found out of the device stays here
    }
    if what in MODES or what == TENSOR:
        settings |= {"LD_PRELOAD": str(BUILD / "libmemshim.so")}
        settings |= {"MEMSHIM_STACKS": what if what in MODES else "off"}
    if what == TENSOR:
        settings |= {"MEMSHIM_TORCH": "tensor"}
    return subprocess.Popen(
        [
            ROOT / "scripts" / "simgpu.sh",
            *(sys.executable, "-W", "ignore", __file__, "--train"),
            *(["--record"] if what == RECORD else []),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def take_turn(job: subprocess.Popen[str]) -> tuple[int, int]:
    """CPU nanoseconds and allocations of its next step."""
    assert job.stdin is not None and job.stdout is not None
    job.stdin.write("\n")
    job.stdin.flush()
    cpu_ns, allocations = job.stdout.readline().split()
    return int(cpu_ns), int(allocations)


def measure_round(steps: int, cpu_ns: dict[str, list[int]]) -> int:
    """Appends each configuration's steps. Returns how many allocations a step makes."""
    allocations = 0
    with tempfile.TemporaryDirectory(prefix="memshim-bench.") as folder:
        jobs = {what: start(what, Path(folder)) for what in BASES}
        for turn in range(steps):
            order = list(jobs)
            for what in order[turn % len(order) :] + order[: turn % len(order)]:
                taken, counted = take_turn(jobs[what])
                cpu_ns[what].append(taken)
                allocations = max(allocations, counted)  # PyTorch counts none in tensor mode
        for job in jobs.values():
            job.communicate()
            if job.returncode != 0:
                raise SystemExit(f"the job of one configuration ended with {job.returncode}")
    return allocations


def quartile(values: Sequence[int]) -> float:
    """The lower one."""
    return sorted(values)[len(values) // 4]


def standard_error(with_ns: list[int], without_ns: list[int]) -> float:
    """Of the difference of their quartiles."""
    draws = random.Random(1)
    return statistics.stdev(
        quartile(draws.choices(with_ns, k=len(with_ns)))
        - quartile(draws.choices(without_ns, k=len(without_ns)))
        for _ in range(200)
    )


def measure(rounds: int, steps: int) -> list[dict[str, Any]]:
    """A row for each configuration."""
    cpu_ns: dict[str, list[int]] = {what: [] for what in BASES}
    allocations = 0
    for _ in range(rounds):
        allocations = measure_round(steps, cpu_ns)
    rows = []
    for what, base in BASES.items():
        taken_ns, base_ns = quartile(cpu_ns[what]), quartile(cpu_ns[base])
        rows.append(
            {
                "what": what,
                "cpu_ms": taken_ns / 1e6,
                "added_ms": (taken_ns - base_ns) / 1e6,
                "ratio": taken_ns / base_ns,
                "added_ns": (taken_ns - base_ns) / allocations,
                "error_ns": standard_error(cpu_ns[what], cpu_ns[base]) / allocations,
                "steps_ns": cpu_ns[what],
            }
        )
    print(f"{allocations} allocations a step, {rounds * steps} steps of each")
    return rows


def bytes_per_stack() -> float:
    """By how much the memory of a program grows with that many stacks, half of each its own."""

    def grown_kib(stacks: str, folder: str) -> int:
        return int(
            subprocess.run(
                [BUILD / "tests" / "process" / "sites_job", "distinct", str(STACKS), "20"],
                env={
                    "LD_LIBRARY_PATH": str(BUILD / "simgpu"),
                    "LD_PRELOAD": str(BUILD / "libmemshim.so"),
                    "MEMSHIM_LOG": "off",
                    "MEMSHIM_OUTPUT": folder,
                    "MEMSHIM_STACKS": stacks,
                },
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )

    with tempfile.TemporaryDirectory(prefix="memshim-bench.") as folder:
        return (grown_kib("full", folder) - grown_kib("off", folder)) * 1024 / STACKS


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of call sites in PyTorch.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.record)
        return
    rows = measure(options.rounds, options.steps)
    print(f"{'stacks':<10}{'cpu ms':>9}{'added':>8}{'x':>8}{'ns':>8}{'+-':>6}")
    for row in rows:
        print(
            f"{row['what']:<10}{row['cpu_ms']:9.3f}{row['added_ms']:8.3f}{row['ratio']:8.3f}"
            f"{row['added_ns']:8.0f}{row['error_ns']:6.0f}"
        )
    by = {row["what"]: row["added_ns"] for row in rows}
    print(f"full over record, each allocation: {by['full'] / by[RECORD]:.2f}")
    each = bytes_per_stack()
    print(f"{each:.0f} bytes of host memory a distinct stack")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "bytes_per_stack": each}) + "\n")


if __name__ == "__main__":
    main()
