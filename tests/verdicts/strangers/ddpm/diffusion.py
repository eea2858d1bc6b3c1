# SPDX-License-Identifier: Apache-2.0
"""Denoising diffusion: the schedule, the loss, and a sampler that shows its progress."""

import torch
import torch.nn.functional as F


class Diffusion:
    def __init__(self, steps=1000, device="cuda"):
        self.steps, self.device = steps, device
        beta = torch.linspace(1e-4, 0.02, steps, device=device)
        self.alpha_bar = torch.cumprod(1.0 - beta, dim=0)
        self.beta = beta

    def noisy(self, x0, t, noise):
        a = self.alpha_bar[t].view(-1, 1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss(self, model, x0):
        t = torch.randint(0, self.steps, (len(x0),)).to(self.device)
        noise = torch.randn_like(x0)
        return F.mse_loss(model(self.noisy(x0, t, noise), t), noise)

    @torch.no_grad()
    def sample(self, model, shape, keep_progress=False):
        x = torch.randn(shape, device=self.device)
        progress = []
        for step in reversed(range(self.steps)):
            t = torch.full((shape[0],), step, device=self.device)
            predicted = model(x, t)
            x = x - self.beta[step] * predicted  # culprit: ddpm-progress
            if keep_progress:
                progress.append(x)
        return x, progress
