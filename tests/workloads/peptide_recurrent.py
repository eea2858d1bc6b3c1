# SPDX-License-Identifier: Apache-2.0
"""Workload 2: a recurrent peptide model with a loss that renders spectra (24 GB GPU).

A state of peptide positions is refined by the same layers again and again, 8 supervision times 6
latent steps, all kept for backward. After each supervision the predicted peaks are rendered as
Gaussians over all bins, [batch, peaks, bins], and compared with the measured spectrum. Weights are
bfloat16, and a moving average of them is kept.
"""

from __future__ import annotations

import argparse
import copy

import torch
from attention import Stack
from job import Job, run
from torch import nn
from torch.nn import functional

AMINO_ACIDS = 24


class PeptideModel(nn.Module):
    """Peaks are read once; the state attends to them and is refined in place of depth."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.latent_steps: int = options.latent_steps
        self.supervisions: int = options.supervisions
        self.read = nn.Linear(2, width)
        self.start = nn.Parameter(torch.zeros(options.positions, width))
        self.refine = Stack(options.layers, width, options.heads)
        self.letters = nn.Linear(width, AMINO_ACIDS)
        self.peaks = nn.Linear(width, 2 * options.peaks)

    def forward(self, spectrum: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """[batch, peaks, 2] to (letters, peaks) after each supervision."""
        x = self.read(spectrum)
        state = self.start.expand(spectrum.shape[0], -1, -1)
        results = []
        for _ in range(self.supervisions):
            for _ in range(self.latent_steps):
                seen = (state @ x.transpose(1, 2)).softmax(dim=-1) @ x
                state = self.refine(state + seen)
            peaks = self.peaks(state.mean(dim=1)).view(spectrum.shape[0], -1, 2)
            results.append((self.letters(state), peaks))
        return results


def render(peaks: torch.Tensor, centers: torch.Tensor, sigma: float) -> torch.Tensor:
    """[batch, peaks, 2] to the spectrum [batch, bins] that these peaks would show."""
    distance = (centers - peaks[..., :1].float()) / sigma
    shape = torch.exp(-0.5 * distance * distance)
    return (shape * peaks[..., 1:].float()).sum(dim=1)


def loss_of(
    results: list[tuple[torch.Tensor, torch.Tensor]],
    letters: torch.Tensor,
    measured: torch.Tensor,
    centers: torch.Tensor,
    options: argparse.Namespace,
) -> torch.Tensor:
    total = torch.zeros((), device=letters.device)
    for logits, peaks in results:
        total = total + functional.cross_entropy(
            logits.float().view(-1, AMINO_ACIDS), letters.view(-1)
        )
        if not options.no_spectrum_loss:
            rendered = render(peaks, centers, options.bin_width)
            total = total + 1 - functional.cosine_similarity(rendered, measured).mean()
    return total / len(results)


def train(job: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + job.rank)
    network = PeptideModel(options).to(job.device, torch.bfloat16)
    average = copy.deepcopy(network).requires_grad_(False)
    bins = round(options.range / options.bin_width)
    centers = (torch.arange(bins) * options.bin_width).to(job.device)
    job.say_model(network, average_bytes=sum(p.numel() * 2 for p in average.parameters()))
    model = job.parallel(network)
    if options.compile:
        model = torch.compile(model, backend=options.compile)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for _ in range(options.steps):
        spectrum = torch.rand((options.batch, options.peaks, 2), generator=generator)
        letters = torch.randint(
            0, AMINO_ACIDS, (options.batch, options.positions), generator=generator
        )
        measured = torch.rand((options.batch, bins), generator=generator).to(job.device)
        results = model(spectrum.to(job.device, torch.bfloat16))
        loss = loss_of(results, letters.to(job.device), measured, centers, options)
        loss.backward()
        optimizer.step()
        job.note_state(network, optimizer)
        optimizer.zero_grad()
        torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 0.001)
        job.say_step(batch=options.batch, bins=bins, loss=loss.item())
        del results, loss
    job.say_end(network)


def parse() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--peaks", type=int, default=100)
    parser.add_argument("--range", type=float, default=2000.0, help="of the spectrum, in dalton")
    parser.add_argument("--bin-width", type=float, default=0.1, help="in dalton")
    parser.add_argument("--positions", type=int, default=32, help="of the peptide")
    parser.add_argument("--supervisions", type=int, default=8)
    parser.add_argument("--latent-steps", type=int, default=6, help="between two supervisions")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--no-spectrum-loss", action="store_true")
    parser.add_argument(
        "--compile",
        nargs="?",
        const="inductor",
        metavar="BACKEND",
        help="use torch.compile, with this backend",
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    run("peptide_recurrent", parse(), train)
