# SPDX-License-Identifier: Apache-2.0
"""Forks while other threads allocate near the end of the memory: no fork waits for ever."""

from __future__ import annotations

import unittest

from machine import GIB, MIB, ProcessTest, only_report, program

JOB = program("fork_job")


class Forks(ProcessTest):
    def job(self, *arguments: object) -> None:
        result = self.run_under_shim(
            JOB,
            *map(str, arguments),
            MEMSHIM_SPILL="auto",
            MEMSHIM_SPILL_LIMIT=GIB,
            MEMSHIM_WAIT_MS=1000,
            SIMGPU_MEMORY=512 * MIB,
            SIMGPU_CONTEXT=16 * MIB,
            SIMGPU_DELAY_US="0-200",
            XDG_CACHE_HOME=self.folder / "cache",
        ).check()
        self.assertEqual(result.stdout, "done\n", result.describe())
        self.assertGreater(only_report(self.output)["devices"][0]["spill"]["spills"], 0)

    def test_while_two_threads_run_short(self) -> None:
        self.job("shortage", 200)

    def test_while_one_spills(self) -> None:
        self.job("spill", 8)


if __name__ == "__main__":
    unittest.main()
