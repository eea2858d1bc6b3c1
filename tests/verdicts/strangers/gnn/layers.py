# SPDX-License-Identifier: Apache-2.0
"""Message passing by gather and scatter."""

import torch
from torch import nn


class EdgeConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(dim * 2, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update = nn.GRUCell(dim, dim)

    def forward(self, x, edges):
        source, target = edges
        pairs = torch.cat([x[source], x[target]], dim=-1)  # culprit
        messages = self.message(pairs)  # culprit
        summed = torch.zeros_like(x).index_add(0, target, messages)
        return self.update(summed, x)  # culprit


class GraphNet(nn.Module):
    def __init__(self, features=32, dim=128, depth=3):
        super().__init__()
        self.encode = nn.Linear(features, dim)
        self.layers = nn.ModuleList(EdgeConv(dim) for _ in range(depth))
        self.readout = nn.Linear(dim, 1)

    def forward(self, graph):
        x = self.encode(graph["x"])
        for layer in self.layers:
            x = layer(x, graph["edges"])
        pooled = torch.zeros(graph["count"], x.shape[1], device=x.device)
        return self.readout(pooled.index_add(0, graph["batch"], x)).squeeze(-1)
