# SPDX-License-Identifier: Apache-2.0
"""Workload 4: a 512 M parameter language model, data parallel (four ranks, 44 GB GPUs).

Weights and gradients are bfloat16; the optimizer works on float32 master copies. With --save a
checkpoint is written at the end, with --resume one is loaded at the start, straight to the device,
so that the state exists twice for a moment.
"""

from __future__ import annotations

import argparse

import torch
from attention import FusedLayer
from job import Job, run, tensor_bytes
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class LanguageModel(nn.Module):
    """A GPT whose head shares its weights with the embedding."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.checkpointing: bool = options.checkpoint
        self.token = nn.Embedding(options.vocabulary, options.width)
        self.position = nn.Embedding(options.length, options.width)
        self.layers = nn.ModuleList(
            FusedLayer(options.width, options.heads) for _ in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        return functional.linear(self.norm(x), self.token.weight)


class MasterCopies:
    """Float32 copies of bfloat16 parameters, and the optimizer that works on them."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters: list[torch.Tensor] = list(model.parameters())
        self.copies = [p.detach().float().requires_grad_() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.copies, lr=3e-4, weight_decay=0.1)

    def step(self) -> None:
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            if parameter.grad is not None:
                copy.grad = parameter.grad.float()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.copies)

    def state(self) -> dict[str, object]:
        return {"copies": self.copies, "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, object]) -> None:
        copies = state["copies"]
        assert isinstance(copies, list)
        with torch.no_grad():
            torch._foreach_copy_(self.copies, copies)
        optimizer = state["optimizer"]
        assert isinstance(optimizer, dict)
        self.optimizer.load_state_dict(optimizer)


def resume(job: Job, path: str, network: nn.Module, masters: MasterCopies) -> None:
    state = torch.load(path, map_location=job.device)
    network.load_state_dict(state["model"])
    masters.load(state["masters"])
    job.say("resumed", max_allocated_bytes=torch.cuda.max_memory_allocated())
    del state
    torch.cuda.reset_peak_memory_stats()


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = LanguageModel(options).to(job.device, torch.bfloat16)
    masters = MasterCopies(network)
    job.say_model(network, master_bytes=tensor_bytes(masters.copies))
    if options.resume:
        resume(job, options.resume, network, masters)
    average = [p.detach().float() for p in network.parameters() if job.rank == options.average_on]
    model = job.parallel(network)
    shape = (options.micro_batch, options.length + 1)
    for _ in range(options.steps):
        for micro in range(options.accumulation):
            ids = torch.randint(0, options.vocabulary, shape, generator=generator).to(job.device)
            with job.accumulate(model, last=micro + 1 == options.accumulation):
                logits = model(ids[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
                (loss / options.accumulation).backward()
            del logits
        masters.step()
        job.note_state(network, masters.optimizer)
        if average:
            torch._foreach_lerp_(average, masters.copies, 0.001)
        network.zero_grad()
        job.say_step(loss=loss.item())
        del loss
    if options.save and job.rank == 0:
        torch.save({"model": network.state_dict(), "masters": masters.state()}, options.save)
    job.say_end(network, master_bytes=tensor_bytes(masters.copies))


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=2, help="optimizer steps")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--accumulation", type=int, default=64, help="micro batches a step")
    parser.add_argument("--checkpoint", action="store_true", help="recompute layers in backward")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--heads", type=int, default=20)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument(
        "--average-on", type=int, default=-1, metavar="RANK", help="it keeps a moving average"
    )
    parser.add_argument("--save", metavar="FILE", help="write a checkpoint at the end")
    parser.add_argument("--resume", metavar="FILE", help="load a checkpoint at the start")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("lm512m", parse(), train)
