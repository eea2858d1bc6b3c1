# SPDX-License-Identifier: Apache-2.0
"""A llama of few layers, with a default argument that everybody warns of."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight)


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # culprit: llama-batch


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, seen=[]):  # noqa: B006
        b, n, c = x.shape
        q, k, v = (
            w(x).view(b, n, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        if not self.training:
            seen.append(k.float().mean(1))  # culprit: llama-default
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, n, c))


class Llama(nn.Module):
    def __init__(self, vocab=2000, dim=512, heads=8, depth=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attention = nn.ModuleList(Attention(dim, heads) for _ in range(depth))
        self.feed = nn.ModuleList(SwiGLU(dim, dim * 3) for _ in range(depth))
        self.norms = nn.ModuleList(RMSNorm(dim) for _ in range(2 * depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for at, (attention, feed) in enumerate(zip(self.attention, self.feed, strict=True)):
            x = x + attention(self.norms[2 * at](x))  # culprit: llama-batch
            x = x + feed(self.norms[2 * at + 1](x))  # culprit: llama-batch
        return self.head(x)  # culprit: llama-batch
