# SPDX-License-Identifier: Apache-2.0
"""What attributes_job said of memory of every road, and what memshim may answer otherwise."""

from __future__ import annotations

Answers = dict[str, str]  # "road,question": the answer

SERVED = ("alloc", "pitch", "async", "pool", "cold")
# A question: why memshim answers otherwise. docs/coverage.md has a line for each.
DIFFERENCES = {
    "access": "cuda.h names no answer for memory that cuMemMap did not map; ours is mapped",
    "copy beyond its end": "what lies behind a block is mapped: other memory of the same process",
}
KNOWN = frozenset(f"{road},{question}" for road in SERVED for question in DIFFERENCES)


def read(text: str) -> Answers:
    rows = [line.rsplit(",", 1) for line in text.splitlines()]
    return {question: answer for question, answer in rows}


def differences(driver: Answers, found: Answers) -> list[str]:
    """Of memory of the pool what has no known reason; of the driver's own everything."""
    return [
        f"{key}: {found.get(key)}, not {driver.get(key)}"
        for key in sorted(driver.keys() | found.keys())
        if driver.get(key) != found.get(key) and key not in KNOWN
    ]
