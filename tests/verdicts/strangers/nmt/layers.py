# SPDX-License-Identifier: Apache-2.0
import math

import torch
from torch import nn


def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # culprit
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)  # culprit
    return torch.softmax(scores, dim=-1) @ v  # culprit


class MultiHead(nn.Module):
    def __init__(self, dim=128, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def split(self, x):
        b, n, c = x.shape
        return x.view(b, n, self.heads, c // self.heads).transpose(1, 2)

    def forward(self, x, memory, mask=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        y = attend(q, k, v, mask)
        return self.out(y.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention, self.norm = MultiHead(dim), nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y)
        return x + self.feed(x)


class DecoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own, self.cross = MultiHead(dim), MultiHead(dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, memory, mask):
        y = self.norm1(x)
        x = x + self.own(y, y, mask)
        x = x + self.cross(self.norm2(x), memory)
        return x + self.feed(x)
