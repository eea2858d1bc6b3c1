# SPDX-License-Identifier: Apache-2.0
"""A hook for CuPy's memory pool: each array is seen inside the pool's blocks, at its line.

memshim makes a hook of its own where CuPy is imported; then this one does nothing. It is for
programs that leave that out (MEMSHIM_FRAMEWORKS), and use holes inside the pool's blocks as well:

`with memshim.cupy.MemshimHook():` around the program, or `MemshimHook().__enter__()` at its
beginning. CuPy's hooks are a thread's own: each thread that makes arrays takes one.

A block of the pool that a hook did not see made may hold arrays that none saw: it stays one block,
whatever is put into it later.
"""

from __future__ import annotations

import bisect
import sys
import threading
from typing import Any

from cupy.cuda import MemoryHook

from memshim import _process

Theirs = Any  # what CuPy tells: device_id, size, mem_size, mem_ptr, pmem_id


class _Blocks:
    """The pool's, of all threads, that were seen made; and the arrays in them."""

    def __init__(self) -> None:
        # The collector may run while a thread holds it, and free arrays in that thread.
        self.lock = threading.RLock()
        self.starts: list[int] = []
        self.ends: dict[int, int] = {}
        self.arrays: set[int] = set()

    def add(self, address: int, size: int) -> None:
        with self.lock:
            if address not in self.ends:
                bisect.insort(self.starts, address)
            self.ends[address] = address + size

    def put(self, address: int, size: int) -> bool:
        """Whether it lies in one of them."""
        with self.lock:
            index = bisect.bisect_right(self.starts, address) - 1
            inside = index >= 0 and address + size <= self.ends[self.starts[index]]
            if inside:
                self.arrays.add(address)
            return inside

    def take(self, address: int) -> bool:
        """Whether it was put."""
        with self.lock:
            known = address in self.arrays
            self.arrays.discard(address)
            return known


_blocks = _Blocks()


def _is_told() -> bool:
    """By memshim's own hook (shim/frameworks/cupy.c)."""
    return "_memshim_cupy" in sys.modules


class MemshimHook(MemoryHook):
    """Tells memshim what CuPy's pool hands out and takes back."""

    name = "MemshimHook"

    def alloc_postprocess(self, **told: Theirs) -> None:
        if told["mem_ptr"] and not _is_told():
            _blocks.add(told["mem_ptr"], told["mem_size"])

    def malloc_postprocess(self, **told: Theirs) -> None:
        if told["mem_ptr"] and _blocks.put(told["mem_ptr"], told["mem_size"]):
            _process.range_born(told["device_id"], told["mem_ptr"], told["mem_size"])

    # Not after it: another thread may have the memory by then.
    def free_preprocess(self, **told: Theirs) -> None:
        if _blocks.take(told["mem_ptr"]):
            _process.range_died(told["device_id"], told["mem_ptr"], told["mem_size"])
