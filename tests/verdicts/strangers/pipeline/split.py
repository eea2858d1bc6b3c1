# SPDX-License-Identifier: Apache-2.0
"""An autoencoder in two halves, each on a device of its own."""

import argparse

import torch
from torch import nn


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 128, 4, 4), nn.ReLU()
        ).to("cuda:0")
        self.up = nn.Sequential(
            nn.ConvTranspose2d(128, 64, 4, 4), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 4)
        ).to("cuda:1")

    def forward(self, x):
        code = self.down(x.to("cuda:0"))
        return torch.sigmoid(self.up(code.to("cuda:1")))  # culprit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=224)
    args = parser.parse_args()
    model = Halves()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        pictures = torch.zeros(args.batch, 3, 256, 256)
        loss = (model(pictures) - pictures.to("cuda:1")).square().mean()  # culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
