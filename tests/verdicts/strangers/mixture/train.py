# SPDX-License-Identifier: Apache-2.0
"""Trains on a mixture of domains."""

import argparse
import random

import torch
from callbacks import DomainEval, Progress
from lm import LM

DOMAINS = {"web": 0.6, "code": 0.3, "papers": 0.1}


class Trainer:
    def __init__(self, callbacks):
        self.model = LM().cuda()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.callbacks = callbacks
        self.last = 0.0

    def batch_of(self, domain):
        return torch.randint(0, 4096, (8, 257)).cuda()

    def loss_of(self, domain):
        return self.model(self.batch_of(domain))  # culprit

    def train(self, steps):
        draw = random.Random(0)
        for step in range(1, steps + 1):
            domain = draw.choices(list(DOMAINS), list(DOMAINS.values()))[0]
            loss = self.loss_of(domain)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.last = loss.item()
            for callback in self.callbacks:
                callback.on_step_end(self, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--no-grad", action="store_true")
    args = parser.parse_args()
    Trainer([DomainEval(DOMAINS, no_grad=args.no_grad), Progress()]).train(args.steps)


if __name__ == "__main__":
    main()
