# SPDX-License-Identifier: Apache-2.0
"""What the jobs of the corpus share: how one is chosen, and a model small enough to run on a CPU's
time. Nothing here keeps memory beyond a call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "workloads"))

import settle  # noqa: E402, F401
import torch  # noqa: E402
from torch import nn  # noqa: E402

MIB = 1 << 20
BYTE = torch.uint8
JOBS: dict[str, tuple[Callable[[int], None], int]] = {}
Work = Callable[[int], None]


def job(*, name: str, batch: int = 0, **_truth: object) -> Callable[[Work], Work]:
    """Makes a function a job of the corpus; it is called with the batch. `truth.py` reads the rest
    from the source."""

    def note(work: Work) -> Work:
        JOBS[name] = (work, batch)
        return work

    return note


def main() -> None:
    """FILE JOB [BATCH]"""
    work, batch = JOBS[sys.argv[1]]
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    work(int(sys.argv[2]) if len(sys.argv) > 2 else batch)


def block(mib: float) -> torch.Tensor:
    """That many MiB on the device."""
    return torch.empty(int(mib * MIB), dtype=BYTE, device="cuda")


class Net(nn.Module):
    """Layers of 1024: 4 MiB of parameters each; a sample's activations are 8 KiB a layer."""

    def __init__(self, depth: int = 4, width: int = 1024) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)  # the model's line
            x = torch.relu(x)  # the model's line
        return x


def net(depth: int = 4, width: int = 1024) -> nn.Module:
    return Net(depth, width).cuda()


def samples(batch: int, width: int = 1024) -> torch.Tensor:
    return torch.zeros(batch, width, device="cuda")


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).mean()
    assert isinstance(loss, torch.Tensor)
    return loss


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """One step of training that keeps nothing."""
    loss_of(model, x).backward()
    optimizer.step()
    optimizer.zero_grad()
