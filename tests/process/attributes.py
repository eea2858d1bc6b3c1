# SPDX-License-Identifier: Apache-2.0
"""What attributes_job said of memory of every road, and what memshim may answer otherwise.

`tests/gpu/NVIDIA-H200-580.159.04/attributes.csv` is what a card said. The simulated GPU says the
same, given what that card has (CARD)."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "gpu" / "NVIDIA-H200-580.159.04" / "attributes.csv"
# Properties of that card, which the simulated GPU has only where they are asked for.
CARD = {"SIMGPU_RDMA": 1, "SIMGPU_DMA_BUF": 1}

# What attributes_job is asked about: its arguments. The card was asked the first only.
ABOUT: tuple[tuple[str, ...], ...] = ((), ("opened",), ("textures",))

Answers = dict[str, str]  # "road,question": the answer

ORDERED = ("async", "pool")
SERVED = ("alloc", "pitch", "cold", *ORDERED)
# A question, wherever it is asked: of which roads memshim answers otherwise, and why.
# docs/coverage.md has a line for each.
DIFFERENCES = {
    "copy beyond its end": (
        SERVED,
        "what lies behind a block is mapped: other memory of the same process",
    ),
    "MAPPING_BASE_ADDR": (
        SERVED,
        "blocks lie side by side: one may begin inside of a granule, which is mapped whole",
    ),
    "MAPPING_SIZE": (
        ORDERED,
        "the driver maps 32 MiB at once for a pool, memshim what the block needs",
    ),
    "dma-buf of a part": (
        ORDERED,
        "the driver's pools give whole granules only; ours is mapped memory, which gives any page",
    ),
}
# Likewise of memory that another process allocated and this one opened.
OPENED = {
    "copy beyond its end": "its last granule is mapped whole",
    "MAPPING_SIZE": "the granules that the block touches",
    "IS_GPU_DIRECT_RDMA_CAPABLE": "as its owner's chunks, with which it is mapped",
    "IS_HW_DECOMPRESS_CAPABLE": "as its owner's chunks, with which it is mapped",
    "dma-buf of its beginning": "mapped memory gives any page",
    "dma-buf of several chunks": "mapped memory gives any page",
    "dma-buf of a part": "mapped memory gives any page",
}
ASKED = re.compile(r"(?:all: )?(.*?)(?: (?:at its beginning|inside|at the end|at its last byte))?")


def read(text: str) -> Answers:
    rows = [line.rsplit(",", 1) for line in text.splitlines()]
    return {question: answer for question, answer in rows}


def split(key: str) -> tuple[str, str]:
    """The road, and the question without where and by which function it was asked."""
    road, question = key.split(",", 1)
    asked = ASKED.fullmatch(question)
    return road, asked[1] if asked else question


def is_known(road: str, question: str) -> bool:
    return road in DIFFERENCES.get(question, ((), ""))[0] or (
        road == "opened" and question in OPENED
    )


def differences(expected: Answers, found: Answers, with_memshim: bool = True) -> list[str]:
    """A line for each question that is answered otherwise, with all the roads; with memshim without
    those of the pool's memory that have a known reason."""
    roads: dict[tuple[str, str | None, str | None], dict[str, None]] = {}
    for key in expected.keys() | found.keys():
        road, question = split(key)
        one, other = expected.get(key), found.get(key)
        if one != other and not (with_memshim and is_known(road, question)):
            roads.setdefault((question, other, one), {})[road] = None
    return sorted(
        f"{question} of {', '.join(sorted(names))}: {other}, not {one}"
        for (question, other, one), names in roads.items()
    )
