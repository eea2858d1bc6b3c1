# SPDX-License-Identifier: Apache-2.0
"""Training that goes on from a checkpoint."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, dim=2048, depth=5):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(dim, dim) for _ in range(depth)])

    def forward(self, x):
        return self.layers(x)


def checkpoint(path):
    """As an earlier run left it."""
    model = Wide()
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--where", default="cuda")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        checkpoint(path)
        saved = torch.load(path, map_location=args.where)  # culprit
    model = Wide().cuda()
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(saved["optimizer"])
    for _ in range(5):
        loss = model(torch.zeros(64, 2048, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
