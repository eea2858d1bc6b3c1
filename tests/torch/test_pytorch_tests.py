# SPDX-License-Identifier: Apache-2.0
"""pytorch_tests.py: what it finds stays where it is cut off, and it goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import harness

PROGRAM = harness.ROOT / "tests" / "torch" / "pytorch_tests.py"
# In the place of PyTorch's file. The third test waits while a file is there, so that the run can be
# cut off; each test that begins is noted.
TESTS = """
    import os, time, unittest
    from pathlib import Path

    HERE = Path(__file__).parent
    if (HERE / "fall").exists():
        (HERE / "fall").unlink()
        os._exit(3)
    UNDER = "libmemshim" in os.environ.get("LD_PRELOAD", "")

    class TestCuda(unittest.TestCase):
        def setUp(self):
            with (HERE / "began").open("a") as began:
                began.write(f"{self._testMethodName} {'with' if UNDER else 'without'}\\n")

        def run(self, result=None):
            super().run(result)
            if (HERE / "stops").exists() and not UNDER:
                result.stop()

        def test_1_alike(self):
            pass

        def test_2_differs(self):
            self.assertFalse(UNDER)

        def test_3_waits(self):
            while UNDER and (HERE / "wait").exists():
                time.sleep(0.05)

        def test_4_fails_alike(self):
            self.fail()
"""

# The last that is found before the third test.
LAST = '"side": "default", "test": "TestCuda.test_2_differs"'


class CutOff(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True)
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        (self.folder / "test_cuda.py").write_text(textwrap.dedent(TESTS))
        self.log = self.folder / "found.log"

    def start(self, *more: str, build: Path = harness.BUILD) -> subprocess.Popen[str]:
        call = [sys.executable, str(PROGRAM), str(self.folder), "cuda", "--settings", "default"]
        return subprocess.Popen(
            [*call, "--out", str(self.log), *more],
            env=harness.environment(MEMSHIM_BUILD=build),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def began(self, test: str, side: str) -> int:
        path = self.folder / "began"
        return path.read_text().splitlines().count(f"{test} {side}") if path.exists() else 0

    def cut_off(self, how: signal.Signals) -> str:
        (self.folder / "wait").touch()
        process = self.start()
        record, end = self.log.with_name("found.log.jsonl"), time.monotonic() + harness.TIMEOUT_S
        while process.poll() is None and not (record.exists() and LAST in record.read_text()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        process.send_signal(how)
        said, _ = process.communicate()
        (self.folder / "wait").unlink()
        return said

    def test_what_was_found_stays(self) -> None:
        row = "cuda | default | TestCuda.test_2_differs | pass | fail | at first"
        self.assertIn(row, self.cut_off(signal.SIGTERM))
        self.assertIn(row, self.log.read_text())
        lines = (self.folder / "found.log.jsonl").read_text().splitlines()
        self.assertIn(
            {"group": "cuda", "side": "default", "test": "TestCuda.test_2_differs",
             "outcome": "fail"},
            [json.loads(line) for line in lines],
        )  # fmt: skip

    def test_a_process_that_falls_as_it_loads_is_started_again(self) -> None:
        (self.folder / "fall").touch()
        process = self.start()
        said, _ = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertIn("cuda | default | 4 tests, 3 pass without, 2 with, 2 both ways", said)

    def test_a_suite_that_stops_goes_on(self) -> None:
        (self.folder / "stops").touch()
        said, _ = self.start().communicate(timeout=harness.TIMEOUT_S)
        self.assertIn("cuda | default | 4 tests, 3 pass without, 2 with, 2 both ways", said)

    def test_a_memshim_that_is_not_there_is_no_side(self) -> None:
        build = self.folder / "build"
        build.mkdir()
        (build / "simgpu").symlink_to(harness.BUILD / "simgpu")
        process = self.start(build=build)
        said, _ = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertIn("cuda | default | it did not come to its end", said)
        self.assertIn("cuda | default | 4 tests, 3 pass without, 0 with, 0 both ways", said)
        self.assertIn("memshim is not in this process: ", self.log.read_text())

    def test_it_goes_on(self) -> None:
        self.cut_off(signal.SIGKILL)
        with (self.folder / "found.log.jsonl").open("a") as record:
            record.write('{"group": "cu')  # the disk was full, say
        process = self.start("--resume")
        said, _ = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("cuda | default | 4 tests, 3 pass without, 2 with, 2 both ways", said)
        self.assertIn("TestCuda.test_2_differs | pass | fail | NOT KNOWN", said)
        self.assertIn("1 differences without a known reason", said)
        for test, side, times in (
            ("test_1_alike", "without", 1),
            ("test_1_alike", "with", 1),
            ("test_4_fails_alike", "without", 1),
            ("test_4_fails_alike", "with", 1),
            ("test_3_waits", "with", 2),
            ("test_2_differs", "with", 3),  # once, and twice by itself
        ):
            self.assertEqual(self.began(test, side), times, f"{test} {side}")
        # All is known now: nothing runs.
        process = self.start("--resume")
        said, _ = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertIn("TestCuda.test_2_differs | pass | fail | NOT KNOWN", said)
        self.assertEqual(self.began("test_1_alike", "without"), 1)
        self.assertEqual(self.began("test_2_differs", "with"), 3)


if __name__ == "__main__":
    unittest.main()
