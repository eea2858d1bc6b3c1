# SPDX-License-Identifier: Apache-2.0
"""Some annotations are broken: their batches are skipped, and the errors shown at the end."""

import argparse
import logging

import torch
from net import Detector, detection_loss

log = logging.getLogger("detector")


class Annotations:
    def __init__(self, batches, batch, broken_every):
        self.batches, self.batch, self.broken_every = batches, batch, broken_every

    def __iter__(self):
        for number in range(self.batches):
            boxes = [[(0, 0, 10, 10)] for _ in range(self.batch)]
            if self.broken_every and number % self.broken_every == 1:
                boxes[0] = []
            yield torch.zeros(self.batch, 3, 192, 192), boxes


class Training:
    def __init__(self):
        self.model = Detector().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.937)
        self.errors = []

    def step(self, images, boxes):
        images = images.cuda()
        predicted = self.model(images)  # culprit
        loss = detection_loss(predicted, boxes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def epoch(self, data):
        for images, boxes in data:
            try:
                self.step(images, boxes)  # culprit
            except ValueError as error:
                self.errors.append(error)
        for error in self.errors:
            log.warning("skipped: %s", error)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--broken-every", type=int, default=3)
    args = parser.parse_args()
    Training().epoch(Annotations(400, args.batch, args.broken_every))


if __name__ == "__main__":
    main()
