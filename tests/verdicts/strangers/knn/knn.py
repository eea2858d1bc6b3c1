# SPDX-License-Identifier: Apache-2.0
"""Self-supervised training, watched by nearest neighbours in a bank of features."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Backbone(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, dim))

    def forward(self, x):
        return self.net(x)


class KnnMonitor:
    def __init__(self, items, all_at_once):
        self.items = items
        self.all_at_once = all_at_once
        self.banks = {}

    @torch.no_grad()
    def build(self, model, epoch):
        features = []
        for _ in range(self.items // 1000):
            features.append(model(torch.zeros(1000, 768, device="cuda")))
        self.banks[epoch] = torch.cat(features)  # culprit: knn-banks
        return self.banks[epoch]

    @torch.no_grad()
    def accuracy(self, model, epoch):
        bank = self.build(model, epoch)  # culprit: knn-banks
        if self.all_at_once:
            return (bank[:10_000] @ bank.t()).topk(20).indices.shape  # culprit: knn-similarity
        return (bank[:100] @ bank.t()).topk(20).indices.shape


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--items", type=int, default=40_000)
    parser.add_argument("--all-at-once", action="store_true")
    args = parser.parse_args()
    model = Backbone().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = KnnMonitor(args.items, args.all_at_once)
    for epoch in range(args.epochs):
        for _ in range(12):
            a, b = model(torch.zeros(512, 768, device="cuda")).chunk(2)
            loss = -F.cosine_similarity(a, b.detach()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, monitor.accuracy(model, epoch))  # culprit: knn-banks


if __name__ == "__main__":
    main()
