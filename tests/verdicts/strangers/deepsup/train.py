# SPDX-License-Identifier: Apache-2.0
"""Segmentation with deep supervision."""

import argparse

import torch
from model import DeepSup
from torch.nn.functional import cross_entropy


class Trainer:
    def __init__(self, model, batch, clear):
        self.model, self.batch, self.clear = model, batch, clear
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def criterion(self, out, mask):
        loss = cross_entropy(out, mask)  # culprit: deepsup-batch, deepsup-batch-cap
        for aux, weight in zip(self.model.aux[-3:], (0.2, 0.3, 0.5), strict=True):
            one = cross_entropy(aux, mask)  # culprit: deepsup-batch, deepsup-batch-cap
            loss = loss + weight * one
        return loss

    def step(self, image, mask):
        if self.clear:
            self.model.aux.clear()
        out = self.model(image)  # culprit
        loss = self.criterion(out, mask)  # culprit: deepsup-batch, deepsup-batch-cap
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def fit(self, steps):
        self.model.train()
        for _ in range(steps):
            image = torch.zeros(self.batch, 3, 128, 128, device="cuda")
            mask = torch.zeros(self.batch, 128, 128, dtype=torch.long, device="cuda")
            self.step(image, mask)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--clear", action="store_true")
    args = parser.parse_args()
    Trainer(DeepSup().cuda(), args.batch, args.clear).fit(args.steps)
