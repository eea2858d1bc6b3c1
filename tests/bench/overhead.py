# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch on the simulated GPU: what each workload costs under memshim and without it.

    .venv/bin/python tests/bench/overhead.py [--quick] [--json FILE]

For each workload and each configuration:

  overhead   smallest device memory (PyTorch alone) or limit (memshim) with which the workload
             completes with nothing on the host, over its peak live bytes; context and what others
             than PyTorch hold are subtracted in the same way from both. Found by bisection; since
             success is not monotone, sizes just below the smallest found are tried too
  reserved   most bytes reserved with ample memory, over peak live bytes
  calls      the driver's memory calls at a cap of 1.02 x peak live, in total and a step after the
             second; "-" where the workload does not complete there
  moves      mappings of chunks that existed before: mappings less creations, counted likewise;
             PyTorch alone does not map a chunk twice
  cpu        CPU milliseconds of the process a step after the second, memory ample: for each step
             the least of several runs, then the median over the steps
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
MIB = 1 << 20
GRANULE = 2 * MIB
CONTEXT_BYTES = 400 * MIB
AMPLE_BYTES = 48 << 30
CAP_RATIO = 1.02
TIMEOUT_S = 300
# What memshim says where it had no device memory left for a tensor.
ON_HOST = ("they lie in host memory", "whose memory could not be put back")


@dataclass(frozen=True)
class Workload:
    """A script of tests/workloads with options for a peak of 1 to 12 GiB and a few seconds."""

    name: str
    script: str
    arguments: str
    ranks: int = 1
    fixed: bool = False  # every step allocates the same


GPT = "--layers 8 --width 768 --heads 12 --length 1024 --vocabulary 16384"
WORKLOADS = (
    Workload("gpt-fixed", "gpt.py", f"{GPT} --batch 8 --steps 12", fixed=True),
    Workload("gpt-variable", "gpt.py", f"{GPT} --batch 12 --vary --steps 20"),
    Workload("gpt-evaluation", "gpt.py", f"{GPT} --batch 12 --vary --evaluate-every 3 --steps 20"),
    Workload("gpt-checkpoint", "gpt.py", f"{GPT} --batch 24 --vary --checkpoint --steps 20"),
    Workload(
        "gpt-explicit",
        "gpt.py",
        f"{GPT} --batch 8 --vary --explicit-attention --autocast --steps 20",
    ),
    Workload("gpt-fsdp2", "gpt.py", f"{GPT} --batch 8 --vary --sharding fsdp2 --steps 12", ranks=2),
    Workload("encoder-decoder", "encoder_decoder.py", "--batch 48 --steps 20"),
    Workload(
        "moe",
        "moe.py",
        "--layers 6 --length 1024 --vary --evaluate-every 4 --evaluation-factor 2 --steps 12",
    ),
    Workload("unet", "unet.py", "--steps 20"),
    Workload("detector", "detector.py", "--batch 32 --steps 24"),
    Workload("gan", "gan.py", "--batch 96 --steps 20"),
)
QUICK = ("gpt-fixed", "gpt-variable", "unet")


@dataclass(frozen=True)
class Configuration:
    """A way to run them. `guess` is where the search for the overhead ratio begins."""

    name: str
    environment: Mapping[str, str]
    shim: bool
    guess: float


