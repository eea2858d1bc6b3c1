# SPDX-License-Identifier: Apache-2.0
"""Training and validation of a compiled model."""

import argparse

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, dim=512, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, 256)

    def forward(self, x):  # culprit: compiled-batch
        for layer in self.layers:
            x = x + torch.relu(layer(x))  # culprit: compiled-batch
        return self.head(x)


class Fit:
    def __init__(self, backend):
        self.plain = Mixer().cuda()
        self.model = torch.compile(self.plain, backend=backend)
        self.optimizer = torch.optim.SGD(self.plain.parameters(), lr=0.1)
        self.logits = []

    def train(self, x):
        loss = self.model(x).square().mean()  # culprit: compiled-batch
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self, x):
        with torch.no_grad():
            self.logits.append(self.model(x))  # culprit: compiled-logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    fit = Fit(args.backend)
    for _ in range(400):
        fit.train(torch.zeros(args.batch, 512, device="cuda"))
        fit.validate(torch.zeros(args.batch, 512, device="cuda"))


if __name__ == "__main__":
    main()
