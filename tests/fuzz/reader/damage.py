#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every reader on damaged bytes: inputs of the corpus, each with some bytes changed.

Run as damage.py --count N or --minutes M [--seed S]; MEMSHIM_BUILD names the build. Prints one
line: how many were tried, how many failed (a signal, or more than a minute), and their seeds; one
of those is repeated by --count 1 --seed SEED. The status is 1 where one failed."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("MEMSHIM_BUILD", HERE.parents[2] / "build")).resolve()
HARNESS = BUILD / "tests" / "fuzz" / "reader" / "fuzz_reader"
AT_ONCE = 40  # inputs of one process
LONGEST_S = 60


def damaged(inputs: Sequence[bytes], seed: int) -> bytes:
    """Bytes changed, set to their extremes, taken out, doubled, or the end cut off."""
    draw = random.Random(seed)
    content = bytearray(draw.choice(inputs))
    for _ in range(draw.choice((1, 2, 4, 30))):
        at = draw.randrange(len(content))
        some = draw.randrange(1, 64)
        way = draw.randrange(6)
        if way == 0:
            content[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            content[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif way == 2:
            content[at : at + 8] = draw.choice((0, 1 << 63, (1 << 64) - 1)).to_bytes(8, "little")
        elif way == 3 and len(content) > 2 * some:
            del content[at : at + some]
        elif way == 4:
            content[at:at] = content[at : at + some]
        elif len(content) > 100:
            del content[max(at, len(content) // 2) :]
    return bytes(content)


def passes(files: Sequence[Path]) -> bool:
    """The harness counts its inputs: that too few hold events is no fault of damaged ones."""
    try:
        done = subprocess.run([HARNESS, *files], capture_output=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 1)


def try_some(folder: Path, inputs: Sequence[bytes], seeds: Sequence[int]) -> list[int]:
    """The seeds that fail."""
    files = [folder / str(seed) for seed in seeds]
    for file, seed in zip(files, seeds, strict=True):
        file.write_bytes(damaged(inputs, seed))
    failed = []
    if not passes(files):
        failed = [seed for file, seed in zip(files, seeds, strict=True) if not passes([file])]
    for file in files:
        file.unlink()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    much = parser.add_mutually_exclusive_group(required=True)
    much.add_argument("--count", type=int)
    much.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others count on")
    given = parser.parse_args()
    inputs = [file.read_bytes() for file in sorted((HERE / "corpus").iterdir())]
    until = time.monotonic() + 60 * (given.minutes or 0)
    failed: list[int] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="memshim-test.") as name:
        while tried < given.count if given.count is not None else time.monotonic() < until:
            some = AT_ONCE if given.count is None else min(AT_ONCE, given.count - tried)
            first = given.seed + tried
            failed += try_some(Path(name), inputs, range(first, first + some))
            tried += some
    print(
        f"damaged bytes: {tried} tried, {len(failed)} failed, "
        f"seeds {given.seed} to {given.seed + tried - 1}"
        + (f"; to repeat: {' '.join(map(str, failed))}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
