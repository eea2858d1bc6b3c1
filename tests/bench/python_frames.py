# SPDX-License-Identifier: Apache-2.0
"""What a thread's Python frames cost: the least time of a capture, by frames read, and of a stack of
13 frames that came before.

LD_PRELOAD=build/tests/process/libpython_frames.so python tests/bench/python_frames.py \
    [known N | read N]

With an argument, N captures of that stack, or of its 12 innermost frames, which are read anew, and
nothing else: the difference of two runs' instructions is that of their captures."""

from __future__ import annotations

import ctypes
import sys

LIBRARY = ctypes.CDLL(None)
LIBRARY.frames_least_ns.restype = ctypes.c_uint64
CAPTURES_TIMED = 100  # of which frames_least_ns gives the time
FRAMES = 12
WHOLE = 64


def recurse(frames: int) -> None:
    if frames > 1:
        recurse(frames - 1)
        return
    LIBRARY.frames_many(FRAMES, 1000)
    if len(sys.argv) > 2:
        depth = WHOLE if sys.argv[1] == "known" else FRAMES
        LIBRARY.frames_many(depth, int(sys.argv[2]))
        return
    for depth in [1, 2, 4, 8, FRAMES, WHOLE]:
        least_ns = LIBRARY.frames_least_ns(depth, 20000) / CAPTURES_TIMED
        what = "known" if depth == WHOLE else f"{depth:2} frames"
        print(f"{sys.version.split()[0]}: {what:9} {least_ns:6.1f} ns")


if __name__ == "__main__":
    recurse(FRAMES)
