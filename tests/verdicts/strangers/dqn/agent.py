# SPDX-License-Identifier: Apache-2.0
import copy

import torch
from torch import nn


class QNetwork(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten()
        )
        self.value = nn.LazyLinear(actions)

    def forward(self, x):
        return self.value(self.features(x))


class Agent:
    def __init__(self, buffer, gamma=0.99):
        self.buffer, self.gamma = buffer, gamma
        self.online = QNetwork().cuda()
        self.online(torch.zeros(1, 4, 128, 128, device="cuda"))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-4)

    @torch.no_grad()
    def act(self, state):
        return self.online(state[None]).argmax(-1).item() % 6

    def learn(self):
        states, rewards, following = self.buffer.sample(16)
        with torch.no_grad():
            target = rewards + self.gamma * self.target(following).amax(-1)
        loss = nn.functional.smooth_l1_loss(self.online(states).amax(-1), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())
