"""What call sites cost in a PyTorch training step, beside PyTorch's own recording of stacks.

    scripts/simgpu.sh python tests/bench/sites.py [--rounds N] [--steps N] [--json FILE]

Every configuration trains the same small GPT in processes of its own, round after round, one after
the other, so that the machine's moods are shared; of all its equal steps the one with the least CPU
time of the process counts. Columns:

  cpu ms     of a step
  x off      the same over that with MEMSHIM_STACKS=off (`record` over plain PyTorch)
  ns         what is added to each allocation of the step

`record` is torch.cuda.memory._record_memory_history(stacks="all") without memshim. The last line is
the host memory that 100,000 distinct stacks take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
MODES = ("off", "native", "python", "full")
PLAIN, RECORD = "plain", "record"
STACKS = 100_000
WARM_STEPS = 5


def train(steps: int, record: bool) -> None:
    """The job: says each step's CPU milliseconds, and how many allocations a step makes."""
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
    times = []
    allocations = 0
    for _ in range(steps + WARM_STEPS):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        start = time.process_time()
        model(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append((time.process_time() - start) * 1e3)
        allocations = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    print(json.dumps({"cpu_ms": times[WARM_STEPS:], "allocations": allocations}))


def run_once(what: str, steps: int, folder: Path) -> dict[str, Any]:
    """One process of one configuration."""
    settings = {"SIMGPU_CONTENTS": "none", "MEMSHIM_LOG": "off", "MEMSHIM_OUTPUT": str(folder)}
    if what in MODES:
        settings |= {"LD_PRELOAD": str(BUILD / "libmemshim.so"), "MEMSHIM_STACKS": what}
    arguments = ["--train", str(steps), *(["--record"] if what == RECORD else [])]
    output = subprocess.run(
        [ROOT / "scripts" / "simgpu.sh", sys.executable, __file__, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def measure(rounds: int, steps: int) -> list[dict[str, Any]]:
    """A row for each configuration."""
    least: dict[str, float] = {}
    allocations = 0
    with tempfile.TemporaryDirectory(prefix="memshim-bench.") as folder:
        for _ in range(rounds):
            for what in (*MODES, PLAIN, RECORD):
                answer = run_once(what, steps, Path(folder))
                least[what] = min(least.get(what, float("inf")), *answer["cpu_ms"])
                allocations = answer["allocations"]
    rows = []
    for what, cpu_ms in least.items():
        base = least[PLAIN] if what in (PLAIN, RECORD) else least["off"]
        added_ns = (cpu_ms - base) * 1e6 / allocations
        rows.append({"what": what, "cpu_ms": cpu_ms, "ratio": cpu_ms / base, "added_ns": added_ns})
    print(f"{allocations} allocations a step")
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.record)
        return
    rows = measure(options.rounds, options.steps)
    print(f"{'stacks':<10}{'cpu ms':>9}{'x off':>8}{'ns':>8}")
    for row in rows:
        print(f"{row['what']:<10}{row['cpu_ms']:9.3f}{row['ratio']:8.3f}{row['added_ns']:8.0f}")
    by = {row["what"]: row["added_ns"] for row in rows}
    print(f"full over record, each allocation: {by['full'] / by[RECORD]:.2f}")
    each = bytes_per_stack()
    print(f"{each:.0f} bytes of host memory a distinct stack")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "bytes_per_stack": each}) + "\n")


if __name__ == "__main__":
    main()
