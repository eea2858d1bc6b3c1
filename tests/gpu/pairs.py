# SPDX-License-Identifier: Apache-2.0
"""What it takes to allocate a tensor and drop it again, over and over, among others that stay."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import torch

SIZES_KIB = (4, 1024, 20480)
OTHERS = 64
ROUNDS = 5


def pair_ns(kib: int, count: int) -> float:
    """The least of some rounds: what disturbs one makes it longer."""
    least = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(count // ROUNDS):
            tensor = torch.empty(kib << 10, dtype=torch.uint8, device="cuda")
            del tensor
        least = min(least, (time.perf_counter_ns() - start) / (count // ROUNDS))
    return least


def main(arguments: Sequence[str] | None = None) -> None:
    count = int((sys.argv[1:] if arguments is None else arguments)[0])
    others = [torch.empty((n + 1) << 14, dtype=torch.uint8, device="cuda") for n in range(OTHERS)]
    for kib in SIZES_KIB:
        print(json.dumps({"event": "pairs", "kib": kib, "ns": round(pair_ns(kib, count), 1)}))
    del others
    sys.stdout.flush()


if __name__ == "__main__":
    main()
