# SPDX-License-Identifier: Apache-2.0
"""memshim as a package of Python: where its command and its library are, what a program can ask.

The command is `memshim`, or `python -m memshim`. What is preloaded needs no Python. A program that
runs under memshim can name its phases (`tag`), mark its steps (`step`), and ask how a device stands
(`stats`, `report`); without memshim these do nothing. `memshim.transformers` and
`memshim.lightning` have callbacks that do so for their trainers, `memshim.cupy` a hook for a pool,
`memshim.rmm` an adaptor for a resource.
"""

from __future__ import annotations

from pathlib import Path

from memshim._process import (
    Stats,
    active,
    pop_tag,
    push_tag,
    range_born,
    range_died,
    report,
    stats,
    step,
    tag,
    trace_folder,
)

_FOLDER = Path(__file__).absolute().parent


def executable() -> str:
    """The path of the `memshim` executable."""
    return str(_FOLDER / "bin" / "memshim")


def library() -> str:
    """The path of `libmemshim.so`, for LD_PRELOAD."""
    return str(_FOLDER / "lib" / "libmemshim.so")


__all__ = [
    "Stats",
    "active",
    "executable",
    "library",
    "pop_tag",
    "push_tag",
    "range_born",
    "range_died",
    "report",
    "stats",
    "step",
    "tag",
    "trace_folder",
]
