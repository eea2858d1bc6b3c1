# SPDX-License-Identifier: Apache-2.0
"""An encoder-decoder in the manner of T5, lengths of source and target drawn for every batch.

The decoder attends to itself and to the encoder's output, whose length has nothing to do with its
own, so that sizes rarely repeat. Dropout everywhere, gradients clipped, one optimizer step a batch.
"""

from __future__ import annotations

import argparse

import torch
from job import Job, run
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head attention of one sequence to another, or to itself, on fused kernels."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
        key_value = self.key_value(seen).view(batch, seen.shape[1], 2, self.heads, -1)
        k, v = key_value.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        merged: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


class Layer(nn.Module):
    """Self-attention, in the decoder attention to the encoder as well, and a feed-forward part."""

    def __init__(self, options: argparse.Namespace, decoder: bool) -> None:
        super().__init__()
        width = options.width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, options.heads, causal=decoder)
        self.cross = Attention(width, options.heads, causal=False) if decoder else None
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.dropout(self.own(normed, normed))
        if self.cross is not None and memory is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory))
        wide = self.dropout(functional.relu(self.wide(self.norms[2](x))))
        y: torch.Tensor = x + self.dropout(self.narrow(wide))
        return y


class EncoderDecoder(nn.Module):
    """One embedding for source, target and head."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.token = nn.Embedding(options.vocabulary, options.width)
        self.encoder = nn.ModuleList(Layer(options, False) for _ in range(options.layers))
        self.decoder = nn.ModuleList(Layer(options, True) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.token(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.token(target)
        for layer in self.decoder:
            x = layer(x, memory)
        return functional.linear(self.norm(x), self.token.weight)


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    network = EncoderDecoder(options).to(job.device)
    job.say_model(network)
    model = job.parallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(options.steps):
        batch = number(max(options.batch // 2, 1), options.batch)
        source_length = number(options.source // 8, options.source)
        target_length = number(options.target // 8, options.target)
        source = torch.randint(options.vocabulary, (batch, source_length), generator=generator)
        target = torch.randint(options.vocabulary, (batch, target_length + 1), generator=generator)
        target = target.to(job.device)
        logits = model(source.to(job.device), target[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        job.say_step(batch=batch, source=source_length, target=target_length, loss=loss.item())
        del target, loss
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="most pairs in a batch")
    parser.add_argument("--source", type=int, default=512, help="most tokens of a source")
    parser.add_argument("--target", type=int, default=256, help="most tokens of a target")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("encoder_decoder", parse(), train)
