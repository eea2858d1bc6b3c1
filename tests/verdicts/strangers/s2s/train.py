# SPDX-License-Identifier: Apache-2.0
"""Teacher forcing in training, greedy decoding in validation."""

import argparse

import torch
from model import Seq2Seq
from torch.nn import functional as F


def train_epoch(model, opt, batch, steps):
    model.train()
    for _ in range(steps):
        source = torch.randint(0, 8000, (batch, 40)).cuda()
        target = torch.randint(0, 8000, (batch, 41)).cuda()
        logits = model.teach(source, target)  # culprit: s2s-batch
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())  # culprit: s2s-batch
        opt.zero_grad()
        loss.backward()
        opt.step()


def validate(model, batches):
    model.eval()
    scores = []
    for _ in range(batches):
        source = torch.randint(0, 8000, (64, 40)).cuda()
        scores.extend(model.greedy(source, 40))  # culprit: s2s-scores
    return len(scores)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--validate", type=int, default=30)
    args = parser.parse_args()
    model = Seq2Seq().cuda()
    opt = torch.optim.Adam(model.parameters())
    for _ in range(args.epochs):
        train_epoch(model, opt, args.batch, 10)
        print(validate(model, args.validate), "scores")


if __name__ == "__main__":
    main()
