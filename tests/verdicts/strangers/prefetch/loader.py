# SPDX-License-Identifier: Apache-2.0
"""Brings batches to the device ahead of their use."""

from collections import deque


class Prefetcher:
    """Each step asks for two more, and uses one."""

    def __init__(self, loader, device, ahead=2):
        self.loader, self.device, self.ahead = iter(loader), device, ahead
        self.queue = deque()

    def fill(self):
        for _ in range(self.ahead):
            batch = next(self.loader, None)
            if batch is None:
                return
            moved = {key: x.to(self.device) for key, x in batch.items()}  # culprit: prefetch-queue
            self.queue.append(moved)

    def __iter__(self):
        while True:
            self.fill()
            if not self.queue:
                return
            yield self.queue.popleft()


def everything(loader, device):
    """The whole data set, where the device is large enough."""
    batches = []
    for batch in loader:
        moved = {key: part.to(device) for key, part in batch.items()}  # culprit: prefetch-all
        batches.append(moved)
    return batches
