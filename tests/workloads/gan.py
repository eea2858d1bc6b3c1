# SPDX-License-Identifier: Apache-2.0
"""A Wasserstein GAN with gradient penalty, batches that differ from step to step.

The penalty is the gradient's norm of the critic's judgement, and is itself trained: its backward
goes through a backward that was kept, so that far more lives at a time than in a common step.
"""

from __future__ import annotations

import argparse

import torch
from job import Job, run
from torch import nn


class Generator(nn.Module):
    """From noise to an image, doubling the size level by level."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        widths = [options.width * 2 ** (options.levels - level) for level in range(options.levels)]
        self.first = nn.Linear(options.noise, widths[0] * 16)
        layers: list[nn.Module] = []
        for inside, outside in zip(widths, [*widths[1:], options.width], strict=True):
            layers += [nn.Upsample(scale_factor=2.0), nn.Conv2d(inside, outside, 3, padding=1)]
            layers += [nn.GroupNorm(8, outside), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(options.width, 3, 3, padding=1), nn.Tanh())

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        start = self.first(noise).view(noise.shape[0], -1, 4, 4)
        image: torch.Tensor = self.body(start)
        return image


class Critic(nn.Module):
    """From an image to one number, halving the size level by level."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for level in range(options.levels):
            outside = options.width * 2**level
            layers += [nn.Conv2d(channels, outside, 3, padding=1), nn.LeakyReLU(0.2)]
            layers += [nn.AvgPool2d(2)]
            channels = outside
        self.body = nn.Sequential(*layers)
        self.last = nn.Linear(channels * 16, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        judged: torch.Tensor = self.last(self.body(images).flatten(1))
        return judged


def penalty_of(
    critic: nn.Module, real: torch.Tensor, made: torch.Tensor, mix: torch.Tensor
) -> torch.Tensor:
    between = (mix * real + (1 - mix) * made).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((gradient.flatten(1).norm(dim=1) - 1) ** 2).mean()


def train(job: Job, options: argparse.Namespace) -> None:
    torch.backends.cudnn.enabled = not options.no_cudnn
    torch.manual_seed(options.seed)
    draws = torch.Generator().manual_seed(options.seed + job.rank)
    generator = Generator(options).to(job.device)
    critic = Critic(options).to(job.device)
    both = nn.ModuleList([generator, critic])
    job.say_model(both)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    size = 4 * 2**options.levels
    for step in range(1, options.steps + 1):
        batch = int(torch.randint(options.batch // 4, options.batch + 1, (), generator=draws))
        real = torch.rand((batch, 3, size, size), generator=draws).to(job.device)
        noise = torch.randn((batch, options.noise), generator=draws).to(job.device)
        mix = torch.rand((batch, 1, 1, 1), generator=draws).to(job.device)
        with torch.no_grad():
            made = generator(noise)
        penalty = penalty_of(critic, real, made, mix)
        loss = critic(made).mean() - critic(real).mean() + 10 * penalty
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        del made, penalty
        if step % options.critic_steps == 0:
            generator_optimizer.zero_grad()
            (-critic(generator(noise)).mean()).backward()
            generator_optimizer.step()
        job.note_state(both, critic_optimizer)
        job.say_step(batch=batch, loss=loss.item())
        del real, noise, mix, loss
    job.say_end(both)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="most images in a batch")
    parser.add_argument("--levels", type=int, default=5, help="images of 4 x 2^levels pixels")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--noise", type=int, default=128)
    parser.add_argument("--critic-steps", type=int, default=2, help="of the critic to one")
    parser.add_argument("--no-cudnn", action="store_true", help="use PyTorch's own convolutions")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("gan", parse(), train)
