# SPDX-License-Identifier: Apache-2.0
"""A hook for CuPy's memory pool: each array is seen inside the pool's blocks, at its line.

`with memshim.cupy.MemshimHook():` around the program, or `MemshimHook().__enter__()` at its
beginning. CuPy's hooks are a thread's own: each thread that makes arrays takes one.
"""

from __future__ import annotations

from typing import Any

from cupy.cuda import MemoryHook

from memshim import _process

Theirs = Any  # what CuPy tells: device_id, size, mem_size, mem_ptr, pmem_id


class MemshimHook(MemoryHook):
    """Tells memshim what CuPy's pool hands out and takes back."""

    name = "MemshimHook"

    def malloc_postprocess(self, **told: Theirs) -> None:
        if told["mem_ptr"]:
            _process.range_born(told["device_id"], told["mem_ptr"], told["mem_size"])

    # Not after it: another thread may have the memory by then.
    def free_preprocess(self, **told: Theirs) -> None:
        _process.range_died(told["device_id"], told["mem_ptr"], told["mem_size"])
