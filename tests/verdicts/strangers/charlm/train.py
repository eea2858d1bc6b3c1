# SPDX-License-Identifier: Apache-2.0
"""Trains on windows of a text, carrying the state over, and measures perplexity now and then."""

import argparse
import math

import torch
import torch.nn.functional as F
from model import CharLM


def windows(length, count, batch, device):
    for _ in range(count):
        text = torch.randint(0, 255, (batch, length + 1))
        yield text[:, :-1].to(device), text[:, 1:].to(device)


def detach(state):
    return tuple(part.detach() for part in state)


class Runner:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda")
        self.model = CharLM().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def loss(self, logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def train_epoch(self):
        self.model.train()
        state = self.model.init_hidden(self.args.batch, self.device)
        for tokens, targets in windows(128, 24, self.args.batch, self.device):
            logits, state = self.model(tokens, detach(state))
            loss = self.loss(logits, targets)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def train_book(self):
        """The whole book is one sequence: one backward pass at its end."""
        self.model.train()
        state = self.model.init_hidden(self.args.batch, self.device)
        total = torch.zeros((), device=self.device)
        for tokens, targets in windows(128, 200, self.args.batch, self.device):
            logits, state = self.model(tokens, state)  # culprit: charlm-book
            total = total + self.loss(logits, targets)  # culprit: charlm-book
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()

    def perplexity(self, count):
        self.model.eval()
        state = self.model.init_hidden(self.args.batch, self.device)
        total = 0.0
        for tokens, targets in windows(128, count, self.args.batch, self.device):
            logits, state = self.model(tokens, state)  # culprit: charlm-perplexity
            total += self.loss(logits, targets).item()
        return math.exp(min(total / count, 20))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--book", action="store_true")
    args = parser.parse_args()
    runner = Runner(args)
    for epoch in range(args.epochs):
        if args.book:
            runner.train_book()
        else:
            runner.train_epoch()
        print(f"epoch {epoch}: perplexity {runner.perplexity(400):.2f}")


if __name__ == "__main__":
    main()
