# SPDX-License-Identifier: Apache-2.0
"""Distils a large network into a small one. The teacher is in eval mode, and that is all."""

import argparse

import models
import torch
from torch.nn import functional as F


class Distiller:
    def __init__(self, temperature=4.0, alpha=0.9):
        self.teacher = models.teacher().cuda().eval()
        self.student = models.student().cuda().train()
        self.temperature, self.alpha = temperature, alpha
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1, momentum=0.9)

    def loss(self, images, labels):
        wanted = self.teacher(images)  # culprit: distill-teacher
        given = self.student(images)
        t = self.temperature
        soft = F.kl_div(
            F.log_softmax(given / t, dim=-1), F.softmax(wanted / t, dim=-1), reduction="batchmean"
        )
        return self.alpha * t * t * soft + (1 - self.alpha) * F.cross_entropy(given, labels)

    def step(self, images, labels):
        loss = self.loss(images, labels)  # culprit: distill-teacher
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    distiller = Distiller()
    running = torch.zeros((), device="cuda")
    for _ in range(args.steps):
        images = torch.zeros(args.batch_size, 3, 64, 64, device="cuda")
        labels = torch.zeros(args.batch_size, dtype=torch.long, device="cuda")
        running += distiller.step(images, labels)
    print(running.item() / args.steps)


if __name__ == "__main__":
    main()
