# SPDX-License-Identifier: Apache-2.0
"""Forks while memory is short, with handlers that allocate, and before the device is used: no fork
and no child waits for ever."""

from __future__ import annotations

import shutil
import unittest
from typing import Any

from machine import GIB, MIB, SHIM, ProcessTest, only_report, program

JOB = program("fork_job")


class Forks(ProcessTest):
    def job(self, *arguments: object, **settings: Any) -> None:
        result = self.run_under_shim(
            JOB,
            *map(str, arguments),
            MEMSHIM_SPILL="auto",
            MEMSHIM_SPILL_LIMIT=GIB,
            SIMGPU_MEMORY=512 * MIB,
            SIMGPU_CONTEXT=16 * MIB,
            SIMGPU_DELAY_US="0-200",
            XDG_CACHE_HOME=self.folder / "cache",
            **settings,
        ).check()
        self.assertEqual(result.stdout, "done\n", result.describe())
        self.assertGreater(only_report(self.output)["devices"][0]["spill"]["spills"], 0)

    def test_while_two_threads_run_short(self) -> None:
        self.job("shortage", 200, MEMSHIM_WAIT_MS=1000)

    def test_while_one_spills(self) -> None:
        self.job("spill", 8)

    def test_with_handlers_that_allocate(self) -> None:
        """They run while memshim holds no lock, though they were registered before it was used."""
        self.run_under_shim(JOB, "handlers", "3").check()

    def test_before_the_device_is_used(self) -> None:
        """Another thread asks for PyTorch's settings, and the test of the device takes long."""
        beside = self.folder / "beside"
        beside.mkdir()
        command = beside / "memshim"
        command.write_text("#!/bin/sh\nsleep 2\n")
        command.chmod(0o755)
        library = shutil.copy(SHIM, beside)
        result = self.run_under_shim(program("settings_fork_job"), LD_PRELOAD=library).check()
        self.assertEqual(result.stdout, "expandable_segments:True\n", result.describe())

    def test_a_child_asks_nothing_of_the_loader(self) -> None:
        """It may have been in the midst of another thread's dlopen, and stays so in the child."""
        said = self.folder / "loader"
        self.job("shortage", 3, MEMSHIM_WAIT_MS=1000, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=said)
        lines = [
            line.split(":", 1)
            for file in self.folder.glob("loader.*")
            for line in file.read_text(errors="replace").splitlines()
            if ":" in line
        ]
        parents = {file.suffix[1:] for file in self.folder.glob("loader.*")}
        by_children = [text for pid, text in lines if pid.strip() not in parents]
        self.assertTrue(by_children, "the loader said nothing of any child")
        self.assertEqual([text for text in by_children if "file " + str(SHIM) in text], [])


if __name__ == "__main__":
    unittest.main()
