# SPDX-License-Identifier: Apache-2.0
"""U-Net for segmentation."""

import torch
from torch import nn


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, channels=3, classes=4, width=16, depth=4):
        super().__init__()
        sizes = [width << level for level in range(depth)]
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        self.merge = nn.ModuleList()
        self.pool = nn.MaxPool2d(2)
        last = channels
        for size in sizes:
            self.down.append(double_conv(last, size))
            last = size
        self.middle = double_conv(last, last * 2)
        for size in reversed(sizes):
            self.up.append(nn.ConvTranspose2d(size * 2, size, 2, stride=2))
            self.merge.append(double_conv(size * 2, size))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)  # culprit: unet-batch, unet-cap, unet-tiles
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            x = merge(torch.cat([up(x), skip], dim=1))  # culprit: unet-batch, unet-cap, unet-tiles
        return self.head(x)
