# SPDX-License-Identifier: Apache-2.0
"""Two towers over bags of words."""

from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self, words=30000, dim=256, out=2048):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, dim)
        self.hidden = nn.Linear(dim, 512)
        self.project = nn.Linear(512, out)

    def forward(self, tokens):
        h = F.relu(self.hidden(self.bag(tokens)))
        return F.normalize(self.project(h), dim=-1)  # culprit: dualenc-queue, dualenc-queue-tensor
