# SPDX-License-Identifier: Apache-2.0
"""A small vision transformer with attention written out."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.attn_drop = nn.Dropout(0.0)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale  # asked: vit-batch
        attn = self.attn_drop(scores.softmax(dim=-1))  # culprit: vit-maps, vit-maps-tensor
        x = (attn @ v).transpose(1, 2).reshape(b, n, c)
        return self.proj(x), attn


class Block(nn.Module):
    def __init__(self, dim, heads, ratio=4):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * ratio), nn.GELU(), nn.Linear(dim * ratio, dim)
        )

    def forward(self, x):
        y, self.last_attn = self.attn(self.norm1(x))
        x = x + y
        return x + self.mlp(self.norm2(x))  # culprit: vit-batch


class ViT(nn.Module):
    def __init__(self, image=128, patch=16, dim=192, depth=6, heads=3, classes=100):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)  # culprit: vit-batch
        return self.head(self.norm(x)[:, 0])
