# SPDX-License-Identifier: Apache-2.0
"""Programs that bar system calls."""

from __future__ import annotations

import platform
import unittest

from machine import ProcessTest, Result, program

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
