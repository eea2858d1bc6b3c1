# SPDX-License-Identifier: Apache-2.0
"""memshim as a package of Python: where its command and its library are.

The command is `memshim`, or `python -m memshim`. What is preloaded needs no Python.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).absolute().parent


def executable() -> str:
    """The path of the `memshim` executable."""
    return str(_FOLDER / "bin" / "memshim")


def library() -> str:
    """The path of `libmemshim.so`, for LD_PRELOAD."""
    return str(_FOLDER / "lib" / "libmemshim.so")


__all__ = ["executable", "library"]
