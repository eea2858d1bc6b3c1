# SPDX-License-Identifier: Apache-2.0
"""The labelled corpus (tests/verdicts): answers are compared with truths, those not held out."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import unittest

import harness

VERDICTS = harness.ROOT / "tests" / "verdicts"
sys.path.append(str(VERDICTS))

import truth  # noqa: E402

# What holds today, of a third as of all of them; to be raised with what judges.
LEAST = {"verdict": 0.95, "culprit": 0.93, "factor": 1.0, "short": 1.0}
MOST_UNKNOWN = 0.04


@harness.needs_torch
class Verdicts(unittest.TestCase):
    def test_the_corpus(self) -> None:
        """A third of it, or with scripts/test.sh --all all of it. The table stands in the log."""
        part = ["--all"] if os.environ.get("MEMSHIM_TEST_ALL") else ["--third", "0"]
        command = [sys.executable, str(VERDICTS / "run.py"), *part]
        for name, share in LEAST.items():
            command += [f"--least-{name}", str(share)]
        command += ["--most-unknown", str(MOST_UNKNOWN)]
        environment = {**os.environ, "MEMSHIM_BUILD": str(harness.BUILD)}
        status = subprocess.run(command, env=environment, timeout=3600).returncode
        self.assertEqual(status, 0, "a share is too small, or a report contradicts itself")

    def test_packages_of_jobs(self) -> None:
        """What jobs need, setup.sh installs; without it, those above are without them."""
        needed = {job.package for job in truth.corpus()} - {""}
        setup = (harness.ROOT / "scripts" / "setup.sh").read_text()
        wheels = re.findall(r"'(\w+)==", setup.partition("\nLOOP_WHEELS=(")[2].partition(")")[0])
        self.assertEqual(sorted(needed), sorted(wheels))
        missing = [name for name in sorted(needed) if not importlib.util.find_spec(name)]
        if missing:
            jobs = [job.name for job in truth.corpus() if job.package in missing]
            self.skipTest(f"{', '.join(jobs)}: {', '.join(missing)} (scripts/setup.sh --loops)")


if __name__ == "__main__":
    unittest.main()
