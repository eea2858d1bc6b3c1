# SPDX-License-Identifier: Apache-2.0
"""What holds of an ordinary script of any framework, with a leak planted in it.

A script says at its end how many bytes its framework had at most, by the framework's own figure,
and what it came to: one JSON line, {"event": "end", "peak_bytes": ..., ...}.
"""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness
from owners import owners

MIB = 1 << 20


class Ordinary(unittest.TestCase):
    """Runs a script alone, under memshim, and with half and nine tenths of what it needs."""

    def check_script(
        self, source: str, *, steps: int, line: str, each: int, refused: str, **settings: object
    ) -> dict[str, Any]:
        """Its report.

        line: words of the line that keeps `each` bytes more, in a step or now and then.
        refused: words of the framework's error where memory runs out.
        """
        (alone,) = harness.run(source, **settings).check().lines("end")
        job = harness.run_memshim(source, **settings)
        (end,) = job.result.check().lines("end")
        self.assertEqual(self.result_of(end), self.result_of(alone))
        report = job.only()
        device = report["devices"][0]
        self.assertEqual(device["peak_live_bytes"], end["peak_bytes"])
        self.assert_named(report)
        self.assertEqual(report["steps"]["count"], steps, report["steps"])
        self.assert_leak(device, 1 + source[: source.index(line)].count("\n"), each)
        self.check_cap(source, device, alone, refused, settings)
        return report

    @staticmethod
    def result_of(end: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in end.items() if name != "peak_bytes"}

    def assert_named(self, report: dict[str, Any]) -> None:
        """Nine tenths of the peak, but for backward passes, have a line of the script's."""
        lines = owners(report)
        backward = sum(
            site["at_peak_bytes"]
            for site in report["call_sites"]
            if not any(f["language"] == "python" for f in site["frames"])
        )
        named = sum(live for where, live in lines.items() if where != "?")
        peak = report["devices"][0]["peak_live_bytes"]
        self.assertGreaterEqual(named, 0.9 * (peak - backward), lines)

    def assert_leak(self, device: dict[str, Any], line: int, each: int) -> None:
        (leak,) = device["leaks"]
        self.assertEqual((leak["common_frame"]["line"], leak["by"]), (line, "step"), leak)
        grown, rounds = leak["grown_bytes"], leak["rounds"]
        self.assertEqual(grown / rounds if rounds else leak["bytes_per_round"], each, leak)

    def check_cap(
        self,
        source: str,
        device: dict[str, Any],
        alone: dict[str, Any],
        refused: str,
        settings: dict[str, Any],
    ) -> None:
        beside = device["peak_charged_bytes"] - device["peak_reserved_bytes"]
        # How far the program is ahead of the device differs from run to run, and so does its peak.
        limit = beside + device["peak_live_bytes"] // 2
        short = harness.run_memshim(source, MEMSHIM_LIMIT=limit, **settings)
        self.assertNotEqual(short.result.status, 0)
        self.assertIn(refused, short.result.stderr)
        self.assertLessEqual(short.only()["devices"][0]["peak_charged_bytes"], limit)
        limit = beside + device["peak_live_bytes"] * 9 // 10
        spilled = harness.run_memshim(source, MEMSHIM_LIMIT=limit, MEMSHIM_SPILL="auto", **settings)
        (end,) = spilled.result.check().lines("end")
        self.assertEqual(self.result_of(end), self.result_of(alone))
        self.assertLessEqual(spilled.only()["devices"][0]["peak_charged_bytes"], limit)
