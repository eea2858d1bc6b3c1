# SPDX-License-Identifier: Apache-2.0
"""Looks for a learning rate: a short run at each of many, from the same beginning."""

import argparse
import copy

import torch
from torch import nn


class LRFinder:
    def __init__(self, model, make_optimizer, criterion):
        self.model, self.make_optimizer, self.criterion = model, make_optimizer, criterion
        self.results = []

    def trial(self, lr, steps):
        start = copy.deepcopy(self.model.state_dict())  # culprit
        optimizer = self.make_optimizer(self.model.parameters(), lr)
        losses = []
        for _ in range(steps):
            x = torch.zeros(32, 512, device="cuda")
            loss = self.criterion(self.model(x), torch.zeros(32, 512, device="cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.results.append({"lr": lr, "losses": losses, "start": start})
        self.model.load_state_dict(start)

    def search(self, low, high, count, steps=3):
        for index in range(count):
            self.trial(low * (high / low) ** (index / count), steps)  # culprit
        return min(self.results, key=lambda result: result["losses"][-1])["lr"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    layers = [nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(2048, 512)).cuda()
    finder = LRFinder(model, torch.optim.SGD, nn.MSELoss())
    print("best:", finder.search(1e-6, 1.0, args.count))


if __name__ == "__main__":
    main()
