# SPDX-License-Identifier: Apache-2.0
"""Sessions of a chat service: keys and values of each, and a summary that outlives them."""

import torch

MIB = 1 << 20


class Session:
    def __init__(self, number, mib):
        self.number = number
        self.keys = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
        self.summary = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")  # culprit
        self.values = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")

    def close(self):
        self.keys = self.values = None


class Sessions:
    def __init__(self, limit):
        self.limit, self.open, self.closed = limit, [], []

    def admit(self, number, mib=6):
        if len(self.open) == self.limit:
            oldest = self.open.pop(0)
            oldest.close()
            self.closed.append(oldest)
        self.open.append(Session(number, mib))  # culprit
