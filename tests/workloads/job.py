# SPDX-License-Identifier: Apache-2.0
"""What every workload here does around its training loop: ranks, device, and its own truth.

A workload is plain PyTorch. It prints JSON lines, one for each step and one at the end, with what
PyTorch itself says about memory; tests compare other measurements with them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import settle  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of this rank's elements of these tensors, each tensor counted once."""
    unique = {id(tensor): tensor for tensor in tensors}
    local = (t.to_local() if isinstance(t, DTensor) else t for t in unique.values())
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def parameter_bytes(model: nn.Module) -> int:
    return tensor_bytes(model.parameters())


def gradient_bytes(model: nn.Module) -> int:
    return tensor_bytes(p.grad for p in model.parameters() if p.grad is not None)


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the optimizer's state on the device: this rank's share, where it is shared out."""
    inner = getattr(optimizer, "optim", optimizer)
    return tensor_bytes(
        value
        for state in inner.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.is_cuda
    )


def segment_bytes() -> list[int]:
    """Of the segments that PyTorch's allocator holds, the largest first; it knows none of another
    backend."""
    if torch.cuda.get_allocator_backend() != "native":
        return []
    sizes = [int(segment["total_size"]) for segment in torch.cuda.memory_snapshot()]
    return sorted(sizes, reverse=True)


class Job:
    """This process's place among the ranks, its device, and what it says."""

    def __init__(self, name: str) -> None:
        if not torch.cuda.is_available():
            sys.exit(f"{name}: PyTorch sees no GPU; run it through scripts/simgpu.sh or on one")
        self.name = name
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        # More ranks than devices share them: of use on the simulated GPU only.
        self.device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        self.distributed = self.world_size > 1
        self.started = time.monotonic()
        self.steps = 0
        self.updates = 0
        self.evaluations = 0
        self.evaluation_batches = 0
        self.gradient_bytes = 0
        self.optimizer_bytes = 0
        if self.distributed:
            dist.init_process_group("nccl")

    def parallel(self, model: nn.Module, find_unused_parameters: bool = False) -> nn.Module:
        """The model as this job trains it: DDP when there are several ranks."""
        if not self.distributed:
            return model
        return DistributedDataParallel(
            model,
            device_ids=[self.device.index],
            find_unused_parameters=find_unused_parameters,
        )

    def accumulate(self, model: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients are averaged between ranks in the last micro batch of a step only."""
        if isinstance(model, DistributedDataParallel) and not last:
            return model.no_sync()
        return contextlib.nullcontext()

    def say(self, event: str, **values: object) -> None:
        line = {"job": self.name, "rank": self.rank, "event": event, **values}
        # One write, so that lines of several ranks do not mix.
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def say_model(self, model: nn.Module, **values: object) -> None:
        self.say(
            "model",
            world_size=self.world_size,
            device=self.device.index,
            parameters=sum(p.numel() for p in model.parameters()),
            parameter_bytes=parameter_bytes(model),
            **values,
        )

    def note_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Called between the optimizer's step and the dropping of the gradients."""
        self.updates += 1
        self.gradient_bytes = max(self.gradient_bytes, gradient_bytes(model))
        self.optimizer_bytes = optimizer_bytes(optimizer)

    def note_evaluation(self, batches: int) -> None:
        self.evaluations += 1
        self.evaluation_batches += batches

    def say_step(self, **values: object) -> None:
        self.steps += 1
        self.say(
            "step",
            step=self.steps,
            allocated_bytes=torch.cuda.memory_allocated(),
            reserved_bytes=torch.cuda.memory_reserved(),
            max_allocated_bytes=torch.cuda.max_memory_allocated(),
            cpu_seconds=round(time.process_time(), 6),
            seconds=round(time.monotonic() - self.started, 6),
            **values,
        )

    def say_end(self, model: nn.Module, **values: object) -> None:
        torch.cuda.synchronize()
        self.say(
            "end",
            steps=self.steps,
            updates=self.updates,
            evaluations=self.evaluations,
            evaluation_batches=self.evaluation_batches,
            seconds=round(time.monotonic() - self.started, 3),
            parameter_bytes=parameter_bytes(model),
            gradient_bytes=self.gradient_bytes,
            optimizer_bytes=self.optimizer_bytes,
            max_allocated_bytes=torch.cuda.max_memory_allocated(),
            max_reserved_bytes=torch.cuda.max_memory_reserved(),
            segment_bytes=segment_bytes(),
            **values,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The training loop: an out-of-memory is said, and raised on as it came."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            self.say(
                "out_of_memory",
                steps=self.steps,
                allocated_bytes=torch.cuda.memory_allocated(),
                reserved_bytes=torch.cuda.memory_reserved(),
                message=str(error).splitlines()[0],
            )
            raise
        if self.distributed:
            dist.destroy_process_group()


def run(name: str, parser: argparse.ArgumentParser, train: Callable[[Job, Any], None]) -> None:
    """Parses the command line and trains."""
    options = parser.parse_args()
    job = Job(name)
    with job.running():
        train(job, options)
