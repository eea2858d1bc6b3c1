# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a folder, this one without a word, each file in a process of its own, two at a
time.

    python tests/torch/run_tests.py [--folder DIR] [--only MODULE --name NAME] LOGS

LOGS gets FILE.log of each (NAME.log of the only one); what a file's tests said is shown when it is
through. Exit status 1 when something failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALONE = HERE.parent / "alone.sh"
# Most of a test is one process that computes or one that waits.
AT_ONCE = 2
# What takes longest begins first: at the end one of two has nothing to do.
LONGEST = ("test_dry_run", "test_workload_columns", "test_simgpu", "test_verdicts", "test_native")


def run(folder: Path, module: str, log: Path) -> int:
    with log.open("w") as out:
        command = [str(ALONE), sys.executable, "-m", "unittest", "-v", module]
        status = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ).returncode
    print(f"--- {log.stem}", log.read_text(errors="replace"), sep="\n", flush=True)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests that need PyTorch.")
    parser.add_argument("logs", type=Path)
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--only", default="test_*", help="of the folder's modules")
    parser.add_argument("--name", help="of the log, instead of the module's")
    options = parser.parse_args()
    # A shell's background job ignores interrupts, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options.logs.mkdir(parents=True, exist_ok=True)
    found = sorted(path.stem for path in options.folder.glob(f"{options.only}.py"))
    modules = [name for name in LONGEST if name in found]
    modules += [name for name in found if name not in LONGEST]
    logs = [options.logs.resolve() / f"{options.name or module}.log" for module in modules]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as at_once:
        statuses = list(at_once.map(run, [options.folder] * len(logs), modules, logs))
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
