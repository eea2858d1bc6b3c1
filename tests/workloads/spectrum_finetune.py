# SPDX-License-Identifier: Apache-2.0
"""Workload 3: fine-tuning of a spectrum transformer, training and validation in turn (two ranks).

Batches are small and the number of peaks differs between them; the cache is cleared after every
batch; a memory fraction is set. With --grow the results of every validation batch stay in a list
of metrics, on the device: the slow growth that ends such a run late in the night.
"""

from __future__ import annotations

import argparse

import torch
from attention import Stack
from job import Job, run
from torch import nn
from torch.nn import functional


class SpectrumTransformer(nn.Module):
    """Peaks in, a vector for each peak out, and a score for each class."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.read = nn.Linear(2, options.width)
        self.layers = Stack(options.layers, options.width, options.heads)
        self.head = nn.Linear(options.width, options.classes)

    def forward(self, peaks: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.layers(self.read(peaks)))
        return scores


def draw(
    options: argparse.Namespace, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    count = int(torch.randint(options.peaks // 5, options.peaks + 1, (), generator=generator))
    peaks = torch.rand((options.batch, count, 2), generator=generator)
    targets = torch.randint(0, options.classes, (options.batch, count), generator=generator)
    return peaks, targets


def score(model: nn.Module, peaks: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = model(peaks)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def validate(
    job: Job,
    model: nn.Module,
    options: argparse.Namespace,
    generator: torch.Generator,
    metrics: list[torch.Tensor],
) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(options.validation_batches):
            peaks, targets = draw(options, generator)
            logits = model(peaks.to(job.device))
            functional.cross_entropy(logits.flatten(0, 1), targets.to(job.device).flatten())
            if options.grow:
                metrics.append(logits)
            del logits
            torch.cuda.empty_cache()
    job.note_evaluation(options.validation_batches)
    model.train()


def train(job: Job, options: argparse.Namespace) -> None:
    if options.memory_fraction < 1:
        torch.cuda.set_per_process_memory_fraction(options.memory_fraction)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = SpectrumTransformer(options).to(job.device)
    job.say_model(network)
    model = job.parallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    metrics: list[torch.Tensor] = []
    for epoch in range(1, options.epochs + 1):
        for _ in range(options.batches):
            peaks, targets = draw(options, generator)
            loss = score(model, peaks.to(job.device), targets.to(job.device))
            loss.backward()
            optimizer.step()
            job.note_state(network, optimizer)
            optimizer.zero_grad()
            del loss
            torch.cuda.empty_cache()
        validate(job, model, options, generator, metrics)
        kept = sum(m.numel() * m.element_size() for m in metrics)
        job.say_step(epoch=epoch, metrics=len(metrics), metrics_bytes=kept)
    job.say_end(network, metrics=len(metrics))


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batches", type=int, default=20, help="training batches an epoch")
    parser.add_argument("--validation-batches", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--peaks", type=int, default=100, help="most peaks of a spectrum")
    parser.add_argument("--classes", type=int, default=4096)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--memory-fraction", type=float, default=0.95, help="1: none is set")
    parser.add_argument("--grow", action="store_true", help="keep validation results")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("spectrum_finetune", parse(), train)
