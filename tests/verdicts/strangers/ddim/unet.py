# SPDX-License-Identifier: Apache-2.0
"""Predicts noise: a stem, residual blocks that know the time, a head."""

import torch
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(64, width)

    def forward(self, x, t):
        h = torch.relu(self.first(x)) + self.time(t)[:, :, None, None]
        return x + self.second(h)


class Denoiser(nn.Module):
    def __init__(self, width=320, blocks=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.ModuleList(ResBlock(width) for _ in range(blocks))
        self.head = nn.ConvTranspose2d(width, 3, 4, 2, 1)

    def forward(self, x, t):
        t = torch.sin(t[:, None] * torch.arange(64, device=t.device))
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, t)
        return self.head(x)
