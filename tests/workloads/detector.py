# SPDX-License-Identifier: Apache-2.0
"""Workload 6b: a detector whose batches arrive on a side stream.

Images and the number of boxes differ from batch to batch. The next batch is copied on a stream of
its own while the present one is computed, and handed over with record_stream; the features of some
batches are kept for a number of steps.
"""

from __future__ import annotations

import argparse
from collections import deque

import torch
from job import Job, run
from torch import nn
from torch.nn import functional

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # images, boxes, which image each is on


class Detector(nn.Module):
    """Convolutions, then for each box a crop of the features and two heads."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for level in range(4):
            outside = width * 2**level
            layers += [nn.Conv2d(channels, outside, 3, stride=2, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU()]
            channels = outside
        self.body = nn.Sequential(*layers)
        self.mix = nn.Linear(channels * 49, 512)
        self.classes = nn.Linear(512, classes)
        self.boxes = nn.Linear(512, 4)

    def forward(
        self, images: torch.Tensor, boxes: torch.Tensor, image_of: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features = self.body(images)
        steps = torch.linspace(0, 1, 7, device=images.device)
        across = boxes[:, None, 0:1] * 2 - 1 + steps[None, None, :] * boxes[:, None, 2:3]
        along = boxes[:, 1:2, None] * 2 - 1 + steps[None, :, None] * boxes[:, 3:4, None]
        grid = torch.stack(torch.broadcast_tensors(across, along), dim=-1)
        crops = functional.grid_sample(features[image_of], grid, align_corners=False)
        mixed = functional.relu(self.mix(crops.flatten(1)))
        return features, self.classes(mixed), self.boxes(mixed)


class Loader:
    """Draws batches on the host and copies each on a side stream, one ahead."""

    def __init__(self, job: Job, options: argparse.Namespace) -> None:
        self.device = job.device
        self.options = options
        self.generator = torch.Generator().manual_seed(options.seed + job.rank)
        self.stream = torch.cuda.Stream()
        self.ahead = self.copy()

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def copy(self) -> Batch:
        options = self.options
        height = 32 * self.number(options.size // 64, options.size // 32)
        width = 32 * self.number(options.size // 64, options.size // 32)
        count = self.number(1, options.boxes)
        images = torch.rand((options.batch, 3, height, width), generator=self.generator)
        boxes = torch.rand((count, 4), generator=self.generator)
        image_of = torch.randint(0, options.batch, (count,), generator=self.generator)
        with torch.cuda.stream(self.stream):
            return (
                images.pin_memory().to(self.device, non_blocking=True),
                boxes.pin_memory().to(self.device, non_blocking=True),
                image_of.pin_memory().to(self.device, non_blocking=True),
            )

    def next(self) -> Batch:
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.ahead
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream())
        self.ahead = self.copy()
        return batch


def train(job: Job, options: argparse.Namespace) -> None:
    torch.backends.cudnn.enabled = not options.no_cudnn
    torch.manual_seed(options.seed)
    network = Detector(options.width, options.classes).to(job.device)
    job.say_model(network)
    model = job.parallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = Loader(job, options)
    kept: deque[torch.Tensor] = deque(maxlen=options.keep)
    for step in range(1, options.steps + 1):
        images, boxes, image_of = loader.next()
        features, classes, moved = model(images, boxes, image_of)
        loss = functional.cross_entropy(classes, image_of) + functional.l1_loss(moved, boxes)
        loss.backward()
        optimizer.step()
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        if step % 3 == 0:
            kept.append(features.detach())
        job.say_step(height=images.shape[2], width=images.shape[3], boxes=boxes.shape[0])
        del images, boxes, image_of, features, classes, moved, loss
    job.say_end(network, kept_bytes=sum(t.numel() * t.element_size() for t in kept))


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=512, help="most pixels of a side")
    parser.add_argument("--boxes", type=int, default=200, help="most boxes of a batch")
    parser.add_argument("--classes", type=int, default=91)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--keep", type=int, default=8, help="features kept across steps")
    parser.add_argument("--no-cudnn", action="store_true", help="use PyTorch's own convolutions")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("detector", parse(), train)
