# SPDX-License-Identifier: Apache-2.0
"""Usage: train.py [--batch-size N] [--full-images]. Validates on whole slides if asked to."""

import argparse
import logging

import torch
from evaluate import dice
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from unet import UNet


class Tiles(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        mask = torch.zeros(self.size, self.size, dtype=torch.long)
        return torch.zeros(3, self.size, self.size), mask


def train_net(args, device):
    model = UNet().to(device)
    train_loader = DataLoader(Tiles(args.batch_size * 6, 128), args.batch_size, drop_last=True)
    val_loader = DataLoader(Tiles(4, args.val_size), batch_size=args.val_batch)
    optimizer = optim.RMSprop(model.parameters(), lr=1e-4, weight_decay=1e-8, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1, args.epochs + 1):
        model.train()
        for images, masks in train_loader:
            images = images.to(device)
            masks = masks.to(device)
            predicted = model(images)  # culprit: unet-batch, unet-cap
            loss = criterion(predicted, masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        score = dice(model, val_loader, device)
        logging.info("epoch %d: %.3f", epoch, score)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--val-size", type=int, default=128)
    parser.add_argument("--val-batch", type=int, default=2)
    train_net(parser.parse_args(), torch.device("cuda"))
