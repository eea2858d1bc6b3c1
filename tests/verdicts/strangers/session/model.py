# SPDX-License-Identifier: Apache-2.0
"""Recommends the next item of a session: embeddings, a recurrent layer."""

from torch import nn


class SessionModel(nn.Module):
    def __init__(self, users, items=20000, dim=256):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, 64)
        self.rnn = nn.GRU(64, dim, batch_first=True)

    def encode(self, history):
        out, _ = self.rnn(self.items(history))  # culprit: session-cache, session-cache-pool-off
        return out

    def forward(self, user, history, item):
        h = self.encode(history)[:, -1]
        return ((h + self.users(user)) @ self.items(item).repeat(1, 4).t()).diag().mean()
