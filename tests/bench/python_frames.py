# SPDX-License-Identifier: Apache-2.0
"""What it takes to capture a thread's Python frames: the least time, by the number of frames that
are read, and for a remembered stack of 13 frames.

LD_PRELOAD=build/tests/process/libpython_frames.so python tests/bench/python_frames.py \\
    [known N | read N]

With an argument: only N captures of the remembered stack, or of its 12 innermost frames, which are
read each time. The difference between two runs' instructions is what their captures took."""

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
