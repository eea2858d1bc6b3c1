# SPDX-License-Identifier: Apache-2.0
"""Fits a classifier with early stopping."""

import argparse

import torch
from stopping import EarlyStopping
from torch import nn


def build():
    sizes = [784, 2048, 2048, 1024]
    layers = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 10))


def train_one_epoch(model, optimizer, loss_fn):
    model.train()
    for _ in range(5):
        x = torch.rand(128, 784).cuda()
        y = torch.randint(0, 10, (128,)).cuda()
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model):
    model.eval()
    right = torch.zeros((), device="cuda")
    for _ in range(3):
        right += (model(torch.rand(512, 784).cuda()).argmax(1) == 0).sum()
    return right.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--keep-on", default="cuda")
    args = parser.parse_args()
    model = build().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    stop = EarlyStopping(patience=5, where=args.keep_on)
    for _ in range(args.epochs):
        train_one_epoch(model, optimizer, nn.CrossEntropyLoss())
        if stop(accuracy(model), model):  # culprit
            break


if __name__ == "__main__":
    main()
