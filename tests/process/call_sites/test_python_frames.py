# SPDX-License-Identifier: Apache-2.0
"""What memshim reads of a thread's Python frames is what Python says they are.

MEMSHIM_PYTHON names another interpreter to try, of any version from 3.9 on."""

from __future__ import annotations

import os
import sys
import unittest

from machine import ROOT, program, run

PYTHON = os.environ.get("MEMSHIM_PYTHON", sys.executable)
LIBRARY = program("libpython_frames.so")


class PythonFrames(unittest.TestCase):
    """python_frames.py, a process for each of its classes: one may crash."""

    def inside(self, name: str) -> None:
        result = run(
            [PYTHON, "-m", "unittest", "-v", f"python_frames.{name}"],
            cwd=ROOT / "tests" / "process" / "call_sites",
            LD_PRELOAD=LIBRARY,
            PYTHON_FRAMES=LIBRARY,
            PYTHON=PYTHON,
        ).check()
        self.assertRegex(result.stderr, r"Ran [1-9]\d* tests? in")
        if "... skipped" in result.stderr:
            self.skipTest(result.stderr)

    def test_plain(self) -> None:
        self.inside("Plain")

    def test_callbacks(self) -> None:
        self.inside("Callbacks")

    def test_generators(self) -> None:
        self.inside("Generators")

    def test_names(self) -> None:
        self.inside("Names")

    def test_depth(self) -> None:
        self.inside("Depth")

    def test_threads(self) -> None:
        self.inside("Threads")

    def test_sub_interpreters(self) -> None:
        self.inside("SubInterpreters")

    def test_greenlets(self) -> None:
        self.inside("Greenlets")

    def test_forks(self) -> None:
        self.inside("Forks")

    def test_signals(self) -> None:
        self.inside("Signals")

    def test_endings(self) -> None:
        self.inside("Endings")


if __name__ == "__main__":
    unittest.main()
