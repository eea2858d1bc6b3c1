# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts, top-1, with a record of how evenly the router spreads tokens."""

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.load = []

    def forward(self, x):
        probabilities = self.gate(x).softmax(dim=-1)  # culprit: moe-router, moe-router-pool-off
        self.load.append(probabilities.detach())
        weight, expert = probabilities.max(dim=-1)
        return weight, expert, probabilities


class MoE(nn.Module):
    def __init__(self, dim=256, experts=16, ratio=2, capacity=1.25):
        super().__init__()
        self.router = Router(dim, experts)
        self.capacity, self.count = capacity, experts
        self.up = nn.Parameter(torch.zeros(experts, dim, dim * ratio))
        self.down = nn.Parameter(torch.zeros(experts, dim * ratio, dim))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weight, expert, probabilities = self.router(tokens)
        room = int(self.capacity * len(tokens) / self.count)
        slots = torch.zeros(self.count, room, dtype=torch.long, device=x.device)
        inputs = tokens[slots]
        hidden = torch.relu(torch.bmm(inputs, self.up))
        outputs = torch.bmm(hidden, self.down).flatten(0, 1)
        result = torch.zeros_like(tokens).index_add(0, slots.flatten(), outputs)
        balance = self.count * (probabilities.mean(0) ** 2).sum()
        return (result * weight[:, None]).view_as(x), balance


class Layer(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.moe = MoE(dim)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        y, balance = self.moe(self.norm2(x))
        return x + y, balance
