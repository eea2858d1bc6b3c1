# SPDX-License-Identifier: Apache-2.0
"""What reading a thread's Python frames costs: the least time of a capture, by frames read.

LD_PRELOAD=build/tests/process/libpython_frames.so python tests/bench/python_frames.py [callgrind N]

With callgrind, N captures of 12 frames and nothing else: the difference of two runs' instructions
is that of their captures."""

from __future__ import annotations

import ctypes
import sys

LIBRARY = ctypes.CDLL(None)
LIBRARY.frames_least_ns.restype = ctypes.c_uint64
CAPTURES_TIMED = 100  # of which frames_least_ns gives the time
FRAMES = 12


def recurse(frames: int) -> None:
    if frames > 1:
        recurse(frames - 1)
        return
    LIBRARY.frames_many(FRAMES, 1000)
    if len(sys.argv) > 2:
        LIBRARY.frames_many(FRAMES, int(sys.argv[2]))
        return
    for depth in [1, 2, 4, 8, FRAMES]:
        least_ns = LIBRARY.frames_least_ns(depth, 20000) / CAPTURES_TIMED
        print(f"{sys.version.split()[0]}: {depth:2} frames {least_ns:6.1f} ns")


if __name__ == "__main__":
    recurse(FRAMES)
