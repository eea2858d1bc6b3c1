# SPDX-License-Identifier: Apache-2.0
"""The training job of the check: a transformer in mixed precision, shapes fixed or different from
step to step, all drawn on the host from a seed, so that every run of it does the same.

Says in a JSON line at the end the loss of each step, to the bit, how fast it was and what it held.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import sys
import time
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 8192


class Model(nn.Module):
    """Embeddings, causal layers, a head over the vocabulary."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width: int = options.width
        self.checkpointing: bool = options.checkpoint
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(options.length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(options.layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.token(ids) + self.place.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, mask, None, True, use_reentrant=False)
            else:
                x = layer(x, mask, is_causal=True)
        logits: torch.Tensor = self.head(x)
        return logits


def draw(options: argparse.Namespace, generator: torch.Generator) -> torch.Tensor:
    length, batch = options.length, options.batch
    if options.vary:
        length = int(torch.randint(length // 4, length + 1, (), generator=generator))
        batch = int(torch.randint(max(1, batch // 4), batch + 1, (), generator=generator))
    return torch.randint(0, VOCABULARY, (batch, length), generator=generator)


def be_deterministic() -> None:
    """Slower kernels whose sums come in one order. (CUBLAS_WORKSPACE_CONFIG is the caller's.)"""
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int),
        ("device", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("most_bytes", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 56),
    ]


def limit_the_drivers_pool(most_bytes: int) -> None:
    """What cudaMallocAsync takes its memory from may hold so much: PyTorch's own fraction counts
    only what is in use there."""
    driver = ctypes.CDLL("libcuda.so.1")
    pool, forever = ctypes.c_void_p(), ctypes.c_uint64(2**64 - 1)
    pinned, on_device, release_threshold = 1, 1, 4
    wanted = PoolProperties(pinned, 0, on_device, torch.cuda.current_device(), None, most_bytes)
    torch.cuda.synchronize()
    for status in (
        driver.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(wanted)),
        driver.cuMemPoolSetAttribute(pool, release_threshold, ctypes.byref(forever)),
        driver.cuDeviceSetMemPool(torch.cuda.current_device(), pool),
    ):
        if status != 0:
            sys.exit(f"the driver's pool cannot be limited: {status}")


def limit_pytorch(most_bytes: int) -> None:
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        limit_the_drivers_pool(most_bytes)
    else:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, most_bytes / total))


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class WaitingState:
    """The optimizer's state, in pinned memory of the host between steps: on the device only while
    it is used. As trainers do that offload it; PyTorch has nothing of the kind."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.hosts: dict[tuple[torch.Tensor, str], torch.Tensor] = {}

    def tensors(self) -> list[tuple[dict[str, torch.Tensor], str, torch.Tensor]]:
        """Each with the state that it belongs to and its name there; counters stay on the host."""
        return [
            (state, name, self.host_of(parameter, name, value))
            for parameter, state in self.optimizer.state.items()
            for name, value in state.items()
            if value.dim() > 0
        ]

    def host_of(self, parameter: torch.Tensor, name: str, value: torch.Tensor) -> torch.Tensor:
        key = (parameter, name)
        if key not in self.hosts:
            self.hosts[key] = torch.empty_like(value, device="cpu", pin_memory=True)
        return self.hosts[key]

    def fetch(self) -> None:
        for state, name, host in self.tensors():
            state[name] = host.to("cuda", non_blocking=True)

    def put_away(self) -> None:
        """In the stream's order: a device's copy is handed out again behind the way down."""
        for state, name, host in self.tensors():
            host.copy_(state[name], non_blocking=True)
            state[name] = host


class Training:
    """Model and optimizer, on the device."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.model = Model(options).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.waiting = WaitingState(self.optimizer) if options.offload_optimizer else None
        self.offload: bool = options.offload

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss. `ids`: on the device."""
        hooks: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if self.offload:
            hooks = torch.autograd.graph.save_on_cpu(pin_memory=True)
        with hooks, torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(ids)
            loss = functional.cross_entropy(
                logits[:, :-1].reshape(-1, VOCABULARY).float(), ids[:, 1:].reshape(-1)
            )
        del logits
        loss.backward()
        if self.waiting:
            self.waiting.fetch()
        self.optimizer.step()
        if self.waiting:
            self.waiting.put_away()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def train(options: argparse.Namespace) -> None:
    generator = torch.Generator().manual_seed(options.seed)
    training = Training(options)
    losses: list[torch.Tensor] = []
    ends: list[float] = []
    for step in range(options.warm_up + options.steps):
        losses.append(training.step(draw(options, generator).cuda()))
        if options.each or step in (options.warm_up - 1, options.warm_up + options.steps - 1):
            torch.cuda.synchronize()
            ends.append(time.perf_counter())
    measured = ends[-1] - (ends[-options.steps - 1] if options.each else ends[0])
    each = [after - before for before, after in zip(ends, ends[1:])]  # noqa: B905
    say(
        event="end",
        losses=[float(loss.item()).hex() for loss in losses],
        steps_per_s=options.steps / measured,
        each_s=each[-options.steps :] if options.each else [],
        peak_live_bytes=0 if options.managed else torch.cuda.max_memory_allocated(),
        peak_reserved_bytes=0 if options.managed else torch.cuda.max_memory_reserved(),
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("--steps", type=int, default=10, help="that are measured")
    made.add_argument("--warm-up", type=int, default=3, help="steps before these, at least one")
    made.add_argument("--batch", type=int, default=8)
    made.add_argument("--length", type=int, default=512)
    made.add_argument("--width", type=int, default=512)
    made.add_argument("--layers", type=int, default=6)
    made.add_argument("--vary", action="store_true", help="shapes differ")
    made.add_argument("--checkpoint", action="store_true", help="recompute layers in backward")
    made.add_argument("--deterministic", action="store_true")
    made.add_argument("--offload", action="store_true", help="activations wait on the host")
    made.add_argument(
        "--offload-optimizer", action="store_true", help="its state waits on the host"
    )
    made.add_argument("--each", action="store_true", help="wait for each step and time it")
    made.add_argument("--allowed", type=int, default=0, help="most bytes that PyTorch may hold")
    made.add_argument("--managed", metavar="LIBRARY", default="", help="an allocator to load")
    made.add_argument("--seed", type=int, default=1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.deterministic:
        be_deterministic()
    if options.managed:
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            options.managed, "managed_malloc", "managed_free"
        )
        torch.cuda.memory.change_current_allocator(allocator)
    if options.allowed:
        limit_pytorch(options.allowed)
    train(options)


if __name__ == "__main__":
    main()
