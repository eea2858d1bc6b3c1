# SPDX-License-Identifier: Apache-2.0
"""WGAN-GP with a record of everything."""

import argparse
from collections import defaultdict

import torch
from networks import Critic, Generator, gradient_penalty


class WGAN:
    def __init__(self, batch, watch):
        self.batch, self.watch = batch, watch
        self.generator, self.critic = Generator().cuda(), Critic().cuda()
        self.g_opt = torch.optim.Adam(self.generator.parameters(), 1e-4, betas=(0.5, 0.9))
        self.c_opt = torch.optim.Adam(self.critic.parameters(), 1e-4, betas=(0.5, 0.9))
        self.history = defaultdict(list)

    def noise(self):
        return torch.randn(self.batch, 128, device="cuda")

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(self.noise())
        penalty, gradient = gradient_penalty(self.critic, real, fake)  # culprit: gan-gradients
        loss = self.critic(fake).mean() - self.critic(real).mean() + 10 * penalty
        self.c_opt.zero_grad()
        loss.backward()
        self.c_opt.step()
        self.history["critic"].append(loss.item())
        if self.watch == "gradients":
            self.history["gradient"].append(gradient)

    def generator_step(self, step):
        fake = self.generator(self.noise())
        loss = -self.critic(fake).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        self.history["generator"].append(loss.item())
        if self.watch == "samples" and step % 4 == 0:
            self.history["samples"].append(self.fixed_samples())

    @torch.no_grad()
    def fixed_samples(self):
        return self.generator(self.noise()).add(1).div(2)  # culprit: gan-samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--watch", choices=("gradients", "samples", "nothing"), default="nothing")
    args = parser.parse_args()
    gan = WGAN(args.batch, args.watch)
    for step in range(args.iterations):
        for _ in range(2):
            gan.critic_step(torch.zeros(args.batch, 3, 64, 64, device="cuda"))
        gan.generator_step(step)


if __name__ == "__main__":
    main()
