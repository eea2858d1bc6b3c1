# SPDX-License-Identifier: Apache-2.0
"""A Llama of 7 B parameters, built on the meta device and sharded over the ranks (FSDP2).

No rank ever holds the whole model: each layer is sharded while it has no memory, and what is this
rank's share of it is made on the device. bfloat16 compute on float32 shards, checkpointed layers.
"""

from __future__ import annotations

import argparse

import torch
from job import Job, run
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Causal attention on PyTorch's fused kernels, with fewer heads of keys where asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.heads, self.key_heads = options.heads, options.key_heads
        self.size = options.width // options.heads
        self.query = nn.Linear(options.width, options.width, bias=False)
        self.key = nn.Linear(options.width, self.size * self.key_heads, bias=False)
        self.value = nn.Linear(options.width, self.size * self.key_heads, bias=False)
        self.out = nn.Linear(options.width, options.width, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query = turn(self.query(x).view(batch, length, self.heads, self.size), turns)
        key = turn(self.key(x).view(batch, length, self.key_heads, self.size), turns)
        value = self.value(x).view(batch, length, self.key_heads, self.size)
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=self.key_heads != self.heads,
        )
        merged: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


def turn(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotary embedding: pairs of elements are turned by their token's angles."""
    first, second = x.float().chunk(2, dim=-1)
    cosine, sine = turns[0][: x.shape[1], None], turns[1][: x.shape[1], None]
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    return torch.cat(turned, dim=-1).to(x.dtype)


class Layer(nn.Module):
    """Attention, and a gated feed-forward part."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(options.width)
        self.attention = Attention(options)
        self.norm2 = nn.RMSNorm(options.width)
        self.gate = nn.Linear(options.width, options.inner, bias=False)
        self.up = nn.Linear(options.width, options.inner, bias=False)
        self.down = nn.Linear(options.inner, options.width, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), turns)
        y = self.norm2(x)
        z: torch.Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return z


class Llama(nn.Module):
    """Embedding, layers, and a head."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.checkpointing: bool = not options.no_checkpoint
        self.token = nn.Embedding(options.vocabulary, options.width)
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        x = self.token(ids)
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, turns, use_reentrant=False)
            else:
                x = layer(x, turns)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def angles(options: argparse.Namespace, device: torch.device) -> torch.Tensor:
    half = options.width // options.heads // 2
    speeds = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.outer(torch.arange(options.length, dtype=torch.float32), speeds)
    return torch.stack((angle.cos(), angle.sin())).to(device)


def build(job: Job, options: argparse.Namespace) -> Llama:
    with torch.device("meta"):
        model = Llama(options)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if job.distributed:
        for layer in model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    model.to_empty(device=job.device)
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
    return model


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    model = build(job, options)
    job.say_model(model)
    turns = angles(options, job.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    shape = (options.batch, options.length + 1)
    for _ in range(options.steps):
        ids = torch.randint(0, options.vocabulary, shape, generator=generator).to(job.device)
        logits = model(ids[:, :-1], turns)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
        job.note_state(model, optimizer)
        optimizer.zero_grad()
        job.say_step(loss=loss.item())
    job.say_end(model)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096, help="tokens in a sequence")
    parser.add_argument("--no-checkpoint", action="store_true", help="keep all activations")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=11008)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--key-heads", type=int, default=32)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("llama_fsdp", parse(), train)
