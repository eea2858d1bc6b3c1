# SPDX-License-Identifier: Apache-2.0
"""Trains with accelerate and collects the predictions of each step for a plot."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F


class Forecaster(nn.Module):
    def __init__(self, hidden=256, horizon=96, series=321):
        super().__init__()
        self.rnn = nn.GRU(series, hidden, batch_first=True)
        self.out = nn.Linear(hidden, horizon * series)
        self.shape = (-1, horizon, series)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h[0]).view(self.shape)  # culprit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    accelerator = Accelerator()
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.zeros(64 * args.steps, 24, 321))
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    predictions = []
    for (past,) in loader:
        forecast = model(past)  # culprit
        loss = F.mse_loss(forecast, torch.zeros_like(forecast))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        predictions.append(accelerator.gather_for_metrics(forecast))
    accelerator.print(len(predictions))


if __name__ == "__main__":
    main()
