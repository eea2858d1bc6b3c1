# SPDX-License-Identifier: Apache-2.0
"""A framework's allocator whose holes are taken all the while: every byte stays what it was.

REPAIR_ROUNDS, in the environment, is for longer runs: rounds of each thread, instead of 500.
"""

from __future__ import annotations

import json
import os
import unittest
from typing import Any

from machine import MIB, ProcessTest, only_report, program

ROUNDS = int(os.environ.get("REPAIR_ROUNDS", "500"))
CONTEXT = 64 * MIB
LIVE_MIB = 64


class Contents(ProcessTest):
    """repair_job checks itself; the limit leaves less than half of what its arenas hold."""

    def check(
        self,
        arenas: str,
        limit_mib: int,
        devices: int = 1,
        takes_holes: bool = True,
        **settings: Any,
    ) -> None:
        run = self.run_under_shim(
            program("repair_job"),
            *(arenas, os.environ.get("REPAIR_SEED", "1"), str(ROUNDS), str(LIVE_MIB), "2"),
            MEMSHIM_LIMIT=f"{limit_mib}MiB",
            SIMGPU_DEVICES=devices,
            SIMGPU_CONTEXT=CONTEXT,
            **{"SIMGPU_DELAY_US": "0-200", **settings},
        )
        said = json.loads(run.check().stdout)
        self.assertGreater(said["tensors"], ROUNDS * devices)
        self.assertGreater(said["rows"], 100 * said["tensors"])
        report = only_report(self.output)
        self.assertEqual(len(report["devices"]), devices)
        for job, device in zip(said["devices"], report["devices"], strict=True):
            self.assertEqual(job["live"], 0)
            self.assertLessEqual(device["peak_charged_bytes"], limit_mib * MIB)
            # What the allocator held at once is more than there was: holes were taken.
            if takes_holes:
                self.assertGreater(job["peak_held"], (limit_mib * MIB - CONTEXT) * 5 // 4)

    def test_segments(self) -> None:
        self.check("segments", 192)

    def test_pages(self) -> None:
        self.check("pages", 192)

    def test_segments_of_two_devices_that_reach_each_other(self) -> None:
        self.check("segments", 208, devices=2)

    def test_pages_of_two_devices_that_reach_each_other(self) -> None:
        self.check("pages", 208, devices=2)

    def test_memory_so_short_that_requests_are_refused(self) -> None:
        self.check("segments", 144)

    def test_no_host_memory_behind_holes(self) -> None:
        self.check("pages", 192, takes_holes=False, SIMGPU_HOST_NUMA=0)

    def test_slow_streams(self) -> None:
        self.check("segments", 192, SIMGPU_DELAY_US="0-2000")


if __name__ == "__main__":
    unittest.main()
