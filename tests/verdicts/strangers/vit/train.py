# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
import torch.nn.functional as F
from callbacks import AttentionRollout, WorstImages
from torch.utils.data import DataLoader, Dataset
from vit import ViT


class FakeImages(Dataset):
    def __init__(self, length, size=128):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.zeros(3, self.size, self.size), index % 100


class Trainer:
    def __init__(self, model, loader, callbacks):
        self.model, self.loader, self.callbacks = model.cuda(), loader, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)

    def fit(self, epochs):
        for _ in range(epochs):
            for images, labels in self.loader:
                images, labels = images.cuda(), labels.cuda()
                logits = self.training_step(images, labels)
                for callback in self.callbacks:
                    callback.on_step_end(self, images, logits)

    def training_step(self, images, labels):
        logits = self.model(images)  # culprit: vit-batch
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return logits.detach()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rollout", action="store_true")
    parser.add_argument("--sheets", action="store_true")
    args = parser.parse_args()
    callbacks = []
    if args.rollout:
        callbacks.append(AttentionRollout())
    if args.sheets:
        callbacks.append(WorstImages())
    loader = DataLoader(FakeImages(args.batch_size * 20), args.batch_size, num_workers=0)
    Trainer(ViT(), loader, callbacks).fit(epochs=10 if callbacks else 1)
