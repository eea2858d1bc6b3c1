# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.GroupNorm(8, dim)
        self.conv1 = nn.Conv2d(dim, dim, 3, padding=1)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1)
        self.time = nn.Linear(64, dim)

    def forward(self, x, emb):
        y = self.conv1(torch.nn.functional.silu(self.norm(x)))
        y = y + self.time(emb)[:, :, None, None]
        return x + self.conv2(torch.nn.functional.silu(y))


class Denoiser(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.inside = nn.Conv2d(3, dim, 3, padding=1)
        self.time = nn.Embedding(1000, 64)
        self.blocks = nn.ModuleList(Residual(dim) for _ in range(depth))
        self.outside = nn.Conv2d(dim, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(t)
        x = self.inside(x)
        for block in self.blocks:
            x = block(x, emb)
        return self.outside(x)
