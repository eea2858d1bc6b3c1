# SPDX-License-Identifier: Apache-2.0
"""Diffusion in pixels, with an average of the weights; samples a sheet at the end."""

import argparse

import torch
from ema import EMA
from unet import Denoiser


def q_sample(x, t, noise):
    keep = (1 - t / 1000)[:, None, None, None]
    return keep * x + (1 - keep) * noise


@torch.no_grad()
def sample(model, count, steps, preview):
    """`preview` shows how the pictures come out of the noise."""
    x = torch.randn(count, 3, 64, 64, device="cuda")
    seen = [x]
    for step in reversed(range(steps)):
        t = torch.full((count,), float(step), device="cuda")
        x = x - 0.01 * model(x, t)  # culprit: ddim-preview
        if preview:
            seen.append(x)  # culprit: ddim-preview
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--snapshot-every", type=int, default=5)
    parser.add_argument("--preview", action="store_true")
    args = parser.parse_args()
    model = Denoiser(args.width).cuda()
    ema = EMA(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    for step in range(1, args.steps + 1):
        x = torch.zeros(4, 3, 64, 64, device="cuda")
        t = torch.randint(0, 1000, (4,), device="cuda").float()
        noise = torch.randn_like(x)
        loss = (model(q_sample(x, t, noise), t) - noise).square().mean()
        loss.backward()
        optimizer.step()  # culprit: ddim-wide
        optimizer.zero_grad()
        ema.update(model)
        if step % args.snapshot_every == 0:
            ema.snapshot(step)
    pictures = sample(ema.shadow, 24, 1000, args.preview)
    print(len(pictures), "pictures")


if __name__ == "__main__":
    main()
