# SPDX-License-Identifier: Apache-2.0
import argparse
import copy

import torch
from diffusion import Diffusion
from network import Denoiser


class EMA:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


class Snapshots:
    """Weights of every few steps, to be averaged after training."""

    def __init__(self, every):
        self.every, self.kept = every, []

    def maybe(self, step, ema):
        if step % self.every == 0:
            weights = ema.shadow.state_dict()
            state = {key: x.clone() for key, x in weights.items()}  # culprit: ddpm-snapshots
            self.kept.append(state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--snapshots", type=int, default=0)
    parser.add_argument("--progress", action="store_true")
    args = parser.parse_args()
    diffusion = Diffusion()
    model = Denoiser(args.dim).cuda()
    ema = EMA(model)
    snapshots = Snapshots(args.snapshots) if args.snapshots else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for step in range(args.steps):
        loss = diffusion.loss(model, torch.zeros(8, 3, 32, 32, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if snapshots:
            snapshots.maybe(step, ema)
    images, _ = diffusion.sample(ema.shadow, (64, 3, 64, 64), keep_progress=args.progress)
    print(images.shape)


if __name__ == "__main__":
    main()
