# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from loader import Prefetcher, everything
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectrograms(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"audio": torch.zeros(1, 128, 256), "label": torch.tensor(index % 35)}


class AudioNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 5, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1))
        self.gru = nn.GRU(32 * 16, 128, batch_first=True)
        self.head = nn.Linear(128, 35)

    def forward(self, x):
        x = self.conv(x)
        x, _ = self.gru(x.permute(0, 3, 1, 2).flatten(2))
        return self.head(x[:, -1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--count", type=int, default=16000)
    args = parser.parse_args()
    loader = DataLoader(Spectrograms(args.count), batch_size=32)
    batches = everything(loader, "cuda") if args.all else Prefetcher(loader, "cuda")
    model = AudioNet().cuda()
    optimizer = torch.optim.RMSprop(model.parameters())
    for batch in batches:
        loss = nn.functional.cross_entropy(model(batch["audio"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
