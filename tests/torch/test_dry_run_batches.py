# SPDX-License-Identifier: Apache-2.0
"""The batch that memshim dry-run --find-batch finds is the true one: on the simulated GPU of that
size, with contents on and without memshim, PyTorch completes with it, and runs out of memory with
the one that was found to be too large. Where it says that a job does not follow its batch, that
holds of each batch that ran. Of twenty jobs, with scripts/test.sh --all.

    python tests/torch/test_dry_run_batches.py NAME...

prints a line for each of these jobs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import unittest
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import harness

MIB = 1 << 20
GPT = ("gpt.py", "--steps", "3", "--layers", "2")
# Of the card that stands for a size, an H100: PyTorch's reductions take memory by processors, too.
CONTEXT_MIB, PROCESSORS = 520, 132


@dataclass(frozen=True)
class Job:
    words: Sequence[str]
    first: int = 8
    second: int = 16
    option: str = "--batch"


JOBS = {
    "gpt": Job(GPT),
    "gpt, bfloat16": Job((*GPT, "--autocast")),
    "gpt, recomputed": Job((*GPT, "--checkpoint")),
    "gpt, scores in memory": Job((*GPT, "--explicit-attention")),
    "gpt, lengths differ": Job((*GPT, "--vary")),
    "gpt, evaluated": Job((*GPT, "--evaluate-every", "2")),
    "unet": Job(("unet.py", "--steps", "4")),
    "detector": Job(("detector.py", "--steps", "4")),
    "encoder and decoder": Job(("encoder_decoder.py", "--steps", "3", "--layers", "2")),
    "gan": Job(("gan.py", "--steps", "3"), 32, 64),
    "experts": Job(("moe.py", "--steps", "2", "--layers", "2"), 4, 8),
    "asv": Job(("asv_transformer.py", "--steps", "2", "--accumulation", "2", "--tokens", "128")),
    "peptides": Job(("peptide_recurrent.py", "--steps", "2", "--supervisions", "2")),
    "lm": Job(
        ("lm512m.py", "--steps", "2", "--layers", "2", "--accumulation", "2"), 2, 4, "--micro-batch"
    ),
    **{
        f"transformers: {family}": Job(("families.py", family), first, 2 * first)
        for family, first in (
            *(("gpt2", 8), ("llama", 8), ("bert", 8), ("t5", 8)),
            *(("vit", 64), ("whisper", 8)),
        )
    },
}

# Their batches, lengths or resolutions are drawn anew in each step.
DRAWN = ("gan", "detector", "encoder and decoder", "gpt, lengths differ", "unet")


def dry_run(job: Job, *options: str) -> dict[str, Any]:
    batches = f"{job.option}={job.first},{job.second}"
    words = [str(harness.WORKLOADS / job.words[0]), *job.words[1:]]
    command = [harness.CLI, "dry-run", "--json", "--steps", "100000", "--batch-arg", batches]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, *words],
        env=harness.environment(),
        cwd=harness.new_cache(),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if not done.stdout:
        raise AssertionError(done.stderr[-4000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def choose_card(job: Job) -> int:
    """MiB of a card on which somewhat more than the second batch fits."""
    rows = dry_run(job)["batches"]
    if not all(row["known"] for row in rows):
        raise AssertionError(f"not measured: {rows}")
    first, second = (row["needs_bytes"]["torch"] for row in rows)
    each = (second - first) // (job.second - job.first)
    return int(second + each * (2 + job.second // 8)) // MIB + 3


def completes(job: Job, batch: int, card_mib: int) -> bool:
    run = harness.run_workload(
        *job.words,
        job.option,
        str(batch),
        SIMGPU_MEMORY=f"{card_mib}MiB",
        SIMGPU_CONTEXT=f"{CONTEXT_MIB}MiB",
        SIMGPU_CAPABILITY="9.0",
        SIMGPU_PROCESSORS=PROCESSORS,
    )
    # What is short may be short for cuBLAS, whose handle of the backward pass comes last.
    deaths = ("OutOfMemoryError", "ALLOC_FAILED")
    if run.status != 0 and not any(death in run.stderr for death in deaths):
        raise AssertionError(run.describe())
    return bool(run.status == 0)


@dataclass(frozen=True)
class Found:
    card_mib: int
    fits: dict[int, bool]  # what was said: of the one found and the one too large; or of all
    slower: list[int]  # those of its runs that fit with slower convolutions only
    follows: bool  # else there is no largest one
    runs: int
    true: bool


def compare(name: str) -> Found:
    job = JOBS[name]
    card_mib = choose_card(job)
    said = dry_run(job, "--gpu", f"{card_mib}MiB", "--find-batch")
    rows = {row["batch"]: row["fits"]["torch"] for row in said["batches"]}
    follows = said["follows_batch"]
    fits = {said["largest_batch"]: True, said["too_large_batch"]: False} if follows else rows
    slower = [row["batch"] for row in said["batches"] if row["slower"]["torch"]]
    true = all(completes(job, batch, card_mib) == good for batch, good in fits.items())
    return Found(card_mib, fits, slower, follows, len(rows), true)


@harness.needs_torch
@harness.thorough
class FoundBatches(unittest.TestCase):
    def test_they_are_the_true_ones(self) -> None:
        has_transformers = importlib.util.find_spec("transformers") is not None
        for name in JOBS:
            if has_transformers or not name.startswith("transformers"):
                with self.subTest(name):
                    found = compare(name)
                    self.assertTrue(found.true, found)
                    self.assertTrue(found.follows or name in DRAWN, found)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        unittest.main()
    for wanted in sys.argv[1:]:
        print(wanted, compare(wanted), flush=True)
