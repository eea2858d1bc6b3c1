# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer import ActivationStatistics, Trainer


def wavenet(channels=64, depth=6):
    layers = [nn.Conv1d(1, channels, 1)]
    for level in range(depth):
        layers += [nn.Conv1d(channels, channels, 3, padding=1 << level, dilation=1 << level)]
        layers += [nn.Tanh()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, 10))


def data(count, batch, length=2048):
    samples = TensorDataset(torch.zeros(count, 1, length), torch.zeros(count, dtype=torch.long))
    return DataLoader(samples, batch_size=batch, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--hooks", action="store_true")
    parser.add_argument("--valid-count", type=int, default=64)
    args = parser.parse_args()
    model = wavenet().cuda()
    statistics = ActivationStatistics(model) if args.hooks else None
    optimizer = torch.optim.Adam(model.parameters())
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, eval_every=15)
    trainer.fit(data(800, args.batch), data(args.valid_count, args.batch))
    print(statistics and len(statistics.values))


if __name__ == "__main__":
    main()
