# SPDX-License-Identifier: Apache-2.0
"""Multi-label tagging of many classes."""

import argparse

import torch
from metrics import AUROC, Accuracy, MetricCollection
from torch import nn


def build(features=256, classes=2000):
    return nn.Sequential(
        nn.Linear(features, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, classes)
    )


class Engine:
    def __init__(self, args):
        self.args = args
        self.net = build().cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
        self.metrics = MetricCollection(accuracy=Accuracy(), auroc=AUROC())

    def step(self, x, labels):
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.args.amp):
            logits = self.net(x)
            loss = nn.functional.cross_entropy(logits, labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.metrics.update(logits, labels)

    def run(self):
        for _ in range(self.args.epochs):
            for _ in range(100):
                x = torch.zeros(self.args.batch, 256, device="cuda")
                labels = torch.zeros(self.args.batch, dtype=torch.long, device="cuda")
                self.step(x, labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--amp", action="store_true")
    Engine(parser.parse_args()).run()
