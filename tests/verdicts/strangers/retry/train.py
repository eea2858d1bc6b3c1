# SPDX-License-Identifier: Apache-2.0
"""Halves the batch where memory runs out, as people do; some batches are long."""

import argparse

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.embed = nn.Embedding(5000, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 8, 1024, batch_first=True)
        self.head = nn.Linear(dim, 20)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


class Fit:
    def __init__(self, remember):
        self.model = Tagger().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.remember, self.problems = remember, []

    def step(self, tokens):
        logits = self.model(tokens.cuda())
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.cuda().flatten() * 0)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def careful(self, tokens):
        try:
            self.step(tokens)
            return
        except torch.OutOfMemoryError as error:
            print(f"{len(tokens)} x {tokens.shape[1]} is too much")
            if self.remember:
                self.problems.append(error)
        half = (len(tokens) + 1) // 2
        self.careful(tokens[:half])
        self.careful(tokens[half:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--remember", action="store_true")
    args = parser.parse_args()
    fit = Fit(args.remember)
    for number in range(40):
        length = 1024 if number % 9 == 5 else 128
        fit.careful(torch.zeros(32, length, dtype=torch.long))


if __name__ == "__main__":
    main()
