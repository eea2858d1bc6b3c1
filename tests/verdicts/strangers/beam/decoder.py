# SPDX-License-Identifier: Apache-2.0
"""A decoder that remembers keys and values of earlier tokens."""

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, past):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)  # culprit
            v = torch.cat([past[1], v], dim=2)  # culprit
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, c)), (k, v)


class Decoder(nn.Module):
    def __init__(self, vocab=1000, dim=512, heads=8, depth=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(CachedAttention(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens, past):
        x, present = self.embed(tokens), []
        for layer, before in zip(self.layers, past or [None] * len(self.layers), strict=True):
            y, kept = layer(x, before)
            x = x + y
            present.append(kept)
        return self.head(x), present
