# SPDX-License-Identifier: Apache-2.0
"""How long a program takes to end: from the last line that it prints to the end of its process.

    python3 tests/bench/ends.py [--pairs N] [--folder FOLDER]

The program allocates and frees N times (tests/bench/pairs.c) on the simulated GPU: 60,000,000 pairs
fill a trace up to its default limit, 512 MiB. It ends without memshim, with a trace and no wait for
its report (MEMSHIM_REPORT_WAIT=0), and with the usual wait.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
MIB = 1 << 20


def end_s(pairs: int, **settings: str) -> float:
    simgpu, program = ROOT / "scripts" / "simgpu.sh", BUILD / "tests" / "bench" / "pairs"
    command = [str(simgpu), str(program), str(pairs), "exit"]
    environment = {**os.environ, "SIMGPU_CONTENTS": "none", "MEMSHIM_LOG": "off", **settings}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        begin = time.monotonic()
        process.wait()
        took = time.monotonic() - begin
    assert process.returncode == 0, process.returncode
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60_000_000)
    parser.add_argument("--folder", help="where to make the traces; removed at the end")
    options = parser.parse_args()
    print(f"without memshim        {end_s(1000) * 1000:8.1f} ms")
    for name, wait in (("no wait for the report", "0"), ("the usual wait", "")):
        with tempfile.TemporaryDirectory(dir=options.folder, ignore_cleanup_errors=True) as folder:
            took = end_s(
                options.pairs,
                LD_PRELOAD=str(BUILD / "libmemshim.so"),
                MEMSHIM_OUTPUT=folder,
                MEMSHIM_REPORT_WAIT=wait,
            )
            trace = next(Path(folder).glob("*/*/trace.mshm"))
            size = trace.stat().st_size / MIB
            print(f"{name:<22} {took * 1000:8.1f} ms, trace of {size:.1f} MiB")


if __name__ == "__main__":
    main()
