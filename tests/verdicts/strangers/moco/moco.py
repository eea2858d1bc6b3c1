# SPDX-License-Identifier: Apache-2.0
"""Momentum contrast with a memory bank, pretraining."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, dim=2048):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.project = nn.Linear(64, dim)

    def forward(self, x):
        return F.normalize(self.project(self.pool(self.trunk(x)).flatten(1)), dim=1)


class MemoryBank:
    """Negatives. The oldest were to be dropped, which is still to do."""

    def __init__(self, dim, device):
        self.keys = torch.zeros(0, dim, device=device)

    def enqueue(self, keys):
        self.keys = torch.cat([self.keys, keys.detach()], dim=0)  # culprit


class MoCo(nn.Module):
    def __init__(self, momentum=0.999, temperature=0.07):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature

    @torch.no_grad()
    def update_key_encoder(self):
        for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
            key.mul_(self.momentum).add_(query, alpha=1 - self.momentum)

    def forward(self, first, second, bank):
        q = self.query(first)
        with torch.no_grad():
            self.update_key_encoder()
            k = self.key(second)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ bank.keys.t()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        bank.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    model = MoCo().cuda()
    bank = MemoryBank(2048, "cuda")
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9)
    for _ in range(args.epochs):
        for _ in range(8):
            first = torch.zeros(args.batch, 3, 32, 32, device="cuda")
            second = torch.zeros(args.batch, 3, 32, 32, device="cuda")
            loss = model(first, second, bank)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
