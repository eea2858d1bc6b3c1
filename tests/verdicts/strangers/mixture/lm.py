# SPDX-License-Identifier: Apache-2.0
"""A small transformer for language."""

from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, dim=256, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)  # culprit
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(-1, -2)).softmax(-1)  # culprit
        x = x + self.out((attention @ v).transpose(1, 2).reshape(b, t, d))  # culprit
        return x + self.mlp(self.norm2(x))  # culprit


class LM(nn.Module):
    def __init__(self, vocab=4096, dim=256, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x)  # culprit
        logits = self.head(x)  # culprit
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())  # culprit
