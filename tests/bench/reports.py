# SPDX-License-Identifier: Apache-2.0
"""What a report costs: time, memory, and the trace that it is made from.

    python3 tests/bench/reports.py [--events N] [--folder FOLDER]

Makes a trace of so many events (10,000,000) of a training-like run that ends out of memory, and
from it each form of a report. Then a bounded one, whose windows are folded into a digest while
events are recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
sys.path.append(str(ROOT / "tests" / "process"))
from documents import FORMS  # noqa: E402

MIB = 1 << 20


def make(output: Path, events: int, *limit: str) -> dict[str, Any]:
    command = [str(BUILD / "tests" / "bench" / "make_trace"), str(output), str(events), *limit]
    made: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    return made


def report(folder: Path, *arguments: str) -> str:
    """Wall time, CPU time and most memory of one command."""
    command = [str(BUILD / "memshim"), "report", str(folder), *arguments]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    cpu = usage.ru_utime + usage.ru_stime
    return (
        f"{wall:6.2f} s  {cpu:6.2f} s of CPU  {usage.ru_maxrss / 1024:6.0f} MiB"
        f"  (exit {process.returncode})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--folder", help="where to make the traces; removed at the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        made = make(Path(folder, "long"), options.events)
        trace = Path(made["folder"])
        size = (trace / "trace.mshm").stat().st_size
        print(
            f"{options.events:,} events: {size / MIB:.1f} MiB, {size / options.events:.2f} B each"
        )
        print(f"all files beside the trace    {report(trace)}")
        for form in FORMS:
            print(f"{form:<29}  {report(trace, '--format', form)}")
        made = make(Path(folder, "bounded"), options.events // 4, str(options.events // 2))
        print(f"bounded: the longest event took {made['longest_event_us']} us of CPU to tell")
        print(f"bounded: text                  {report(Path(made['folder']), '--format', 'text')}")


if __name__ == "__main__":
    main()
