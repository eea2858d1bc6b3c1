# SPDX-License-Identifier: Apache-2.0
"""Data parallel training; the first rank averages checkpoints, of which it has all."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self, width=1024, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = x + nn.functional.gelu(block(x))  # culprit: ddpema-batch
        return x


class CheckpointAverage:
    def __init__(self):
        self.points = []

    def add(self, model):
        now = model.named_parameters()
        weights = {name: p.detach().clone() for name, p in now}  # culprit: ddpema-points
        self.points.append(weights)

    def average(self):
        first = self.points[0]
        return {n: torch.stack([p[n] for p in self.points]).mean(0) for n in first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Net().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = CheckpointAverage()
    for step in range(args.steps):
        x = torch.zeros(args.batch, 1024, device="cuda")
        loss = model(x).square().mean()  # culprit: ddpema-batch
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 0 and dist.get_rank() == 0:
            average.add(model.module)  # culprit: ddpema-points
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
