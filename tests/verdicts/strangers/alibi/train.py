# SPDX-License-Identifier: Apache-2.0
"""A language model with ALiBi; each batch is as long as its longest text."""

import functools
import random

import torch
from torch import nn


@functools.cache
def alibi(length, heads):
    place = torch.arange(length, device="cuda")
    apart = (place[None] - place[:, None]).abs().neg()
    slopes = torch.logspace(-1, -8, heads, base=2, device="cuda")
    return slopes[:, None, None] * apart  # culprit


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = alibi(n, self.heads)  # culprit
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.out(y.transpose(1, 2).reshape(b, n, c))


def main():
    chance = random.Random(0)
    embed = nn.Embedding(1000, 128)
    model = nn.Sequential(embed, Block(128, 8), Block(128, 8), nn.Linear(128, 1000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(600):
        length = chance.randint(300, 900)
        tokens = torch.zeros(2, length, dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
