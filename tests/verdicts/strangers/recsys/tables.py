# SPDX-License-Identifier: Apache-2.0
"""Two towers over large embedding tables."""

from torch import nn


class Tower(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Embedding(rows, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, ids):
        return self.mlp(self.table(ids).mean(dim=1))


class TwoTowers(nn.Module):
    def __init__(self, users, items, dim=64):
        super().__init__()
        self.user, self.item = Tower(users, dim), Tower(items, dim)

    def forward(self, users, items):
        return (self.user(users) * self.item(items)).sum(-1)
