# SPDX-License-Identifier: Apache-2.0
"""Instance discrimination; logs how long the features are, as an average that moves."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, dim=4096):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(768, 1024), nn.ReLU())
        self.head = nn.Linear(1024, dim)

    def forward(self, x):
        return F.normalize(self.head(self.body(x)), dim=1)  # culprit


class Meter:
    def __init__(self):
        self.average = 0.0

    def update(self, value):
        self.average = 0.9 * self.average + 0.1 * value  # culprit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    encoder = Encoder().cuda()
    prototypes = nn.Linear(4096, 1000, bias=False).cuda()
    optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.03)
    norms = Meter()
    for _ in range(args.steps):
        x = torch.zeros(512, 768, device="cuda")
        z = encoder(x)  # culprit
        loss = F.cross_entropy(prototypes(z), torch.zeros(512, dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        norms.update(z.norm(dim=1).mean())  # culprit


if __name__ == "__main__":
    main()