CONFIGURATIONS = (
    Configuration("memshim native", {"MEMSHIM_TORCH": "native"}, True, 1.01),
    Configuration("memshim tensor", {"MEMSHIM_TORCH": "tensor"}, True, 1.01),
    Configuration(
        "pytorch native", {"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, False, 1.1
    ),
    Configuration(
        "pytorch expandable", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, False, 1.03
    ),
)


class BenchError(Exception):
    """Said to the user as it is."""


@dataclass(frozen=True)
class Run:
    """What one run of a workload left; where there are ranks, the most that one of them had."""

    completed: bool
    live_bytes: int = 0
    reserved_bytes: int = 0
    others_bytes: int = 0  # forwarded, or held by libraries: on the device and not PyTorch's
    on_host: bool = False  # a tensor stood on host memory, or on none
    calls: Sequence[Mapping[str, int]] = ()  # after each step, from the start
    step_cpu_s: Sequence[float] = ()
    step_wall_s: Sequence[float] = ()
    error: str = ""


def json_lines(path: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        return [json.loads(line) for line in path.read_text().splitlines() if line[:1] == "{"]
    return []


def last_words(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""
    return ""


class Worker:
    """A process with PyTorch loaded that runs workloads in one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.folder = tempfile.TemporaryDirectory(prefix="memshim-bench.")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SIMGPU_", "MEMSHIM_", "PYTORCH_", "LD_"))
        }
        environment = {
            **kept,
            **configuration.environment,
            "MEMSHIM_BUILD": str(BUILD),
            "MEMSHIM_VENV": os.environ.get("MEMSHIM_VENV", str(ROOT / ".venv")),
            "MEMSHIM_LOG": "warn",
            "MEMSHIM_REPORT_WAIT": "300",
            # Each worker tries the device itself: no figure depends on what earlier runs found out.
            "XDG_CACHE_HOME": str(self.own_cache()),
            "OMP_NUM_THREADS": "1",
            "SIMGPU_CONTENTS": "none",
            "SIMGPU_DEVICES": "2",
            "SIMGPU_MEMORY": str(AMPLE_BYTES),
            "SIMGPU_CONTEXT": str(CONTEXT_BYTES),
        }
        if configuration.shim:
            environment["LD_PRELOAD"] = str(BUILD / "libmemshim.so")
        self.process = subprocess.Popen(
            [str(ROOT / "scripts" / "simgpu.sh"), "python", str(ROOT / "tests/bench/worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def own_cache(self) -> Path:
        cache = Path(self.folder.name) / "cache"
        cache.mkdir()
        return cache

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def run(self, workload: Workload, limit_bytes: int | None = None, others_bytes: int = 0) -> Run:
        """One run, with this much for PyTorch and its pool; without a limit, with plenty."""
        with tempfile.TemporaryDirectory(dir=self.folder.name) as name:
            return self.run_in(Path(name), workload, limit_bytes, others_bytes)

    def run_in(
        self,
        folder: Path,
        workload: Workload,
        limit_bytes: int | None = None,
        others_bytes: int = 0,
    ) -> Run:
        """As run; leaves what each rank said, and memshim's folders, in that folder."""
        environment = {"MEMSHIM_OUTPUT": str(folder / "memshim")}
        available = None
        if limit_bytes is not None and self.configuration.shim:
            environment["MEMSHIM_LIMIT"] = str(limit_bytes + others_bytes + CONTEXT_BYTES)
        elif limit_bytes is not None:
            available = limit_bytes + others_bytes
        statuses = self.ask(
            script=workload.script,
            arguments=workload.arguments.split(),
            ranks=workload.ranks,
            environment=environment,
            available_bytes=available,
            folder=str(folder),
            timeout_s=TIMEOUT_S,
        )
        ranks = [json_lines(folder / f"rank{rank}.out") for rank in range(workload.ranks)]
        if any(statuses):
            failed = next(rank for rank, status in enumerate(statuses) if status)
            return Run(False, error=last_words(folder / f"rank{failed}.err"))
        said = "".join((folder / f"rank{rank}.err").read_text() for rank in range(workload.ranks))
        run = self.result(ranks, sorted((folder / "memshim/latest").glob("*/report.json")))
        return replace(run, on_host=any(words in said for words in ON_HOST))

    def ask(self, **request: object) -> list[int]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise BenchError(f"the worker for {self.configuration.name} ended by itself")
        statuses: list[int] = json.loads(answer)["statuses"]
        return statuses

    @staticmethod
    def of(rank: Sequence[dict[str, Any]], event: str) -> list[dict[str, Any]]:
        return [line for line in rank if line["event"] == event]

    def result(self, ranks: Sequence[Sequence[dict[str, Any]]], reports: Sequence[Path]) -> Run:
        steps = [self.of(rank, "step") for rank in ranks]
        driver = [self.of(rank, "driver") for rank in ranks]
        ends = [line for rank in ranks for line in self.of(rank, "end")]
        cpu = [line["cpu_seconds"] for line in steps[0]]
        wall = [line["seconds"] for line in steps[0]]
        common: dict[str, Any] = {
            "completed": True,
            "calls": [line["calls"] for line in driver[0]],
            "step_cpu_s": [after - before for before, after in zip(cpu, cpu[1:], strict=False)],
            "step_wall_s": [after - before for before, after in zip(wall, wall[1:], strict=False)],
        }
        if not self.configuration.shim:
            return Run(
                **common,
                live_bytes=max(end["max_allocated_bytes"] for end in ends),
                reserved_bytes=max(end["max_reserved_bytes"] for end in ends),
                others_bytes=max(
                    after["used_bytes"] - CONTEXT_BYTES - step["reserved_bytes"]
                    for rank_driver, rank_steps in zip(driver, steps, strict=True)
                    for after, step in zip(rank_driver, rank_steps, strict=True)
                ),
            )
        if len(reports) != len(ranks):
            raise BenchError(f"{len(reports)} reports of {len(ranks)} processes")
        devices = [json.loads(path.read_text())["devices"][0] for path in reports]
        return Run(
            **common,
            live_bytes=max(device["peak_live_bytes"] for device in devices),
            reserved_bytes=max(device["peak_reserved_bytes"] for device in devices),
            others_bytes=max(
                device["peak"]["charged_bytes"] - device["peak"]["reserved_bytes"] - CONTEXT_BYTES
                for device in devices
            ),
        )


def smallest(
    completes: Callable[[int], bool],
    live_bytes: int,
    guess: float,
    tolerance_bytes: int,
    neighbours: int,
) -> int:
    """The least multiple of 2 MiB, within the tolerance, with which it completes.

    Nothing below live_bytes can; that is not tried. From there the first guess is widened until it
    completes, then halved; at last sizes just below the smallest are tried, and if one completes
    the search goes on from there.
    """

    def aligned(size: float) -> int:
        return math.ceil(size / GRANULE) * GRANULE

    fails = aligned(live_bytes) - GRANULE
    works = aligned(live_bytes * guess)
    while not completes(works):
        fails = works
        works = aligned(live_bytes + 2 * (works - live_bytes) + GRANULE)
        if works > 8 * live_bytes:
            raise BenchError("it does not complete with eight times its live bytes")
    while True:
        while works - fails > tolerance_bytes:
            middle = aligned((works + fails) / 2)
            if middle >= works:
                break
            if completes(middle):
                works = middle
            else:
                fails = middle
        below = [fails - (i + 1) * tolerance_bytes for i in range(neighbours)]
        found = [size for size in map(aligned, below) if size >= live_bytes and completes(size)]
        if not found:
            return works
        works = min(found)
        fails = max(works - 2 * tolerance_bytes, aligned(live_bytes) - GRANULE)


@dataclass
class Row:
    """One workload in one configuration."""

    workload: str
    configuration: str
    live_bytes: int = 0
    overhead_ratio: float | None = None
    overhead_bytes: int | None = None
    reserved_ratio: float | None = None
    others_bytes: int = 0
    calls: int | None = None
    calls_per_step: float | None = None
    moves: int | None = None
    moves_per_step: float | None = None
    cpu_ms_per_step: float | None = None
    runs: int = 0
    problem: str = ""
    ample_calls: Mapping[str, int] = field(default_factory=dict)


def count_calls(calls: Mapping[str, int]) -> int:
    return sum(calls.values())


def count_moves(calls: Mapping[str, int]) -> int:
    return calls["map"] - calls["create"]


def per_step(run: Run, count: Callable[[Mapping[str, int]], int]) -> float:
    """After the second step."""
    return (count(run.calls[-1]) - count(run.calls[1])) / (len(run.calls) - 2)


def cpu_ms(runs: Sequence[Run]) -> float:
    """step_cpu_s begins with the second step; that one is left out."""
    least = [min(times) for times in zip(*(run.step_cpu_s[1:] for run in runs), strict=True)]
    return float(1000 * statistics.median(least))


class Bench:
    """Workers for all configurations, so that their runs can take turns."""

    def __init__(self, workers: Sequence[Worker], options: argparse.Namespace) -> None:
        self.workers = workers
        self.repeats: int = options.repeats
        self.relative_tolerance: float = options.tolerance
        self.neighbours = 0 if options.quick else 2

    def measure(self, workload: Workload) -> Iterator[Row]:
        runs: dict[str, list[Run]] = {worker.configuration.name: [] for worker in self.workers}
        for _ in range(self.repeats):
            for worker in self.workers:
                runs[worker.configuration.name].append(worker.run(workload))
        for worker in self.workers:
            row = Row(workload.name, worker.configuration.name)
            try:
                self.fill(row, worker, workload, runs[worker.configuration.name])
            except BenchError as error:
                row.problem = str(error)
            yield row

    def fill(self, row: Row, worker: Worker, workload: Workload, ample: Sequence[Run]) -> None:
        for run in ample:
            if not run.completed:
                raise BenchError(f"with ample memory: {run.error}")
        live, others = ample[0].live_bytes, ample[0].others_bytes
        row.live_bytes, row.others_bytes, row.runs = live, others, len(ample)
        row.reserved_ratio = ample[0].reserved_bytes / live
        row.cpu_ms_per_step = cpu_ms(ample)
        row.ample_calls = ample[0].calls[-1]
        capped = worker.run(workload, math.ceil(live * CAP_RATIO / GRANULE) * GRANULE, others)
        row.runs += 1
        if capped.completed and not capped.on_host:
            row.calls = count_calls(capped.calls[-1])
            row.calls_per_step = per_step(capped, count_calls)
            row.moves, row.moves_per_step = 0, 0
            if worker.configuration.shim:
                row.moves = count_moves(capped.calls[-1])
                row.moves_per_step = per_step(capped, count_moves)

        def completes(limit_bytes: int) -> bool:
            row.runs += 1
            run = worker.run(workload, limit_bytes, others)
            return run.completed and not run.on_host

        tolerance = max(GRANULE, int(live * self.relative_tolerance) // GRANULE * GRANULE)
        guess = min(worker.configuration.guess, row.reserved_ratio)
        row.overhead_bytes = smallest(completes, live, guess, tolerance, self.neighbours)
        row.overhead_ratio = row.overhead_bytes / live


HEADINGS = (
    f"{'workload':<16}{'configuration':<20}{'live GiB':>9}{'overhead':>9}{'reserved':>9}"
    f"{'calls':>8}{'a step':>8}{'moves':>7}{'a step':>8}{'cpu ms':>8}"
)


def cell(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def line_of(row: Row) -> str:
    return (
        f"{row.workload:<16}{row.configuration:<20}{row.live_bytes / 2**30:>9.2f}"
        f"{cell(row.overhead_ratio, 9, 3)}{cell(row.reserved_ratio, 9, 3)}"
        f"{cell(row.calls, 8, 0)}{cell(row.calls_per_step, 8, 1)}"
        f"{cell(row.moves, 7, 0)}{cell(row.moves_per_step, 8, 1)}{cell(row.cpu_ms_per_step, 8, 1)}"
        + (f"  {row.problem}" if row.problem else "")
    )


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The worst and the median overhead of each configuration."""
    for name in dict.fromkeys(row.configuration for row in rows):
        ratios = [r.overhead_ratio for r in rows if r.configuration == name and r.overhead_ratio]
        if ratios:
            yield (
                f"{name:<20}overhead: worst {max(ratios):.3f}, "
                f"median {statistics.median(ratios):.3f}, of {len(ratios)} workloads"
            )


def pick(names: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """The known names that were asked for, all of them where none was."""
    for name in names:
        if name not in known:
            raise BenchError(f"there is no {what} '{name}'; known: {', '.join(known)}")
    return [name for name in known if not names or name in names]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="three workloads, coarse, one run each"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument("--workloads", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--configurations", nargs="+", default=[], metavar="NAME")
    parser.add_argument(
        "--repeats", type=int, default=0, help="runs for the CPU time (3; quick: 1)"
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="of the ratios (0.002; quick: 0.01)"
    )
    options = parser.parse_args()
    if not 0 <= options.tolerance < 1:
        parser.error("--tolerance takes a fraction")
    options.tolerance = options.tolerance or (0.01 if options.quick else 0.002)
    if options.repeats < 0:
        parser.error("--repeats takes a number of 1 or more")
    options.repeats = options.repeats or (1 if options.quick else 3)
    return options


def measure_all(options: argparse.Namespace) -> list[Row]:
    if not (BUILD / "libmemshim.so").exists():
        raise BenchError(f"{BUILD} has no libmemshim.so; build memshim, or set MEMSHIM_BUILD")
    wanted = options.workloads or (QUICK if options.quick else [])
    workloads = pick(wanted, [workload.name for workload in WORKLOADS], "workload")
    configurations = pick(
        options.configurations, [each.name for each in CONFIGURATIONS], "configuration"
    )
    rows = []
    print(HEADINGS, flush=True)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(each))
            for each in CONFIGURATIONS
            if each.name in configurations
        ]
        bench = Bench(workers, options)
        for workload in WORKLOADS:
            if workload.name in workloads:
                for row in bench.measure(workload):
                    rows.append(row)
                    print(line_of(row), flush=True)
    print(*summary(rows), sep="\n")
    return rows


def main() -> None:
    options = parse()
    try:
        rows = measure_all(options)
    except BenchError as error:
        sys.exit(f"overhead.py: {error}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
