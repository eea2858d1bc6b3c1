# SPDX-License-Identifier: Apache-2.0
"""What a call leaves behind in its thread: neither an errno nor a flag of a floating-point
operation, whose exceptions a program may have end it. And programs that bar system calls."""

from __future__ import annotations

import platform
import unittest
from typing import Any

from machine import ProcessTest, Result, program

MANY_OPTIONS = {
    "MEMSHIM_SPILL": "auto",
    "MEMSHIM_FRACTION": "0:0.3333",
    "MEMSHIM_THRESHOLDS": "0.55,0.77,0.93",
    "MEMSHIM_SAMPLE_BYTES": "0.7MiB",
    "MEMSHIM_TRACE_LIMIT": "1.3MiB",
    "MEMSHIM_STATUS_EVERY": "0.1s",
    "MEMSHIM_WAIT_MS": "333.3",
    "MEMSHIM_KEEP": "1.1GiB,0.3d",
    "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.3",
    "SIMGPU_MEMORY": "192MiB",
    "SIMGPU_CONTEXT": "8MiB",
}


class Quiet(ProcessTest):
    def quiet(self, *arguments: str, **settings: Any) -> None:
        result = self.run_under_shim(program("quiet_job"), *arguments, **settings)
        self.assertEqual(result.check().stdout, "done\n")

    def test_errno_and_flags(self) -> None:
        self.quiet(**MANY_OPTIONS)

    def test_exceptions_that_end_the_program(self) -> None:
        self.quiet("trap", **MANY_OPTIONS)


@unittest.skipUnless(platform.machine() == "x86_64", "numbers of another system")
class Barred(ProcessTest):
    """A program that bars system calls for itself, and whose memory does not fit."""

    OPENAT, FCNTL = 257, 72

    def barred(self, number: int, when: str) -> Result:
        settings = {"MEMSHIM_SPILL": "auto", "MEMSHIM_LIMIT": "48MiB", "SIMGPU_CONTEXT": "8MiB"}
        result = self.run_under_shim(program("barred_job"), str(number), when, **settings).check()
        if "no seccomp" in result.stdout:
            self.skipTest("no seccomp here")
        foreign = [line for line in result.stderr.splitlines() if not line.startswith("memshim: ")]
        self.assertEqual(foreign, [], result.describe())
        return result

    def test_no_files(self) -> None:
        said = self.barred(self.OPENAT, "before")
        self.assertIn("refused: 2", said.stdout)
        self.assertIn("no process could be started to test it", said.stderr)
        self.assertEqual(self.barred(self.OPENAT, "after").stdout, "all right\n")

    def test_no_fcntl(self) -> None:
        """The C library cannot open a stream without it: /proc/meminfo is not read."""
        said = self.barred(self.FCNTL, "before")
        self.assertIn("refused: 2", said.stdout)
        self.assertIn("nothing is spilled: how much memory the host has left", said.stderr)
        self.assertEqual(self.barred(self.FCNTL, "after").stdout, "all right\n")


if __name__ == "__main__":
    unittest.main()
