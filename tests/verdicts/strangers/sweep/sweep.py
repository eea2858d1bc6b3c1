# SPDX-License-Identifier: Apache-2.0
"""Tries batch sizes; one that does not fit is no reason to stop."""

import argparse

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, dim=1024):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(4)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(dim, 1000)

    def forward(self, x):
        return self.head(self.layers(x))


class Sweep:
    def __init__(self, record):
        self.record, self.confidence = record, []

    def trial(self, batch, steps):
        model = Classifier().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        labels = torch.zeros(batch, dtype=torch.long, device="cuda")
        for _ in range(steps):
            logits = model(torch.zeros(batch, 1024, device="cuda"))
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if self.record:
                self.confidence.append(logits.detach().softmax(-1))  # culprit

    def run(self):
        for batch in (65536, 32768, 1024, 512):
            try:
                self.trial(batch, 250)
            except torch.OutOfMemoryError:
                if batch <= 1024:
                    raise
                print(batch, "does not fit")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    Sweep(parser.parse_args().record).run()


if __name__ == "__main__":
    main()
