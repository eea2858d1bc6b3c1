# SPDX-License-Identifier: Apache-2.0
"""A server that sleeps and wakes (vLLM, torch_memory_saver): its memory is its own.

Live memory falls and rises with it, others have the room meanwhile, it finds its addresses and
contents again, and nothing is ever taken from its pages.
"""

from __future__ import annotations

import json
import unittest
from typing import Any

from machine import MIB, PROGRAMS, SHIM, ProcessTest, only_report, program, run

CONTEXT = 64 * MIB
WEIGHTS = 4 * 4 * MIB
ROOM = 24 * MIB
CAP = CONTEXT + 2 * WEIGHTS
SAVER = PROGRAMS / "libsleep_saver.so"


class Sleep(ProcessTest):
    def run_job(
        self, kind: str, pressed: str = "alone", **settings: Any
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """What was said of each moment, and the report."""
        preload = {"LD_PRELOAD": f"{SHIM}:{SAVER}"} if kind == "preload" else {}
        result = run(
            [program("sleep_job"), kind, pressed],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "MEMSHIM_LIMIT": CAP,
                "SIMGPU_CONTEXT": CONTEXT,
                "SIMGPU_MEMORY": "1GiB",
                **preload,
                **settings,
            },
        ).check()
        self.assertEqual(result.stdout, "kept\n")
        said = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
        return said, only_report(self.output)

    def assert_figures(self, said: list[dict[str, Any]]) -> None:
        live = {"awake": WEIGHTS, "asleep": 0, "others": ROOM, "again": WEIGHTS}
        figures = [each for each in said if "live" in each]
        self.assertEqual(len(figures), 7)
        for each in figures:
            self.assertEqual(each["live"], live[each["event"]], each)
            self.assertLessEqual(each["used"], CAP)

    def test_live_memory_falls_and_rises(self) -> None:
        for kind in ("maps", "preload"):
            for pool in ("on", "off"):
                with self.subTest(kind=kind, pool=pool):
                    self.output = self.folder / f"{kind}-{pool}"
                    said, report = self.run_job(kind, MEMSHIM_POOL=pool)
                    self.assert_figures(said)
                    device = report["devices"][0]
                    self.assertEqual(device["peak_live_bytes"], ROOM)
                    rows = {row["name"]: row["bytes"] for row in device["peak"]["ledger"]}
                    self.assertNotIn("holes", rows)
                    self.assertEqual(device["leaks"], [])
                    self.assert_live_where_it_woke(report)

    def assert_live_where_it_woke(self, report: dict[str, Any]) -> None:
        site = max(report["call_sites"], key=lambda site: int(site["live_bytes"]))
        self.assertEqual(site["live_bytes"], WEIGHTS)
        self.assertIn("saver_wake", {frame["function"] for frame in site["frames"]})

    def test_nothing_is_taken_from_its_pages(self) -> None:
        for kind in ("maps", "preload"):
            for spill, blocks in (("off", 2), ("auto", 5)):
                with self.subTest(kind=kind, spill=spill):
                    self.output = self.folder / f"{kind}-{spill}"
                    said, report = self.run_job(kind, "pressed", MEMSHIM_SPILL=spill)
                    self.assert_figures(said)
                    pressed = [each["blocks"] for each in said if each["event"] == "pressed"]
                    self.assertEqual(pressed, [blocks, blocks])
                    self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], CAP)


if __name__ == "__main__":
    unittest.main()
