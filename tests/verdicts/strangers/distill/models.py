# SPDX-License-Identifier: Apache-2.0
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(dim, dim // 4, 1),
            nn.BatchNorm2d(dim // 4),
            nn.ReLU(),
            nn.Conv2d(dim // 4, dim // 4, 3, padding=1),
            nn.BatchNorm2d(dim // 4),
            nn.ReLU(),
            nn.Conv2d(dim // 4, dim, 1),
            nn.BatchNorm2d(dim),
        )

    def forward(self, x):
        return (x + self.body(x)).relu()  # culprit: distill-teacher


class ResNet(nn.Module):
    def __init__(self, dim, depth, classes=100):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 7, 4, 3)
        self.blocks = nn.Sequential(*[Bottleneck(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))  # culprit: distill-teacher


def teacher():
    return ResNet(256, 12)


def student():
    return ResNet(64, 3)
