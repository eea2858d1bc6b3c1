# SPDX-License-Identifier: Apache-2.0
"""The usual network for pictures of games, with a policy and a value."""

import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 32, 8, 4)
        self.conv2 = nn.Conv2d(32, 64, 4, 2)
        self.fc = nn.Linear(64 * 9 * 9, 512)
        self.pi = nn.Linear(512, actions)
        self.v = nn.Linear(512, 1)

    def forward(self, obs):
        h = torch.relu(self.conv1(obs))  # culprit: ppo-grad
        h = torch.relu(self.conv2(h))  # culprit: ppo-grad
        h = torch.relu(self.fc(h.flatten(1)))
        return self.pi(h), self.v(h).squeeze(-1)
