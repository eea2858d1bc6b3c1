"""Records the workloads' traces again: tests/traces/NAME.csv.gz, and tests/traces/README.md.

    .venv/bin/python tests/bench/record.py [NAME...]

Each workload of overhead.py runs once under memshim in native mode, memory ample, on the simulated
GPU. The trace is written as the CSV that `memshim replay` reads, call sites left out, with a line
`step` where a step of the training ends. Of several ranks each has a trace of its own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from overhead import (
    BUILD,
    CONFIGURATIONS,
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


def with_steps(rows: Iterable[str], births: Sequence[int]) -> Iterator[str]:
    """The rows without their sites, and `step` after each of these numbers of births."""
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
        if number:
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


def record(worker: Worker, workload: Workload) -> None:
    with tempfile.TemporaryDirectory(prefix="memshim-record.") as name:
        folder = Path(name)
        run = worker.run_in(folder, workload)
        if not run.completed:
            raise BenchError(f"{workload.name}: {run.error}")
        processes = sorted((folder / "memshim/latest").glob("*/"))
        for trace, process in zip(traces_of(workload), processes, strict=True):
            said = worker.of(json_lines(folder / f"rank{trace.rank}.out"), "driver")
            rows = with_steps(csv_of(process), [line["births"] for line in said])
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
    for workload in WORKLOADS:
        for trace in traces_of(workload):
            start = (
                "python" if workload.ranks == 1 else f"torchrun --nproc-per-node {workload.ranks}"
            )
            command = f"{start} tests/workloads/{workload.script} {workload.arguments}"
            lines.append(f"| `{trace.name}.csv.gz` | `{command}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    try:
        names = pick(sys.argv[1:], [workload.name for workload in WORKLOADS], "workload")
        TRACES.mkdir(exist_ok=True)
        native = next(each for each in CONFIGURATIONS if each.name == "memshim native")
        with Worker(native) as worker:
            for workload in WORKLOADS:
                if workload.name in names:
                    record(worker, workload)
    except BenchError as error:
        sys.exit(f"record.py: {error}")
    (TRACES / "README.md").write_text(read_me())
    size = sum(path.stat().st_size for path in TRACES.glob("*.csv.gz"))
    print(f"{size} bytes in all")
    if size > MOST_BYTES:
        sys.exit(f"record.py: that is more than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
