# SPDX-License-Identifier: Apache-2.0
"""What grows from step to step, what was live at an out-of-memory, sizes and temporaries: of a
program whose truth is known."""

from __future__ import annotations

import unittest
from typing import Any

from machine import ProcessTest, process_folders, program, report_of

KIB, MIB = 1 << 10, 1 << 20
STEPS, WARM = 40, 10
LEAK, CACHE, WORK = 64 * KIB, 256 * KIB, 8 * MIB


class GrowthTest(ProcessTest):
    def reported(self, leak_from: int | str) -> dict[str, Any]:
        self.run_under_shim(program("growth_job"), str(leak_from)).check()
        (folder,) = process_folders(self.output)
        return report_of(folder)

    def test_a_leak_has_its_bytes_and_its_step(self) -> None:
        report = self.reported(leak_from=13)
        device = report["devices"][0]
        (growing,) = device["growth"]
        self.assertIn("keep_in_list", growing["line"])
        self.assertEqual(growing["bytes_per_step"], LEAK)
        self.assertEqual(growing["since_step"], 13)
        self.assertEqual(growing["grown_bytes"], (STEPS - 13) * LEAK)
        self.assertGreater(growing["cap_at_step"], STEPS)
        self.assertEqual(device["slope"]["bytes_per_step"], LEAK)
        self.assertEqual(device["slope"]["samples"], STEPS)

        (oom,) = report["oom_events"]
        kept = WARM * CACHE + (STEPS - 12) * LEAK
        self.assertEqual(sum(kind["bytes"] for kind in oom["kinds"]), kept)

    def test_a_warm_up_is_no_leak(self) -> None:
        device = self.reported(leak_from=0)["devices"][0]
        self.assertEqual(device["growth"], [])
        self.assertEqual(device["slope"]["bytes_per_step"], 0)
        self.assertEqual(device["slope"]["error_bytes_per_step"], 0)
        self.assertIsNone(device["slope"]["cap_at_step"])

    def test_a_queue_that_gets_longer_is_no_leak(self) -> None:
        """As of inputs, while the host runs ahead of its device: the oldest are freed."""
        report = self.reported("queue")
        self.assertEqual(report["devices"][0]["growth"], [])
        self.assertEqual(report["devices"][0]["leaks"], [])

    def test_what_is_made_anew_and_longer_grows(self) -> None:
        (growing,) = self.reported("longer")["devices"][0]["growth"]
        self.assertIn("make_longer", growing["line"])

    def test_sizes_and_temporaries(self) -> None:
        device = self.reported(leak_from=1)["devices"][0]
        sizes = {row["from_bytes"]: row["count"] for row in device["histogram"]}
        self.assertEqual(sizes, {LEAK: STEPS, CACHE: WARM, WORK: STEPS})
        temporary = device["temporary"]
        self.assertEqual(temporary["allocations"], STEPS)
        self.assertIn("work", temporary["sites"][0]["line"])
        self.assertEqual(device["headroom"]["factors"], [])
        self.assertIsNotNone(device["headroom"]["why"])


if __name__ == "__main__":
    unittest.main()
