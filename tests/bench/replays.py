# SPDX-License-Identifier: Apache-2.0
"""The recorded runs of tests/traces through the pool again: what each needs, and what moves.

    .venv/bin/python tests/bench/replays.py [--json FILE] [--traces NAME-OR-FILE...]

For each trace, in native mode (PyTorch's placement, repaired), in tensor mode (the pool's own) and
in tensor mode with views:

  overhead   smallest cap with which it completes with nothing on the host, over its peak live bytes
  floor      in native mode: the chunks of 2 MiB that live tensors touched at once where PyTorch put
             them, at most, over the same. No choice of chunks can need less
  calls      the driver's calls at a cap of 1.02 x peak live, in total and a step after the second;
             "-" where it does not complete there
  moves      chunks that move there, a step after the second: as the pool chooses them (default),
             in native mode with the other choices too, and with the future known (oracle)
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from overhead import BUILD, CAP_RATIO, GRANULE, ROOT, BenchError, cell, pick

TRACES = ROOT / "tests" / "traces"
SUFFIX = ".csv.gz"
MODES = ("native", "tensor", "views")
POLICIES = ("default", "highest", "oldest", "newest", "gap", "oracle")


@dataclass
class Row:
    """One trace in one mode."""

    trace: str
    mode: str
    live_bytes: int
    overhead_ratio: float | None
    overhead_bytes: int | None
    floor_ratio: float | None = None
    calls: int | None = None
    calls_per_step: float | None = None
    # A step after the second, by choice; none where it does not complete.
    moves_per_step: Mapping[str, float | None] = field(default_factory=dict)
    pool_ns_per_operation: float | None = None


def replay(trace: Path, mode: str, *options: str) -> dict[str, Any]:
    how = ("tensor", "--views") if mode == "views" else (mode,)
    command = [BUILD / "memshim", "replay", trace, "--mode", *how, "--json", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    if not result.stdout:
        raise BenchError(f"memshim replay {trace.name}: {result.stderr.strip()}")
    answer: dict[str, Any] = json.loads(result.stdout)
    if answer["violation"]:
        raise BenchError(f"memshim replay {trace.name}: {answer['violation']}")
    return answer


def touched_bytes(trace: Path) -> int:
    """The most that live tensors touch at once, in whole chunks."""
    most = 0
    tensors: Counter[int] = Counter()  # by chunk
    chunks: dict[str, range] = {}
    with gzip.open(trace, "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["op"] == "born":
                begin, size = int(row["addr"]), int(row["bytes"])
                chunks[row["id"]] = range(begin // GRANULE, -(-(begin + size) // GRANULE))
                tensors.update(chunks[row["id"]])
                most = max(most, len(tensors))
            elif row["op"] == "died":
                for chunk in chunks.pop(row["id"]):
                    tensors[chunk] -= 1
                    if tensors[chunk] == 0:
                        del tensors[chunk]
    touched: int = most * GRANULE
    return touched


def capped(trace: Path, mode: str, live_bytes: int, policy: str) -> dict[str, Any] | None:
    """A replay at 1.02 x peak live; none where that does not complete without the host."""
    cap = str(int(live_bytes * CAP_RATIO))
    answer = replay(trace, mode, "--cap", cap, "--without-charges", "--policy", policy)
    if answer["completed"] and answer["peak_host_backed_bytes"] == 0:
        return answer
    return None


def measure(trace: Path, mode: str) -> Row:
    smallest = replay(trace, mode, "--min-cap")
    row = Row(
        trace=trace.name.removesuffix(SUFFIX),
        mode=mode,
        live_bytes=smallest["peak_live_bytes"],
        overhead_ratio=smallest["overhead_ratio"],
        overhead_bytes=smallest["min_cap_bytes"],
    )
    if mode == "native":
        row.floor_ratio = touched_bytes(trace) / row.live_bytes
    moves: dict[str, float | None] = {}
    for policy in POLICIES if mode == "native" else ("default",):
        answer = capped(trace, mode, row.live_bytes, policy)
        moves[policy] = answer["per_step_after_second"]["chunk_moves"] if answer else None
        if answer and policy == "default":
            row.calls = answer["driver_calls_total"]
            row.calls_per_step = answer["per_step_after_second"]["driver_calls"]
            row.pool_ns_per_operation = answer["pool_ns_per_operation"]
    row.moves_per_step = moves
    return row


HEADINGS = (
    f"{'trace':<18}{'mode':<8}{'live GiB':>9}{'overhead':>9}{'floor':>8}{'calls':>7}{'a step':>8}"
    f"{'moves a step:':>16}" + "".join(f"{policy:>9}" for policy in POLICIES)
)


def line_of(row: Row) -> str:
    return (
        f"{row.trace:<18}{row.mode:<8}{row.live_bytes / 2**30:>9.2f}"
        f"{cell(row.overhead_ratio, 9, 4)}{cell(row.floor_ratio, 8, 4)}"
        f"{cell(row.calls, 7, 0)}{cell(row.calls_per_step, 8, 1)}"
        f"{'':>16}" + "".join(cell(row.moves_per_step.get(policy), 9, 1) for policy in POLICIES)
    )


def summary(rows: Sequence[Row], mode: str) -> str:
    ratios = [row.overhead_ratio for row in rows if row.mode == mode and row.overhead_ratio]
    if not ratios:
        return f"{mode}: no trace completes"
    return (
        f"{mode:<8}overhead: worst {max(ratios):.4f}, median {statistics.median(ratios):.4f}, "
        f"of {len(ratios)} traces"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument("--traces", nargs="+", default=[], metavar="NAME-OR-FILE")
    options = parser.parse_args()
    rows = []
    try:
        if not (BUILD / "memshim").exists():
            raise BenchError(f"{BUILD} has no memshim; build it, or set MEMSHIM_BUILD")
        known = [path.name.removesuffix(SUFFIX) for path in sorted(TRACES.glob(f"*{SUFFIX}"))]
        print(HEADINGS, flush=True)
        files = [Path(name) for name in options.traces if name.endswith(SUFFIX)]
        names = [name for name in options.traces if not name.endswith(SUFFIX)]
        if names or not files:
            files += [TRACES / f"{name}{SUFFIX}" for name in pick(names, known, "trace")]
        for trace in files:
            for mode in MODES:
                rows.append(measure(trace, mode))
                print(line_of(rows[-1]), flush=True)
    except BenchError as error:
        sys.exit(f"replays.py: {error}")
    for mode in MODES:
        print(summary(rows, mode))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
