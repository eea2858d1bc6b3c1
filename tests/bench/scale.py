# SPDX-License-Identifier: Apache-2.0
"""How costs grow: with threads, streams and devices; with a trace; with processes of a run.

    tests/bench/scale.py [--quick] [--only PART]... [--day] [--json FILE]

A table for each. CPU time is what counts on a machine that others use too; the exponent beside a
row is that of its growth since the row before it (1: linear). MiB: the most resident, at least what
Python itself had when it began the process, some 16. Processes of a run are copies of one
made trace.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
MIB = 1 << 20
PAIRS = 200_000
EVENTS_A_MIB = 157_000  # of make_trace's
BOUND_MIB = 16  # of the trace that a long run may keep
NS_AN_EVENT = 86_400  # so that a day has 10**9 of them
EVENTS_A_COPY = 20_000
PARTS = ("contention", "ranks", "reports", "bounded", "runs")


@dataclass(frozen=True)
class Cost:
    what: str
    size: int
    cpu_s: float
    wall_s: float
    peak_mib: float


@dataclass(frozen=True)
class Pairs:
    threads: int
    streams: int
    devices: int
    cpu_ns: float
    wall_ns: float
    peak_mib: float


class ScaleError(Exception):
    pass


def watched(command: list[str], **settings: str) -> tuple[str, Cost]:
    """What a command wrote, and what it took, all of its threads together."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MEMSHIM_", "SIMGPU_", "LD_"))}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=kept | settings)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begin
        out.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            raise ScaleError(
                f"{' '.join(command)} ended with {process.returncode}: {errors.read()}"
            )
        return out.read(), Cost("", 0, used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024)


def pairs(folder: Path, threads: int, streams: int, devices: int) -> Pairs:
    command = [str(BUILD / "tests" / "bench" / "contention")]
    command += [str(number) for number in (threads, streams, devices, PAIRS)]
    text, cost = watched(
        command,
        LD_PRELOAD=str(BUILD / "libmemshim.so"),
        LD_LIBRARY_PATH=str(BUILD / "simgpu"),
        MEMSHIM_LOG="off",
        MEMSHIM_REPORT_WAIT="0",
        MEMSHIM_OUTPUT=str(folder / "out"),
        SIMGPU_DEVICES=str(devices),
        SIMGPU_MEMORY="4GiB",
        XDG_CACHE_HOME=str(folder / "cache"),
    )
    shutil.rmtree(folder / "out", ignore_errors=True)
    cpu, wall = map(float, text.split())
    return Pairs(threads, streams, devices, cpu, wall, cost.peak_mib)


def contention(folder: Path, quick: bool) -> list[Pairs]:
    sizes = (1, 4, 16)
    cases = [(t, s, d) for d in (1, 8) for t in sizes for s in sizes]
    cases += [(1, 1000, 1), (16, 1000, 1)]
    if quick:
        cases = [(1, 1, 1), (16, 16, 8)]
    print(f"\n{'threads':>7} {'streams':>7} {'devices':>7} {'CPU ns':>8} {'wall ns':>8} {'MiB':>6}")
    rows = []
    for case in cases:
        row = pairs(folder, *case)
        rows.append(row)
        print(
            f"{row.threads:7} {row.streams:7} {row.devices:7} {row.cpu_ns:8.0f} {row.wall_ns:8.0f}"
            f" {row.peak_mib:6.0f}",
            flush=True,
        )
    return rows


def ranks(folder: Path, quick: bool) -> list[Cost]:
    """Processes at once, each of which does the same: what a pair takes in the last of them."""
    rows = []
    print(f"\n{'processes at once':>24} {'CPU ns':>8} {'wall ns':>8}")
    for count in (1, 4) if quick else (1, 2, 4, 8):
        with ThreadPoolExecutor(count) as pool:
            each = [pool.submit(pairs, folder / str(rank), 1, 1, 1) for rank in range(count)]
            found = [one.result() for one in each]
        cpu, wall = max(one.cpu_ns for one in found), max(one.wall_ns for one in found)
        print(f"{count:24} {cpu:8.0f} {wall:8.0f}", flush=True)
        peak = max(one.peak_mib for one in found)
        rows.append(Cost("processes at once", count, cpu / 1e9, wall / 1e9, peak))
    return rows


