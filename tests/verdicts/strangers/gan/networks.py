# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent=128, width=32):
        super().__init__()
        self.start = nn.Linear(latent, width * 4 * 8 * 8)
        self.width = width
        self.up = nn.Sequential(
            nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.up(self.start(z).view(-1, self.width * 4, 8, 8))


class Critic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, width * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(width * 4 * 8 * 8, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1, device=real.device)
    points = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(points)
    total = score.sum()
    (gradient,) = torch.autograd.grad(total, points, create_graph=True)  # culprit: gan-gradients
    return ((gradient.flatten(1).norm(dim=1) - 1) ** 2).mean(), gradient
