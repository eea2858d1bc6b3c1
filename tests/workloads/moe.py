# SPDX-License-Identifier: Apache-2.0
"""Workload 5: a mixture of experts of 100 M parameters (24 GB GPU, one or two ranks).

Every layer sends each token to one of eight experts; the shares differ in every step and layer.
float16 with loss scaling, checkpointed layers, and every few steps an evaluation with a larger
batch. Routing is drawn on the host, so that the sizes do not depend on the device's numbers.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

import torch
from attention import FusedAttention
from job import Job, run
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LOSS_SCALE = 1024.0

Routing = list[torch.Tensor]  # for each expert the numbers of its tokens, on the device


class Experts(nn.Module):
    """The feed-forward part: each token passes through the expert it was routed to."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(options.width, options.expert_width),
                nn.GELU(),
                nn.Linear(options.expert_width, options.width),
            )
            for _ in range(options.experts)
        )

    def forward(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        result = torch.zeros_like(tokens)
        for expert, mine in zip(self.experts, routing, strict=True):
            result = result.index_add(0, mine, expert(tokens[mine]).to(result.dtype))
        return result.view_as(x)


class MoeLayer(nn.Module):
    """Causal attention, then the experts."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.norm1 = nn.LayerNorm(width)
        self.attention = FusedAttention(width, options.heads)
        self.norm2 = nn.LayerNorm(width)
        self.experts = Experts(options)

    def forward(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y: torch.Tensor = x + self.experts(self.norm2(x), routing)
        return y


class MixtureOfExperts(nn.Module):
    """Embedding, layers with experts, and a head."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.checkpointing: bool = not options.no_checkpoint
        self.token = nn.Embedding(options.vocabulary, options.width)
        self.layers = nn.ModuleList(MoeLayer(options) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)

    def forward(self, ids: torch.Tensor, routing: list[Routing]) -> torch.Tensor:
        x = self.token(ids)
        for layer, mine in zip(self.layers, routing, strict=True):
            if self.checkpointing and self.training:
                x = checkpoint(layer, x, mine, use_reentrant=False)
            else:
                x = layer(x, mine)
        return functional.linear(self.norm(x), self.token.weight)


def draw_routing(
    options: argparse.Namespace, tokens: int, generator: torch.Generator, device: torch.device
) -> list[Routing]:
    """For each layer, which tokens go to which expert; some experts are far more popular."""
    layers = []
    for _ in range(options.layers):
        popularity = torch.rand(options.experts, generator=generator) ** 2 + 0.02
        chosen = torch.multinomial(popularity, tokens, replacement=True, generator=generator)
        layers.append(
            [(chosen == e).nonzero().flatten().to(device) for e in range(options.experts)]
        )
    return layers


def loss_of(
    job: Job,
    model: nn.Module,
    options: argparse.Namespace,
    generator: torch.Generator,
    batch: int,
) -> torch.Tensor:
    length = options.length
    if options.vary:
        length = int(torch.randint(length // 4, length + 1, (), generator=generator))
    ids = torch.randint(0, options.vocabulary, (batch, length + 1), generator=generator)
    routing = draw_routing(options, batch * length, generator, job.device)
    ids = ids.to(job.device)
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(ids[:, :-1], routing)
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def shard(
    job: Job, network: MixtureOfExperts, options: argparse.Namespace
) -> tuple[nn.Module, torch.optim.Optimizer]:
    if options.sharding == "fsdp2" and job.distributed:
        for layer in network.layers:
            fully_shard(layer)
        fully_shard(network)
        return network, torch.optim.AdamW(network.parameters(), lr=1e-4)
    # An expert that no token was sent to has no gradient in that step.
    model = job.parallel(network, find_unused_parameters=True)
    if options.sharding == "zero1" and job.distributed:
        return model, ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4
        )
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def scaled_step(
    loss: torch.Tensor, network: MixtureOfExperts, optimizer: torch.optim.Optimizer
) -> None:
    """A fixed scale: one that follows the gradients decides by numbers on the device, and ranks
    that decide differently wait for each other for ever."""
    (loss * LOSS_SCALE).backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    torch._foreach_mul_(gradients, 1 / LOSS_SCALE)
    optimizer.step()


@contextlib.contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = MixtureOfExperts(options).to(job.device)
    job.say_model(network, sharding=options.sharding)
    model, optimizer = shard(job, network, options)
    for step in range(1, options.steps + 1):
        loss = loss_of(job, model, options, generator, options.batch)
        scaled_step(loss, network, optimizer)
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        job.say_step(loss=loss.item())
        del loss
        if options.evaluate_every and step % options.evaluate_every == 0:
            with evaluation(model):
                batch = options.batch * options.evaluation_factor
                loss_of(job, model, options, generator, batch)
            job.note_evaluation(batches=1)
            job.say("evaluation", max_allocated_bytes=torch.cuda.max_memory_allocated())
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--length", type=int, default=256, help="of a sequence, up to 2048")
    parser.add_argument("--vary", action="store_true", help="lengths differ between steps")
    parser.add_argument("--evaluate-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--evaluation-factor", type=int, default=1)
    parser.add_argument("--sharding", choices=("ddp", "zero1", "fsdp2"), default="ddp")
    parser.add_argument("--no-checkpoint", action="store_true", help="keep all activations")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=14)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--expert-width", type=int, default=608)
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("moe", parse(), train)
