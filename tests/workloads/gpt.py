# SPDX-License-Identifier: Apache-2.0
"""A small GPT with lengths and batches that differ from step to step.

Every switch that changes how PyTorch allocates is an option: checkpointing, autocast, evaluation
between steps, explicit or fused attention, and how several ranks share the work (DDP, ZeRO-1 or
FSDP2). Runs alone or under torchrun.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from attention import FusedLayer, Layer
from job import Job, run
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Gpt(nn.Module):
    """Embeddings, layers, and a head over the vocabulary."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.checkpointing: bool = options.checkpoint
        self.explicit: bool = options.explicit_attention
        self.token = nn.Embedding(options.vocabulary, options.width)
        self.position = nn.Embedding(options.length, options.width)
        kind = Layer if options.explicit_attention else FusedLayer
        self.layers = nn.ModuleList(
            kind(options.width, options.heads) for _ in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        places = torch.arange(length, device=ids.device)
        x = self.token(ids) + self.position(places)
        mask = places[None, :] > places[:, None] if self.explicit else None
        for layer in self.layers:
            if self.checkpointing and self.training:
                x = checkpoint(layer, x, mask, use_reentrant=False)
            else:
                x = layer(x, mask)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def draw(options: argparse.Namespace, generator: torch.Generator) -> torch.Tensor:
    """A batch of token numbers on the host."""
    length, batch = options.length, options.batch
    if options.vary:
        length = int(torch.randint(length // 4, length + 1, (), generator=generator))
        batch = int(torch.randint(1, batch + 1, (), generator=generator))
    return torch.randint(0, options.vocabulary, (batch, length), generator=generator)


def loss_of(model: nn.Module, ids: torch.Tensor, options: argparse.Namespace) -> torch.Tensor:
    context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if options.autocast:
        context = torch.autocast("cuda", dtype=torch.bfloat16)
    with context:
        logits = model(ids)
        return functional.cross_entropy(
            logits[:, :-1].reshape(-1, options.vocabulary), ids[:, 1:].reshape(-1)
        )


def shard(
    job: Job, network: Gpt, options: argparse.Namespace
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and optimizer, spread over the ranks in the way asked for."""
    if options.sharding == "fsdp2" and job.distributed:
        for layer in network.layers:
            fully_shard(layer)
        fully_shard(network)
        return network, torch.optim.AdamW(network.parameters(), lr=3e-4)
    model = job.parallel(network)
    if options.sharding == "zero1" and job.distributed:
        return model, ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=3e-4
        )
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def evaluate(job: Job, model: nn.Module, options: argparse.Namespace) -> None:
    model.eval()
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        ids = draw(options, generator).repeat(options.evaluation_factor, 1)
        loss_of(model, ids.to(job.device), options)
    job.note_evaluation(batches=1)
    model.train()


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = Gpt(options).to(job.device)
    job.say_model(network, sharding=options.sharding)
    model, optimizer = shard(job, network, options)
    for step in range(1, options.steps + 1):
        ids = draw(options, generator)
        loss = loss_of(model, ids.to(job.device), options)
        loss.backward()
        if options.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        job.say_step(batch=ids.shape[0], length=ids.shape[1], loss=loss.item())
        del loss
        if options.evaluate_every and step % options.evaluate_every == 0:
            evaluate(job, model, options)
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256, help="most tokens in a sequence")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vary", action="store_true", help="lengths and batches differ")
    parser.add_argument("--checkpoint", action="store_true", help="recompute layers in backward")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    parser.add_argument("--explicit-attention", action="store_true", help="scores in memory")
    parser.add_argument("--clip", type=float, default=0.0, help="clip the gradients' norm")
    parser.add_argument("--evaluate-every", type=int, default=0, metavar="STEPS")
    parser.add_argument(
        "--evaluation-factor", type=int, default=4, help="evaluation batch / training batch"
    )
    parser.add_argument("--sharding", choices=("ddp", "zero1", "fsdp2"), default="ddp")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("gpt", parse(), train)
