# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from solver import integrate
from torch import nn


class Field(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a, self.b = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))  # culprit


class OdeNet(nn.Module):
    def __init__(self, steps, dim=128):
        super().__init__()
        self.steps = steps
        self.field, self.head = Field(dim), nn.Linear(dim, 10)

    def forward(self, x):
        return self.head(integrate(self.field, x, 1.0, self.steps))  # culprit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    model = OdeNet(args.steps).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(10):
        x = torch.zeros(1024, 128, device="cuda")
        labels = torch.zeros(1024, dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(model(x), labels)  # culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
