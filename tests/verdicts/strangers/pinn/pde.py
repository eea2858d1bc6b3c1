# SPDX-License-Identifier: Apache-2.0
"""Burgers' equation: the residual needs second derivatives."""

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=128, depth=4):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(field, x, t, viscosity=0.01 / torch.pi):
    u = field(x, t)
    u_t, u_x = derivative(u, t), derivative(u, x)
    u_xx = derivative(u_x, x)
    return u_t + u * u_x - viscosity * u_xx
