# SPDX-License-Identifier: Apache-2.0
"""One small network in other people's loops and optimizers, with what each of them keeps counted.

`--loop` names the loop, `--optimizer` the optimizer. The last line of the output says how many
bytes of parameters, gradients and optimizer state are on the device, counted from their tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import settle  # noqa: F401
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 512
BUCKET = 4 << 20  # elements that DeepSpeed reduces at once


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Network(nn.Module):
    """As Transformers wants a model: called with names, it returns its loss first."""

    def __init__(self, layers: int = 4, leak: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.leak = leak
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.leak:
            self.kept.append(torch.zeros(2 << 20, device=x.device))
        for block in self.blocks:
            x = block(x)  # the model's line
        return {"loss": self.head(x).float().pow(2).mean()}


def bytes_of(tensors: Iterable[Any]) -> int:
    """Bytes on the device, each storage once."""
    seen: dict[int, int] = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if isinstance(local, torch.Tensor) and local.is_cuda:
            storage = local.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


def state_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [value for row in optimizer.state.values() for value in row.values()]


def paged_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Of paged tensors (bitsandbytes), which PyTorch takes for the host's."""
    paged = [value for value in state_of(optimizer) if getattr(value, "is_paged", False)]
    return sum(value.numel() * value.element_size() for value in paged)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """With what stands in lists (LBFGS), and with what is paged."""
    values = state_of(optimizer)
    inner = [value for each in values if isinstance(each, list) for value in each]
    return bytes_of([*values, *inner]) + paged_bytes(optimizer)


class Count:
    """What the loop holds after each of the optimizer's steps."""

    def __init__(self) -> None:
        self.updates = 0
        self.parameter_bytes = self.gradient_bytes = self.optimizer_bytes = self.paged_bytes = 0

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        def after(*_: object) -> None:
            self.updates += 1
            self.parameter_bytes = bytes_of(model.parameters())
            self.gradient_bytes = bytes_of(p.grad for p in model.parameters())
            self.optimizer_bytes = state_bytes(optimizer)
            self.paged_bytes = paged_bytes(optimizer)

        optimizer.register_step_post_hook(after)

    def say(self, **more: object) -> None:
        end = {"event": "end", "rank": int(os.environ.get("RANK", "0"))} | vars(self) | more
        sys.stdout.write(json.dumps(end) + "\n")
        sys.stdout.flush()


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=2, history_size=2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "muon": lambda p: torch.optim.Muon([q for q in p if q.ndim == 2], lr=1e-3),
}


def bitsandbytes(name: str) -> Callable[..., torch.optim.Optimizer]:
    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        import bitsandbytes

        found: torch.optim.Optimizer = getattr(bitsandbytes.optim, name)(parameters, lr=1e-4)
        return found

    return make


def optimizer_for(options: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    make = OPTIMIZERS.get(options.optimizer) or bitsandbytes(options.optimizer)
    return make(list(model.parameters()))


def data(options: argparse.Namespace) -> TensorDataset:
    return TensorDataset(torch.zeros(1, WIDTH).expand(options.batch * 100, WIDTH))


def plain(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    model = model.cuda()
    optimizer = optimizer_for(options, model)
    count.watch(model, optimizer)
    run = torch.compile(model) if options.compile else model
    for _ in range(options.steps):
        x = torch.zeros(options.batch, WIDTH).cuda()
        loss = run(x)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def closure(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    model = model.cuda()
    optimizer = optimizer_for(options, model)
    count.watch(model, optimizer)

    for _ in range(options.steps):
        x = torch.zeros(options.batch, WIDTH).cuda()

        def again(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x)["loss"]
            loss.backward()
            return loss

        optimizer.step(again)


def accelerate(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator()
    optimizer = optimizer_for(options, model)
    count.watch(model, optimizer)
    loader = DataLoader(data(options), batch_size=options.batch)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _, (x,) in zip(range(options.steps), loader, strict=False):
        accelerator.backward(model(x)["loss"])
        optimizer.step()
        optimizer.zero_grad()


def transformers(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    from transformers import Trainer, TrainingArguments

    rows = [{"x": torch.zeros(WIDTH)}] * (options.batch * 100)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=options.batch,
            max_steps=options.steps,
            report_to=[],
            max_grad_norm=1.0,
        )
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.create_optimizer()
        assert trainer.optimizer is not None
        count.watch(model, trainer.optimizer)
        trainer.train()


def lightning(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, rows: list[torch.Tensor], _number: int) -> Any:  # noqa: ANN401
            return self.model(rows[0])["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = optimizer_for(options, self)
            count.watch(self, optimizer)
            return optimizer

    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=options.steps,
            accelerator="gpu",
            devices=1,
            logger=False,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        trainer.fit(Module(), DataLoader(data(options), batch_size=options.batch))


def fsdp2(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    model = model.cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = optimizer_for(options, model)
    count.watch(model, optimizer)
    for _ in range(options.steps):
        model(torch.zeros(options.batch, WIDTH).cuda())["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    distributed.destroy_process_group()


def deepspeed(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    import deepspeed

    stage = options.stage
    settings = {
        "train_micro_batch_size_per_gpu": options.batch,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "reduce_bucket_size": BUCKET},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    for _ in range(options.steps):
        x = torch.zeros(options.batch, WIDTH, dtype=torch.bfloat16, device="cuda")
        engine.backward(engine(x)["loss"])
        engine.step()
        count.updates += 1
    inner = optimizer.optimizer
    count.parameter_bytes = bytes_of(
        [getattr(p, "ds_tensor", p.data) for p in engine.module.parameters()]
    )
    bucket = optimizer.ipg_buckets[torch.bfloat16].buffer
    if stage == 3:
        masters = optimizer.fp32_partitioned_groups_flat
        count.gradient_bytes = bytes_of([bucket, optimizer.grad_partitions_flat_buffer])
    else:
        masters = optimizer.single_partition_of_fp32_groups
        count.gradient_bytes = 2 * BUCKET  # made anew in each step
    count.optimizer_bytes = state_bytes(inner) + bytes_of(masters)


def inference(options: argparse.Namespace, count: Count, model: nn.Module) -> None:
    model = model.cuda().eval()
    with torch.inference_mode():
        for _ in range(options.steps):
            x = torch.zeros(options.batch, WIDTH).cuda()
            loss = model(x)["loss"]
            count.updates += 1
            del x, loss
    count.parameter_bytes = bytes_of(model.parameters())


LOOPS = {
    f.__name__: f
    for f in (plain, closure, accelerate, transformers, lightning, fsdp2, deepspeed, inference)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--loop", choices=sorted(LOOPS), default="plain")
    parser.add_argument("--optimizer", default="adamw", help="or a class of bitsandbytes.optim")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--stage", type=int, default=2, help="of DeepSpeed's ZeRO")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    parser.add_argument("--leak", action="store_true", help="the model keeps 8 MiB of each call")
    options = parser.parse_args()
    count = Count()
    LOOPS[options.loop](options, count, Network(leak=options.leak))
    count.say(peak_bytes=torch.cuda.max_memory_allocated() + count.paged_bytes)


if __name__ == "__main__":
    main()
