#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILLs at drawn moments: what had completed before each is in the report that is left.

Run as kills.py --count N [--seed S]; MEMSHIM_BUILD names the build. Prints one line: how many were
tried, how many failed, and their seeds; one of those is repeated by --count 1 --seed SEED. The
status is 1 where one failed."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from life import test_kill


def try_one(folder: Path, seed: int) -> str:
    """What is wrong; nothing where all is well. The seed draws everything, the phase as well."""
    number = seed % len(test_kill.PHASES)
    here = folder / str(seed)
    try:
        test_kill.Kills("check").check(test_kill.kill_one(here, seed, number))
    except (AssertionError, unittest.SkipTest, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others count on")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.count)
    with (
        tempfile.TemporaryDirectory(prefix="memshim-test.") as name,
        ThreadPoolExecutor(os.cpu_count() or 1) as workers,
    ):
        wrong = list(workers.map(lambda seed: try_one(Path(name), seed), seeds))
    failed = {seed: what for seed, what in zip(seeds, wrong, strict=True) if what}
    for seed, what in failed.items():
        print(f"seed {seed}: {what}", file=sys.stderr)
    print(
        f"kills: {given.count} tried, {len(failed)} failed, seeds {seeds.start} to {seeds.stop - 1}"
        + (f"; to repeat: {' '.join(map(str, failed))}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
