# SPDX-License-Identifier: Apache-2.0
"""Regression with a large effective batch: the losses of many micro-batches are summed."""

import argparse

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, features=512, width=1024):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return self.third(x).squeeze(-1)


class Accumulator:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.pending = 0.0
        self.count = 0

    def add(self, x, y):
        predicted = self.model(x)  # culprit
        loss = nn.functional.huber_loss(predicted, y)
        self.pending = self.pending + loss / self.every
        self.count += 1
        if self.count % self.every == 0:
            self.flush()

    def flush(self):
        self.pending.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.pending = 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch", type=int, default=4096)
    parser.add_argument("--accumulate", type=int, default=64)
    parser.add_argument("--steps", type=int, default=256)
    args = parser.parse_args()
    model = Regressor().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    accumulator = Accumulator(model, optimizer, args.accumulate)
    for _ in range(args.steps):
        x = torch.zeros(args.micro_batch, 512).cuda(non_blocking=True)
        y = torch.zeros(args.micro_batch, device="cuda")
        accumulator.add(x, y)


if __name__ == "__main__":
    main()
