"""Runs the tests of this folder, each file in a process of its own, two at a time.

    python tests/torch/run_tests.py LOGS [--again]

LOGS gets FILE.log of each; what a file's tests said is shown when it is through. --again runs only
what failed in the logs that are there. Exit status 1 when something failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Most of a test is one process that computes or one that waits.
AT_ONCE = 2
PASSED = re.compile(r"^OK( |$)", re.MULTILINE)
FAILED = re.compile(r"^(?:FAIL|ERROR): \S+ \(([\w.]+)\)", re.MULTILINE)


def failed_before(log: Path, module: str) -> Sequence[str]:
    """Names of tests; the whole file where its tests were cut off or never ran."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if PASSED.search(text):
        return []
    return sorted(set(FAILED.findall(text))) or [module]


def run(names: Sequence[str], log: Path) -> int:
    with log.open("w") as out:
        command = [sys.executable, "-m", "unittest", "-v", *names]
        status = subprocess.run(
            command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ).returncode
    print(f"--- {log.stem}", log.read_text(errors="replace"), sep="\n", flush=True)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests that need PyTorch.")
    parser.add_argument("logs", type=Path)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    jobs = []
    for module in sorted(path.stem for path in HERE.glob("test_*.py")):
        log = options.logs.resolve() / f"{module}.log"
        names = failed_before(log, module) if options.again else [module]
        log.unlink(missing_ok=True)
        if names:
            jobs.append((names, log))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as at_once:
        statuses = list(at_once.map(lambda job: run(*job), jobs))
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
