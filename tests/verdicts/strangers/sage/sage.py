# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE over sampled neighbours."""

import torch
from torch import nn


class SageLayer(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.own, self.near = nn.Linear(dim, out), nn.Linear(dim, out)

    def forward(self, x, neighbours):
        near = x[neighbours].mean(1)  # culprit: sage-full
        return torch.relu(self.own(x[: len(near)]) + self.near(near))


class Sage(nn.Module):
    def __init__(self, dim=128, classes=40):
        super().__init__()
        self.one, self.two = SageLayer(dim, 256), nn.Linear(256, classes)

    def forward(self, x, neighbours):
        return self.two(self.one(x, neighbours))  # culprit: sage-full
