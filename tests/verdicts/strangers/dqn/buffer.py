# SPDX-License-Identifier: Apache-2.0
"""Experience replay that lives on the device."""

import random
from collections import deque

import torch


class ReplayBuffer:
    def __init__(self, capacity, device="cuda"):
        self.device = device
        self.memory = deque(maxlen=capacity)

    def push(self, state, action, reward, following):
        self.memory.append((state, action, reward, following))

    def sample(self, count):
        chosen = random.sample(self.memory, count)
        states = torch.stack([entry[0] for entry in chosen])
        rewards = torch.tensor([entry[2] for entry in chosen], device=self.device)
        following = torch.stack([entry[3] for entry in chosen])
        return states, rewards, following

    def __len__(self):
        return len(self.memory)
