# SPDX-License-Identifier: Apache-2.0
"""Serves one base model with many low-rank adapters, which come and go."""

import argparse

import torch
from torch import nn

LAYERS, DIM, RANK = 24, 1024, 64


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM, bias=False) for _ in range(LAYERS))

    def forward(self, x, deltas=None, merged=None):
        for index, layer in enumerate(self.layers):
            if merged is not None:
                x = torch.relu(x @ merged[index].t())
                continue
            y = layer(x)
            if deltas is not None:
                a, b = deltas[index]
                y = y + x @ a.t() @ b.t()
            x = torch.relu(y)
        return x


def read_adapter(_name):
    """From disk."""
    return [(torch.zeros(RANK, DIM), torch.zeros(DIM, RANK)) for _ in range(LAYERS)]


class Registry:
    def __init__(self, base, merge):
        self.base, self.merge = base, merge
        self.loaded = {}

    def get(self, name):
        if name not in self.loaded:
            read = read_adapter(name)
            pairs = [(a.cuda(), b.cuda()) for a, b in read]  # culprit: adapters-loaded
            if self.merge:
                both = zip(self.base.layers, pairs, strict=True)
                pairs = [layer.weight + b @ a for layer, (a, b) in both]  # culprit: adapters-merged
            self.loaded[name] = pairs
        return self.loaded[name]


@torch.inference_mode()
def answer(base, registry, name, x):
    found = registry.get(name)  # culprit
    return base(x, merged=found) if registry.merge else base(x, deltas=found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=120)
    parser.add_argument("--merge", action="store_true")
    args = parser.parse_args()
    base = Base().cuda()
    registry = Registry(base, args.merge)
    for user in range(args.users):
        for _ in range(3):
            answer(base, registry, f"user-{user}", torch.zeros(16, DIM, device="cuda"))  # culprit


if __name__ == "__main__":
    main()
