# SPDX-License-Identifier: Apache-2.0
"""Trains a small residual network and prints statistics of its activations."""

import argparse

import torch
from hooks import ActivationRecorder
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))  # culprit


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 4, 3)
        self.layer1 = Residual(width)
        self.layer2 = Residual(width)
        self.fc = nn.Linear(width, 100)

    def forward(self, x):
        x = self.stem(x)  # culprit
        x = self.layer1(x)  # culprit
        x = self.layer2(x)  # culprit
        return self.fc(x.mean((2, 3)))


def run(model, optimizer, steps, every):
    recorder = ActivationRecorder(model, ["stem", "layer1", "layer2"])
    for step in range(steps):
        images = torch.zeros(32, 3, 128, 128, device="cuda")
        labels = torch.zeros(32, dtype=torch.long, device="cuda")
        loss = F.cross_entropy(model(images), labels)  # culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            print(step, recorder.statistics())
    recorder.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    args = parser.parse_args()
    network = Net().cuda()
    run(network, torch.optim.SGD(network.parameters(), lr=0.1), args.steps, args.every)
