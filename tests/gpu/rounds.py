# SPDX-License-Identifier: Apache-2.0
"""The training job of train.py, kept alive to be measured in rounds: what drifts on a machine is
then shared by all that take turns.

    rounds.py SHAPES [options of train.py]

Shapes and contents of SHAPES batches are drawn once, pinned. Each line of the input is a JSON
object {"passes"}: so many times over all of them, each answered with a JSON line {"event": "pass",
"seconds", "steps"}; with "tell", also what is live and charged. It ends with its input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Sequence

import torch
from train import Training, draw, parser, say

PROCESSORS = 4  # the same for all, and not those that begin the list


class Stats(ctypes.Structure):
    """The beginning of struct memshim_stats."""

    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in ("total", "cap", "used", "peak_used", "free", "live", "reserved")
    ]


def beside_pytorch() -> tuple[int, int]:
    """Bytes that are live beside PyTorch's tensors, and those charged beside the pool; without
    memshim none are known."""
    ask = getattr(ctypes.CDLL(None), "memshim_stats", None)
    stats = Stats(ctypes.sizeof(Stats))
    if ask is None or ask(torch.cuda.current_device(), ctypes.byref(stats)) != 0:
        return 0, 0
    return max(0, stats.live - torch.cuda.memory_allocated()), stats.used - stats.reserved


def tell() -> None:
    live, others = beside_pytorch()
    say(
        event="memory",
        peak_live_bytes=torch.cuda.max_memory_allocated() + live,
        peak_reserved_bytes=torch.cuda.max_memory_reserved(),
        others_bytes=others,
    )


def one_pass(training: Training, batches: Sequence[torch.Tensor]) -> float:
    """How long it took."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for ids in batches:
        training.step(ids.cuda(non_blocking=True))
    torch.cuda.synchronize()
    return time.perf_counter() - start


def be_steady() -> None:
    """Against what makes one pass slower than another and is no allocator's doing: Python's
    collector going through all that was imported, other processors, cuDNN's plans of a shape."""
    gc.collect()
    gc.freeze()
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) >= 2 * PROCESSORS:
        os.sched_setaffinity(0, processors[PROCESSORS : 2 * PROCESSORS])
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    made.add_argument("shapes", type=int)
    options = made.parse_args(arguments)
    be_steady()
    generator = torch.Generator().manual_seed(options.seed)
    batches = [draw(options, generator).pin_memory() for _ in range(options.shapes)]
    training = Training(options)
    for line in sys.stdin:
        asked = json.loads(line)
        for _ in range(asked["passes"]):
            say(event="pass", seconds=one_pass(training, batches), steps=len(batches))
        if asked.get("tell"):
            tell()


if __name__ == "__main__":
    main()
