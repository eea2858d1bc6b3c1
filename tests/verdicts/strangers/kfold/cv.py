# SPDX-License-Identifier: Apache-2.0
"""Cross-validation, over folds and seeds; the models are to be an ensemble."""

import argparse

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.out(x)


def fit(width, seed, steps):
    torch.manual_seed(seed)
    model = Regressor(width)
    model.cuda()  # culprit
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        x, y = torch.zeros(64, width, device="cuda"), torch.zeros(64, 1, device="cuda")
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # culprit
        optimizer.step()  # culprit
    return {"model": model, "optimizer": optimizer, "score": loss.item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    args = parser.parse_args()
    ensemble = []
    for seed in range(args.seeds):
        for fold in range(args.folds):
            ensemble.append(fit(args.width, 10 * seed + fold, steps=12))  # culprit
            print(f"seed {seed}, fold {fold}: {ensemble[-1]['score']}")


if __name__ == "__main__":
    main()
