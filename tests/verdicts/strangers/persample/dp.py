# SPDX-License-Identifier: Apache-2.0
"""Private training: the gradient of each sample is clipped by itself."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(784, 1024), nn.Linear(1024, 1024)
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


class PrivateTrainer:
    def __init__(self, model, clip=1.0, lr=0.1):
        self.model, self.clip, self.lr = model, clip, lr

    def loss(self, weights, image, label):
        logits = functional_call(self.model, weights, (image[None],))
        return nn.functional.cross_entropy(logits, label[None])

    def gradients(self, images, labels):
        weights = {name: p.detach() for name, p in self.model.named_parameters()}
        return vmap(grad(self.loss), in_dims=(None, 0, 0))(weights, images, labels)  # culprit

    def step(self, images, labels):
        each = self.gradients(images, labels)  # culprit
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                norms = each[name].flatten(1).norm(dim=1)
                scale = (self.clip / (norms + 1e-6)).clamp(max=1)
                mean = torch.einsum("b,b...->...", scale, each[name]) / len(images)
                p -= self.lr * mean


def main():
    trainer = PrivateTrainer(Net().cuda())
    for _ in range(20):
        images = torch.zeros(256, 784, device="cuda")
        trainer.step(images, torch.zeros(256, dtype=torch.long, device="cuda"))


if __name__ == "__main__":
    main()
