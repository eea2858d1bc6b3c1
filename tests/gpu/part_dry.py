# SPDX-License-Identifier: Apache-2.0
"""Part 12: ten jobs dry and real. `memshim dry-run` foretells what PyTorch allocates and reserves
on this card; PyTorch itself says what it did. Nine of ten have to be within the targets."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import CONF
from world import MIB, ROOT, Part, Skip, World, expect, main


@dataclass(frozen=True)
class Job:
    name: str
    words: tuple[str, ...]
    convolves: bool = False  # cuDNN's workspaces are foretold by a bound alone


JOBS = (
    Job("GPT", ("gpt.py", "--steps", "4")),
    Job("GPT, lengths vary", ("gpt.py", "--steps", "4", "--vary")),
    Job("GPT, checkpointed", ("gpt.py", "--steps", "4", "--checkpoint")),
    Job("GPT, bf16", ("gpt.py", "--steps", "4", "--autocast")),
    Job("GPT, explicit attention", ("gpt.py", "--steps", "4", "--explicit-attention")),
    Job("mixture of experts", ("moe.py", "--steps", "3", "--evaluate-every", "0")),
    Job("encoder and decoder", ("encoder_decoder.py", "--steps", "3")),
    Job("peptide model", ("peptide_recurrent.py", "--steps", "2", "--batch", "16")),
    Job("U-Net", ("unet.py", "--steps", "3"), convolves=True),
    Job("GAN", ("gan.py", "--steps", "3"), convolves=True),
)
# The same on both sides: what counts as allocated depends on how blocks are split.
ALLOCATOR: dict[str, Any] = {CONF: "expandable_segments:False"}
ALLOCATED, RESERVED = 0.01, 0.03
ENOUGH = 0.9  # of the jobs
LEAST_S = 15.0
REAL_AT_ONCE = 3
CARD = """
import torch
card = torch.cuda.get_device_properties(0)
print("name", card.name)
print("memory", card.total_memory)
print(f"capability {card.major}.{card.minor}")
print("processors", card.multi_processor_count)
"""


def describe_card(world: World) -> Path:
    """As `--gpu` takes it; of the context nothing is compared."""
    path = world.work / "card"
    said = world.run([world.need_python(), "-c", CARD], torch=True).check().stdout
    path.write_text(said + "context 512MiB\n")
    return path


def go_real(world: World, job: Job) -> dict[str, Any]:
    result = world.run(
        [world.need_python(), ROOT / "tests" / "workloads" / job.words[0], *job.words[1:]],
        torch=True,
        timeout_s=world.left_s(),
        SIMGPU_CONTENTS="none",
        **ALLOCATOR,
    )
    if result.lines("out_of_memory"):
        raise Skip("this card is too small for the job")
    end: dict[str, Any] = result.check().lines("end")[0]
    return end


def go_dry(world: World, card: Path, job: Job) -> dict[str, Any]:
    """The answer's one rank, and what the card's context was taken to be."""
    command: list[str | Path] = [world.cli, "dry-run", "--json", "--allow-writes"]
    command += ["--steps", "1000000", "--gpu", card, "--", world.need_python()]
    command += [ROOT / "tests" / "workloads" / job.words[0], *job.words[1:]]
    result = world.run(
        command,
        timeout_s=world.left_s(),
        SIMGPU_SHARED=None,
        SIMGPU_MEMORY=None,
        XDG_CACHE_HOME=world.work,
        OMP_NUM_THREADS=1,
        **ALLOCATOR,
    )
    answer = json.loads(result.check().stdout)
    rank: dict[str, Any] = answer["ranks"][0]
    rank["context_bytes"] = answer["cards"][0]["context_bytes"]
    # What the program itself said there, PyTorch's account of the same memory.
    said = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    rank["end"] = next(line for line in said if line.get("event") == "end")
    return rank


def share(foretold: int, real: int) -> float:
    return foretold / real - 1


def only(some: list[int], others: list[int]) -> str:
    left = sorted((Counter(some) - Counter(others)).elements(), reverse=True)
    return ", ".join(f"{size / MIB:g}" for size in left) or "none"


def compare(part: Part, job: Job, real: dict[str, Any], dry: dict[str, Any]) -> bool:
    """Whether it was foretold within the targets. The answer has what NVIDIA's libraries take
    beside PyTorch, of which PyTorch's own account on the card knows nothing."""
    beside = dry["peak_live_bytes"] - dry["end"]["max_allocated_bytes"]
    reserves = dry["needs_bytes"]["torch"] - dry["context_bytes"] - beside
    allocated = share(dry["peak_live_bytes"] - beside, real["max_allocated_bytes"])
    reserved = share(reserves, real["max_reserved_bytes"])
    name = f"dry/{job.name}"
    part.figure(f"{name}, libraries beside PyTorch, foretold", beside / MIB, "MiB")
    part.figure(f"{name}, allocated", real["max_allocated_bytes"] / MIB, "MiB")
    part.figure(f"{name}, allocated, foretold by", allocated * 100, "% more")
    part.figure(f"{name}, reserved, foretold by", reserved * 100, "% more")
    here, there = real["segment_bytes"], dry["end"]["segment_bytes"]
    part.answer(
        f"{name}: segments of PyTorch's, in MiB, that one side alone has at the end",
        f"the card: {only(here, there)}; the dry run: {only(there, here)}",
    )
    return abs(allocated) <= ALLOCATED and (job.convolves or abs(reserved) <= RESERVED)


def all_jobs(part: Part, card: Path) -> list[bool]:
    """Whether each that could be tried was foretold. Dry runs need processors alone, and so all go
    at once; of the real ones some share the card. The doubles of PyTorch's libraries are made by
    the first dry run, for which the others wait."""
    world = part.world
    right: list[bool] = []
    with (
        ThreadPoolExecutor(len(JOBS) if world.at_once > 1 else 1) as dry_threads,
        ThreadPoolExecutor(min(REAL_AT_ONCE, world.at_once)) as real_threads,
    ):
        dry = [dry_threads.submit(go_dry, world, card, job) for job in JOBS]
        real = [real_threads.submit(go_real, world, job) for job in JOBS]
        for job, went, foretold in zip(JOBS, real, dry, strict=True):
            with part.case(f"dry and real: {job.name}"):
                right.append(compare(part, job, went.result(), foretold.result()))
    return right


def run(part: Part) -> None:
    right: list[bool] = []
    with part.case("dry: the card is described"):
        part.world.need(LEAST_S)
        right = all_jobs(part, describe_card(part.world))
    with part.case("dry and real: nine of ten within 1 % allocated, 3 % reserved"):
        if not right:
            raise Skip("no job was tried")
        expect(sum(right) >= ENOUGH * len(right), f"{sum(right)} of {len(right)}")
        if len(right) < len(JOBS):
            raise Skip(f"{sum(right)} of {len(right)}; no time for the others")


if __name__ == "__main__":
    main(run)
