# SPDX-License-Identifier: Apache-2.0
"""Learns to learn: gradients through gradients, over tasks."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(1024, 256), (1024, 1024), (64, 1024)]
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)

    def forward(self, x, weights):
        for weight in weights[:-1]:
            x = F.relu(F.linear(x, weight))
        return F.linear(x, weights[-1])


class Maml:
    def __init__(self, args):
        self.args = args
        self.learner = Learner().cuda()
        self.outer = torch.optim.Adam(self.learner.parameters(), lr=1e-3)
        self.paths = []

    def loss(self, weights, x):
        target = torch.zeros(len(x), dtype=torch.long, device="cuda")
        return F.cross_entropy(self.learner(x, weights), target)

    def adapt(self, support):
        fast = list(self.learner.weights)
        for _ in range(self.args.inner):
            grads = torch.autograd.grad(self.loss(fast, support), fast, create_graph=True)
            fast = [w - 0.01 * g for w, g in zip(fast, grads, strict=True)]  # culprit
            if self.args.paths:
                self.paths.append(fast)
        return fast

    def meta_step(self):
        losses = []
        for _ in range(self.args.tasks):
            support, query = torch.zeros(2, 25, 256, device="cuda")
            fast = self.adapt(support)  # culprit
            losses.append(self.loss(fast, query))
        self.outer.zero_grad()
        torch.stack(losses).mean().backward()
        self.outer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--inner", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--paths", action="store_true")
    args = parser.parse_args()
    maml = Maml(args)
    for _ in range(args.steps):
        maml.meta_step()


if __name__ == "__main__":
    main()
