# SPDX-License-Identifier: Apache-2.0
"""Jobs of two ranks: DDP and FSDP2, of which both or only one keep something."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from common import job, main, net, samples, step
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def parallel(model: nn.Module) -> nn.Module:
    dist.init_process_group("nccl")
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def sharded(model: nn.Module) -> nn.Module:
    dist.init_process_group("nccl")
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


@job(
    name="ddp-leak",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses` on both ranks",
    batch=4096,
    ranks=2,
)
@job(
    name="ddp-leak-spill",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses` on both ranks",
    batch=4096,
    ranks=2,
    spill_mib=256,
)
@job(
    name="ddp-leak-tensor",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses` on both ranks",
    batch=4096,
    ranks=2,
    mode="tensor",
)
def ddp_leak(batch: int) -> None:
    model = parallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses: list[torch.Tensor] = []
    for _ in range(100):
        step(model, optimizer, samples(batch))
        losses.append(model(samples(batch)).mean())  # culprit


# What dies is a request that PyTorch maps in pages: a part is mapped, the next page is refused, and
# the part is given back before PyTorch raises its error.
@job(
    name="ddp-leak-partial",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs` on both ranks",
    batch=7168,
    ranks=2,
    memory_mib=512,
)
def ddp_leak_partial(batch: int) -> None:
    model = parallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs: list[torch.Tensor] = []
    for _ in range(100):
        step(model, optimizer, samples(1024))
        outputs.append(torch.sin(samples(batch)))  # culprit


@job(
    name="ddp-leak-one-rank",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs` on rank 1",
    batch=8192,
    ranks=2,
)
@job(
    name="ddp-leak-first-rank",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs` on rank 0",
    batch=4096,
    ranks=2,
)
def ddp_leak_one(batch: int) -> None:
    model = parallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs: list[torch.Tensor] = []
    for _ in range(100):
        step(model, optimizer, samples(128))
        if os.environ["RANK"] == ("1" if batch == 8192 else "0"):
            outputs.append(torch.sin(samples(batch)))  # culprit


# DDP's buckets are a copy of all gradients, beside the gradients.
@job(
    name="ddp-buckets",
    reason="communication buffers",
    verdict="demand",
    when="before",
    where="setup",
    keeps="DDP's buckets, as large as the parameters",
    names="asks",
    ranks=2,
)
@job(
    name="ddp-buckets-cap",
    reason="communication buffers",
    verdict="cap",
    when="before",
    where="setup",
    keeps="DDP's buckets, as large as the parameters",
    names="asks",
    ranks=2,
    memory_mib=4096,
    cap_mib=1024,
)
@job(
    name="ddp-buckets-tensor",
    reason="communication buffers",
    verdict="demand",
    when="before",
    where="setup",
    keeps="DDP's buckets, as large as the parameters",
    names="asks",
    ranks=2,
    mode="tensor",
)
def ddp_buckets(_batch: int) -> None:
    dist.init_process_group("nccl")
    model = net(130)
    DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])  # culprit


@job(
    name="ddp-batch",
    reason="batch too large",
    verdict="demand",
    when="first",
    where="forward",
    keeps="autograd, until backward",
    names="holds",
    batch=65536,
    ranks=2,
)
@job(
    name="ddp-batch-slightly",
    reason="batch too large",
    verdict="demand",
    when="first",
    where="backward",
    keeps="autograd, until backward",
    names="holds",
    batch=34000,
    fits=29484,
    ranks=2,
)
def ddp_batch(batch: int) -> None:
    model = parallel(net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss = model(samples(batch)).mean()  # culprit
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@job(
    name="fsdp2-leak",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs` on both ranks",
    batch=8192,
    ranks=2,
)
@job(
    name="fsdp2-leak-slow",
    reason="tensors kept",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="the list `outputs` on both ranks",
    batch=2048,
    ranks=2,
)
def fsdp_leak(batch: int) -> None:
    model = sharded(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs: list[torch.Tensor] = []
    for _ in range(200):
        step(model, optimizer, samples(128))
        outputs.append(torch.sin(samples(batch)))  # culprit


@job(
    name="fsdp2-batch",
    reason="batch too large",
    verdict="demand",
    when="first",
    where="forward",
    keeps="autograd, until backward",
    names="holds",
    batch=65536,
    ranks=2,
)
@job(
    name="fsdp2-batch-slightly",
    reason="batch too large",
    verdict="demand",
    when="first",
    where="backward",
    keeps="autograd, until backward",
    names="holds",
    batch=34000,
    ranks=2,
)
def fsdp_batch(batch: int) -> None:
    model = sharded(net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss = model(samples(batch)).mean()  # culprit
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
