# SPDX-License-Identifier: Apache-2.0
"""Workload 6a: a U-Net trained at several resolutions, with a moving average of its weights.

The resolution is drawn anew for every step, so block sizes vary by a factor of sixteen.
"""

from __future__ import annotations

import argparse
import copy

import torch
from job import Job, run
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions with normalization, and a shortcut."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, inside),
            nn.SiLU(),
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.GroupNorm(8, outside),
            nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
        )
        self.shortcut = nn.Conv2d(inside, outside, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.shortcut(x) + self.body(x)
        return y


class UNet(nn.Module):
    """Down with more channels, up with what was kept on the way."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Block(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.middle = Block(widths[-1], widths[-1])
        self.up = nn.ModuleList(
            Block(2 * b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, kept.pop()], dim=1))
        y: torch.Tensor = self.last(x)
        return y


def train(job: Job, options: argparse.Namespace) -> None:
    torch.backends.cudnn.enabled = not options.no_cudnn
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    network = UNet(options.width, options.depth).to(job.device)
    average = copy.deepcopy(network).requires_grad_(False)
    job.say_model(network)
    model = job.parallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(options.steps):
        pick = int(torch.randint(len(options.sizes), (), generator=generator))
        size = options.sizes[pick]
        images = torch.rand((options.batch, 3, size, size), generator=generator).to(job.device)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.mse_loss(model(images).float(), images)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 0.001)
        job.say_step(size=size, loss=loss.item())
        del images, loss
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 192, 256])
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--no-cudnn", action="store_true", help="use PyTorch's own convolutions")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("unet", parse(), train)
