# SPDX-License-Identifier: Apache-2.0
"""Records the workloads' traces again: tests/traces/NAME.csv.gz, and tests/traces/README.md.

    .venv/bin/python tests/bench/record.py [NAME...]

Each workload of overhead.py runs once under memshim in native mode, memory ample, on the simulated
GPU. The trace is written as the CSV that `memshim replay` reads, with a line `step` where a step of
the training ends. Call sites are left out but for the traces named NAME-sites, where they are
numbers: what is spilled is chosen by them. Of several ranks each has a trace of its own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from overhead import (
    BUILD,
    CONFIGURATIONS,
    GPT,
    ROOT,
    WORKLOADS,
    BenchError,
    Worker,
    Workload,
    json_lines,
    pick,
)

TRACES = ROOT / "tests" / "traces"
MOST_BYTES = 8 << 20

# Recorded with their call sites.
SITES = (
    Workload("gpt-fixed-sites", "gpt.py", f"{GPT} --batch 8 --steps 12", fixed=True),
    Workload("unet-fixed-sites", "unet.py", "--sizes 192 --steps 12", fixed=True),
    Workload("gpt-variable-sites", "gpt.py", f"{GPT} --batch 12 --vary --steps 20"),
    Workload("encoder-decoder-sites", "encoder_decoder.py", "--batch 48 --steps 20"),
    Workload("moe-sites", "moe.py", "--layers 6 --length 1024 --steps 12", fixed=True),
)


@dataclass(frozen=True)
class Trace:
    """A recorded run of one rank."""

    name: str
    workload: Workload
    rank: int


def traces_of(workload: Workload) -> list[Trace]:
    if workload.ranks == 1:
        return [Trace(workload.name, workload, 0)]
    return [Trace(f"{workload.name}-rank{rank}", workload, rank) for rank in range(workload.ranks)]


def with_steps(rows: Iterable[str], births: Sequence[int], sites: bool) -> Iterator[str]:
    """The rows, with or without their sites, and `step` after each of these numbers of births."""
    ends = iter(births)
    end = next(ends, None)
    seen = 0
    for number, row in enumerate(rows):
        fields = row.split(",")
        if number and fields[1] == "born":
            while end is not None and seen == end:
                yield ",step" + "," * (len(fields) - 2)
                end = next(ends, None)
            seen += 1
        if number and not sites:
            fields[5] = ""
        yield ",".join(fields)


def csv_of(folder: Path) -> list[str]:
    """A process's trace as CSV."""
    result = subprocess.run(
        [BUILD / "memshim", "replay", folder, "--to-csv", "-"], capture_output=True, text=True
    )
    if result.returncode != 0:
        raise BenchError(f"memshim replay --to-csv: {result.stderr.strip()}")
    return result.stdout.splitlines()


def record(worker: Worker, workload: Workload, sites: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="memshim-record.") as name:
        folder = Path(name)
        run = worker.run_in(folder, workload)
        if not run.completed:
            raise BenchError(f"{workload.name}: {run.error}")
        processes = sorted((folder / "memshim/latest").glob("*/"))
        for trace, process in zip(traces_of(workload), processes, strict=True):
            said = worker.of(json_lines(folder / f"rank{trace.rank}.out"), "driver")
            rows = with_steps(csv_of(process), [line["births"] for line in said], sites)
            text = "\n".join(rows) + "\n"
            path = TRACES / f"{trace.name}.csv.gz"
            # No time and no name in it: the same run gives the same file.
            path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes", flush=True)


def read_me() -> str:
    lines = [
        "# Recorded runs",
        "",
        "What PyTorch did with the simulated GPU's memory while scripts of `tests/workloads/` ran",
        "under memshim in native mode with ample memory: segments and pages as PyTorch asked for",
        "them, and every tensor in them. `memshim replay` runs them through the pool once more.",
        "`.venv/bin/python tests/bench/record.py` makes them again, and this list.",
        "",
        "| trace | made by `memshim run --` |",
        "|---|---|",
    ]
    for workload in (*WORKLOADS, *SITES):
        for trace in traces_of(workload):
            start = (
                "python" if workload.ranks == 1 else f"torchrun --nproc-per-node {workload.ranks}"
            )
            command = f"{start} tests/workloads/{workload.script} {workload.arguments}"
            lines.append(f"| `{trace.name}.csv.gz` | `{command}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    try:
        all_names = [workload.name for workload in (*WORKLOADS, *SITES)]
        names = pick(sys.argv[1:], all_names, "workload")
        TRACES.mkdir(exist_ok=True)
        native = next(each for each in CONFIGURATIONS if each.name == "memshim native")
        for workloads, stacks in ((WORKLOADS, "off"), (SITES, "full")):
            wanted = [workload for workload in workloads if workload.name in names]
            environment = {**native.environment, "MEMSHIM_STACKS": stacks}
            with Worker(replace(native, environment=environment)) as worker:
                for workload in wanted:
                    record(worker, workload, workloads is SITES)
    except BenchError as error:
        sys.exit(f"record.py: {error}")
    (TRACES / "README.md").write_text(read_me())
    size = sum(path.stat().st_size for path in TRACES.glob("*.csv.gz"))
    print(f"{size} bytes in all")
    if size > MOST_BYTES:
        sys.exit(f"record.py: that is more than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
