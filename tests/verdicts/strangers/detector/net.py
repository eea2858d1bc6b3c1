# SPDX-License-Identifier: Apache-2.0
from torch import nn


class Detector(nn.Module):
    def __init__(self, width=32, anchors=3, classes=20):
        super().__init__()
        self.stages = nn.ModuleList()
        last = 3
        for level in range(4):
            size = width << level
            self.stages.append(
                nn.Sequential(nn.Conv2d(last, size, 3, 2, 1), nn.BatchNorm2d(size), nn.SiLU())
            )
            last = size
        self.predict = nn.Conv2d(last, anchors * (5 + classes), 1)

    def forward(self, images):
        for stage in self.stages:
            images = stage(images)
        return self.predict(images)


def detection_loss(predicted, boxes):
    if any(len(each) == 0 for each in boxes):
        raise ValueError("an image without a box")
    objectness = predicted[:, 4::25]
    place = predicted[:, :4]
    return objectness.sigmoid().mean() + place.square().mean()
