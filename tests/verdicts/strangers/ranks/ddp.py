# SPDX-License-Identifier: Apache-2.0
"""Data parallel on two devices. The first rank also writes a log with pictures."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class AutoEncoder(nn.Module):
    def __init__(self, pixels=64 * 64, hidden=512):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.decode = nn.Sequential(nn.Linear(hidden, pixels), nn.Sigmoid())

    def forward(self, x):
        return self.decode(self.encode(x))


class PictureLog:
    """Gathers pictures, to write them when the run is over."""

    def __init__(self, enabled):
        self.enabled, self.pending = enabled, []

    def add(self, step, before, after):
        if self.enabled:
            pair = torch.cat([before, after.detach()], dim=1)  # culprit: ranks-pictures
            self.pending.append((step, pair))


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(AutoEncoder().cuda(), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    log = PictureLog(enabled=rank == 0)
    for step in range(400):
        x = torch.zeros(128, 64 * 64, device="cuda")
        y = model(x)
        loss = nn.functional.mse_loss(y, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.add(step, x, y)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
