# SPDX-License-Identifier: Apache-2.0
"""Walks the road of python_road.c below a stack of Python frames: python_road.py LIBRARY"""

from __future__ import annotations

import ctypes
import os
import sys

FRAMES = 14  # with the module's own
BLOCK_BYTES = 64 * 96 << 10


def must(status: int) -> None:
    if status != 0:
        raise SystemExit(f"the simulated GPU returned {status}")


def make_block() -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(BLOCK_BYTES)))
    return block.value


def below(frames: int, block: int) -> None:
    if frames > 1:
        below(frames - 1, block)
        return
    ctypes.PyDLL(sys.argv[1]).walk_python(ctypes.c_void_p(block))


if __name__ == "__main__":
    below(FRAMES - 1, make_block())
    os._exit(0)  # what is done at an ordinary end is no part of this
