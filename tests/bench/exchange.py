#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the simulated GPU's device waits for spilled memory, at the costs of a real card, under the
memshim of one or more builds, which take turns: bytes moved in a nanosecond of standstill, in the
best round, for whatever else the machine does only adds to it.

exchange.py [--rounds N] [--times N] BUILD..."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("down", "up", "again")  # as tests/gpu/spill_speed.c has them
LIMIT = "1777MiB"  # five batches of ten, and what else is charged


def measured(build: Path, way: str, times: int) -> float:
    """GB/s at the costs of the card, which are taken so many times: so that what a busy machine
    adds counts for little."""
    with tempfile.TemporaryDirectory() as output:
        settings = {
            "SIMGPU_LATENCY": str(times),
            "SIMGPU_CONTENTS": "none",
            "MEMSHIM_LOG": "off",
            "MEMSHIM_SPILL": "auto",
            "MEMSHIM_LIMIT": LIMIT,
            "MEMSHIM_OUTPUT": output,
        }
        job = [str(ROOT / "build/tests/gpu/gpu_spill_speed"), "256", "10", way]
        command = [str(ROOT / "scripts/simgpu.sh"), str(build / "memshim"), "run", "--", *job]
        # It exits with 1: without contents all bytes come back wrong.
        said = subprocess.run(
            command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=False
        ).stdout
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return float(times * lines[-1]["moved_bytes"] / lines[-1]["held_ns"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=20, help="the card's costs")
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD")
    options = parser.parse_args()
    for way in WAYS:
        found: dict[Path, list[float]] = {build: [] for build in options.builds}
        for _ in range(options.rounds):
            for build in options.builds:
                found[build].append(measured(build.resolve(), way, options.times))
        first = max(found[options.builds[0]])
        for build, values in found.items():
            print(
                f"{way:6} {max(values):5.1f} GB/s  {max(values) / first:.2f} x  {build}", flush=True
            )


if __name__ == "__main__":
    main()