def make(output: Path, events: int) -> Path:
    command = [str(BUILD / "tests" / "bench" / "make_trace"), str(output), str(events)]
    return Path(json.loads(watched(command)[0])["folder"])


def bounded(folder: Path, quick: bool, day: bool) -> list[list[Cost]]:
    """Longer and longer runs into a trace of one size: what telling takes, and the report."""
    told, read = [], []
    sizes = (10**5, 10**6) if quick else (10**6, 10**7, 10**8)
    for events in (*sizes, 10**9) if day else sizes:
        command = [str(BUILD / "tests" / "bench" / "make_trace"), str(folder / "day"), str(events)]
        text, cost = watched([*command, str(BOUND_MIB * MIB), str(NS_AN_EVENT)])
        trace = Path(json.loads(text)["folder"]) / "trace.mshm"
        print(f"{events:,} events: a file of {trace.stat().st_size / MIB:.1f} MiB", flush=True)
        told.append(replace(cost, what="events told", size=events))
        how = ("report", "-f", "text", str(trace))
        read.append(measured("report of so many events", events, *how))
        shutil.rmtree(folder / "day")
    return [show(told), show(read)]


def exponent(before: Cost | None, now: Cost) -> str:
    if before is None or before.cpu_s <= 0 or now.cpu_s <= 0:
        return "-"
    return f"{math.log(now.cpu_s / before.cpu_s) / math.log(now.size / before.size):.2f}"


def show(rows: list[Cost]) -> list[Cost]:
    print(f"\n{rows[0].what:24} {'CPU s':>8} {'wall s':>8} {'MiB':>6} {'growth':>7}")
    before: Cost | None = None
    for row in rows:
        print(
            f"{row.size:24,} {row.cpu_s:8.2f} {row.wall_s:8.2f} {row.peak_mib:6.0f}"
            f" {exponent(before, row):>7}",
            flush=True,
        )
        before = row
    return rows


def measured(what: str, size: int, *arguments: str) -> Cost:
    _, cost = watched([str(BUILD / "memshim"), *arguments])
    return Cost(what, size, cost.cpu_s, cost.wall_s, cost.peak_mib)


def reports(folder: Path, quick: bool) -> list[Cost]:
    rows = []
    for mib in (8, 32) if quick else (32, 128, 512):
        trace = make(folder / "long", mib * EVENTS_A_MIB) / "trace.mshm"
        size = trace.stat().st_size // MIB
        rows.append(measured("report of a trace, MiB", size, "report", "-f", "text", str(trace)))
        shutil.rmtree(folder / "long")
    return show(rows)


def merged(folder: Path, quick: bool) -> list[list[Cost]]:
    process = make(folder / "ranks", EVENTS_A_COPY)
    run = process.parent
    copies, looks, texts = 1, [], []
    for count in (8, 64) if quick else (8, 64, 512):
        for at in range(copies, count):
            shutil.copytree(process, run / f"copy-{at}")
        copies = count
        if count <= 64:
            looks.append(measured("top --once, processes", count, "top", "--once", str(run)))
        texts.append(measured("merged report, processes", count, "report", "-f", "text", str(run)))
    return [show(looks), show(texts)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="the smaller half of each")
    parser.add_argument("--only", action="append", choices=PARTS, help="one of the parts")
    parser.add_argument("--day", action="store_true", help="1,000,000,000 events, in `bounded`")
    parser.add_argument("--json", metavar="FILE", help="write it there as well")
    options = parser.parse_args()
    wanted = options.only or PARTS
    found: dict[str, list[dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            if "contention" in wanted:
                found["contention"] = [asdict(row) for row in contention(folder, options.quick)]
            if "ranks" in wanted:
                found["ranks"] = [asdict(row) for row in ranks(folder, options.quick)]
            if "reports" in wanted:
                found["reports"] = [asdict(row) for row in reports(folder, options.quick)]
            if "bounded" in wanted:
                rows = bounded(folder, options.quick, options.day)
                found["bounded"] = [asdict(row) for table in rows for row in table]
            if "runs" in wanted:
                rows = merged(folder, options.quick)
                found["runs"] = [asdict(row) for table in rows for row in table]
        except (ScaleError, OSError) as error:
            print(f"scale.py: {error}", file=sys.stderr)
            return 1
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
