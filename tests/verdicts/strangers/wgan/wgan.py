# SPDX-License-Identifier: Apache-2.0
"""A Wasserstein GAN with gradient penalty."""

import argparse

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.c1 = nn.Conv2d(3, width, 4, 2, 1)
        self.c2 = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.c3 = nn.Conv2d(2 * width, 1, 4)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.c1(x), 0.2)  # culprit
        x = nn.functional.leaky_relu(self.c2(x), 0.2)  # culprit
        return self.c3(x).mean((1, 2, 3))


class Generator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.fc = nn.Linear(128, 2 * width * 16 * 16)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(width, 3, 4, 2, 1)

    def forward(self, z):
        x = self.fc(z).view(len(z), -1, 16, 16)
        return self.up2(self.up1(x).relu()).tanh()


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1, device="cuda")
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)  # culprit
    (grad,) = torch.autograd.grad(score.sum(), between, create_graph=True)  # culprit
    return (grad.flatten(1).norm(dim=1) - 1).square().mean()


def train(args):
    critic, generator = Critic().cuda(), Generator().cuda()
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    penalties = []
    for step in range(args.steps):
        real = torch.zeros(args.batch, 3, 64, 64, device="cuda")
        with torch.no_grad():
            fake = generator(torch.randn(args.batch, 128, device="cuda"))
        penalty = gradient_penalty(critic, real, fake)  # culprit
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty  # culprit
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        penalties.append(penalty)
        if step % 5 == 4:
            opt_g.zero_grad()
            (-critic(generator(torch.randn(args.batch, 128, device="cuda"))).mean()).backward()
            opt_g.step()
    print(torch.stack(penalties).mean().item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    train(parser.parse_args())
