# SPDX-License-Identifier: Apache-2.0
"""An encoder and a decoder that is given the right words while it learns."""

import torch
from torch import nn


class Seq2Seq(nn.Module):
    def __init__(self, words=8000, dim=256):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.cell = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, words)

    def teach(self, source, target):
        """Logits of each next word, the right words given."""
        _, h = self.encoder(self.embed(source))
        h = h[0]
        logits = []
        for position in range(target.shape[1] - 1):
            h = self.cell(self.embed(target[:, position]), h)
            logits.append(self.out(h))  # culprit: s2s-batch
        return torch.stack(logits, dim=1)  # culprit: s2s-batch

    @torch.no_grad()
    def greedy(self, source, length):
        _, h = self.encoder(self.embed(source))
        h = h[0]
        word = torch.zeros(len(source), dtype=torch.long, device=source.device)
        scores = []
        for _ in range(length):
            h = self.cell(self.embed(word), h)
            step = self.out(h)  # culprit: s2s-scores
            word = step.argmax(-1)
            scores.append(step)
        return scores
