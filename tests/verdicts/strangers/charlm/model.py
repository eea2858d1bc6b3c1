# SPDX-License-Identifier: Apache-2.0
"""A character-level language model: embedding, two LSTM layers, a decoder."""

import torch
from torch import nn


class CharLM(nn.Module):
    def __init__(self, vocab=256, dim=256, hidden=512, layers=2, dropout=0.1):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.embed = nn.Embedding(vocab, dim)
        self.drop = nn.Dropout(dropout)
        self.rnn = nn.LSTM(dim, hidden, layers, batch_first=True)
        self.decode = nn.Linear(hidden, vocab)

    def init_hidden(self, batch, device):
        shape = (self.layers, batch, self.hidden)
        return torch.zeros(shape, device=device), torch.zeros(shape, device=device)

    def forward(self, tokens, state):
        x = self.drop(self.embed(tokens))
        x, state = self.rnn(x, state)
        return self.decode(self.drop(x)), state
