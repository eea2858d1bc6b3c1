# SPDX-License-Identifier: Apache-2.0
"""Workload 1: pre-training of a three-stage transformer over DNA sequence variants (24 GB GPU).

A sample is a set of sequences ("tokens") of some bases each. The first stage reads the bases of
every sequence, [batch x tokens, bases, width]; the second the sequences of a sample, [batch,
tokens, width]; the third stands on top of it. Attention is explicit, so its score matrices exist:
with the default shapes 0.74 GB in each layer of the first stage. Runs alone or under torchrun.
"""

from __future__ import annotations

import argparse

import torch
from attention import Stack
from job import Job, run
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BASES = 6  # A, C, G, T, unknown, masked


class AsvTransformer(nn.Module):
    """Base encoder, sample encoder and encoder on top, with a head for each task."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, heads, layers = options.width, options.heads, options.layers
        self.chunk_size: int = options.asv_chunk_size
        self.checkpoint_chunks: bool = options.checkpoint_chunks
        self.base = nn.Embedding(BASES, width)
        self.position = nn.Parameter(torch.zeros(options.bases, width))
        self.base_encoder = Stack(layers, width, heads)
        self.sample_encoder = Stack(layers, width, heads)
        self.encoder = Stack(layers, width, heads)
        self.base_head = nn.Linear(width, BASES)
        self.count_head = nn.Linear(width, 1)

    def embed(self, sequences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, bases] to a vector of each sequence and the logits of its bases."""
        x = self.base_encoder(self.base(sequences) + self.position)
        return x.mean(dim=1), self.base_head(x)

    def embed_all(self, sequences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.chunk_size:
            return self.embed(sequences)
        vectors, logits = [], []
        for chunk in torch.split(sequences, self.chunk_size):
            if self.checkpoint_chunks:
                vector, logit = checkpoint(self.embed, chunk, use_reentrant=False)
            else:
                vector, logit = self.embed(chunk)
            vectors.append(vector)
            logits.append(logit)
        return torch.cat(vectors), torch.cat(logits)

    def forward(
        self, sequences: torch.Tensor, padding: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, tokens, bases = sequences.shape
        vectors, logits = self.embed_all(sequences.view(batch * tokens, bases))
        mask = padding[:, None, None, :]
        sample = self.sample_encoder(vectors.view(batch, tokens, -1), mask)
        return logits, self.count_head(self.encoder(sample, mask)).squeeze(-1)


def draw_batch(
    options: argparse.Namespace, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sequences, padding and counts of one micro batch, on the host."""
    most = min(options.tokens, options.token_limit or options.tokens)
    if options.vary:
        least = max(1, most // 4)
        lengths = torch.randint(least, most + 1, (options.batch,), generator=generator)
    else:
        lengths = torch.full((options.batch,), most)
    longest = int(lengths.max())
    sequences = torch.randint(
        0, BASES - 2, (options.batch, longest, options.bases), generator=generator
    )
    padding = torch.arange(longest)[None, :] >= lengths[:, None]
    counts = torch.rand((options.batch, longest), generator=generator)
    return sequences, padding, counts


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = AsvTransformer(options).to(job.device)
    job.say_model(network)
    model = job.parallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(options.steps):
        tokens = 0
        loss_sum = 0.0
        for micro in range(options.accumulation):
            sequences, padding, counts = draw_batch(options, generator)
            tokens += sequences.shape[1]
            targets = sequences.to(job.device)
            with job.accumulate(model, last=micro + 1 == options.accumulation):
                logits, predicted = model(targets, padding.to(job.device))
                loss = functional.cross_entropy(logits.view(-1, BASES), targets.view(-1))
                loss = loss + functional.mse_loss(predicted, counts.to(job.device))
                (loss / options.accumulation).backward()
            loss_sum += loss.item() / options.accumulation
        optimizer.step()
        job.note_state(network, optimizer)
        optimizer.zero_grad(set_to_none=not options.keep_gradients)
        job.say_step(tokens=tokens, loss=loss_sum)
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps")
    parser.add_argument("--accumulation", type=int, default=16, help="micro batches a step")
    parser.add_argument("--batch", type=int, default=2, help="samples in a micro batch")
    parser.add_argument("--tokens", type=int, default=1024, help="most sequences in a sample")
    parser.add_argument("--token-limit", type=int, default=0, help="cut samples at this many")
    parser.add_argument("--bases", type=int, default=150, help="bases of a sequence")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4, help="layers in each of three stages")
    parser.add_argument(
        "--asv-chunk-size", type=int, default=0, help="sequences read at a time (0: all)"
    )
    parser.add_argument(
        "--checkpoint-chunks", action="store_true", help="recompute each chunk in backward"
    )
    parser.add_argument(
        "--vary", action="store_true", help="the number of sequences differs between samples"
    )
    parser.add_argument(
        "--keep-gradients", action="store_true", help="zero gradients instead of dropping them"
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("asv_transformer", parse(), train)
