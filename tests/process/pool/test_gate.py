# SPDX-License-Identifier: Apache-2.0
"""Standstills: while memory moves nothing runs and nothing starts; what cannot end is given up.

GATE_STANDSTILLS, in the environment, is for longer runs: standstills of a run, instead of 1000.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import unittest
from pathlib import Path
from typing import Any

from machine import BUILD, INSTALLED, PROGRAMS, SANITIZER, ProcessTest, Result, program, run

ALL = os.environ.get("MEMSHIM_TEST_ALL")
STANDSTILLS = int(os.environ.get("GATE_STANDSTILLS", "1000" if ALL else "250"))
SHIM = PROGRAMS / "libgate_memshim.so"
MOST_INSTRUCTIONS = 20


class GateTest(ProcessTest):
    def run_gate(self, *command: str | Path, **settings: Any) -> Result:
        """With memshim's objects and the entries to its standstill in the place of memshim."""
        return run(command, LD_PRELOAD=SHIM, MEMSHIM_OUTPUT=self.output, **settings)


class Crowd(GateTest):
    """gate_job checks itself."""

    def check(self, threads: int = 8, devices: int = 1, **settings: object) -> None:
        result = self.run_gate(
            program("gate_job"),
            *(os.environ.get("GATE_SEED", "1"), str(STANDSTILLS), str(threads)),
            SIMGPU_DEVICES=devices,
            **settings,
        ).check()
        said = json.loads(result.stdout)
        self.assertEqual(said["standstills"], STANDSTILLS)
        self.assertGreater(said["calls"], STANDSTILLS)
        self.assertGreater(said["activity"], STANDSTILLS)

    def test_nothing_runs_or_starts(self) -> None:
        self.check(SIMGPU_DELAY_US="0-200")

    def test_quick_device(self) -> None:
        self.check()

    def test_many_threads(self) -> None:
        self.check(threads=24, SIMGPU_DELAY_US="0-50")

    def test_devices_that_reach_each_other(self) -> None:
        self.check(devices=2, SIMGPU_DELAY_US="0-200")

    def test_driver_without_marks_of_contexts(self) -> None:
        self.check(SIMGPU_DELAY_US="0-200", SIMGPU_DRIVER_VERSION=12040)


class Corners(GateTest):
    def test_all(self) -> None:
        cases = run([program("gate_corners"), "list"], LD_LIBRARY_PATH=f"{BUILD}/simgpu:{PROGRAMS}")
        names = cases.check().stdout.split()
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                result = self.run_gate(program("gate_corners"), name)
                self.assertEqual(result.check().stdout, "done\n")

    def test_said_once_why_not(self) -> None:
        result = self.run_gate(program("gate_corners"), "function_that_nobody_knows").check()
        self.assertEqual(result.stderr.count("cuFrobAsync_ptsz"), 1, result.stderr)


class Cost(ProcessTest):
    """Counted, not timed: the instructions that memshim's library adds to a launch."""

    def instructions(self, launches: int) -> int:
        counted = self.folder / f"callgrind.{launches}"
        self.run_under_shim(
            *("valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}"),
            *(program("gate_cost"), str(launches)),
            SIMGPU_MEMORY="256MiB",
            SIMGPU_CONTEXT="16MiB",
            LD_PRELOAD=INSTALLED,  # the other one checks each call of the driver
        ).check()
        shown = run(["callgrind_annotate", "--threshold=100", counted]).check().stdout
        rows = re.findall(r"^\s*([\d,]+) .*\[(.*)\]$", shown, re.MULTILINE)
        ours = [int(count.replace(",", "")) for count, where in rows if "libmemshim" in where]
        self.assertTrue(ours, shown)
        return sum(ours)

    @unittest.skipIf(SANITIZER.exists(), "a sanitizer's instructions are not memshim's")
    @unittest.skipUnless(shutil.which("valgrind"), "callgrind counts")
    def test_launch(self) -> None:
        few, many = 1000, 9000
        # The least of three counts is the code's: what threads do beside it comes and goes.
        least = {count: min(self.instructions(count) for _ in range(3)) for count in (few, many)}
        per_launch = (least[many] - least[few]) / (many - few)
        self.assertGreater(per_launch, 5)
        self.assertLessEqual(per_launch, MOST_INSTRUCTIONS)


if __name__ == "__main__":
    unittest.main()
