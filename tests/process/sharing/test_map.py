# SPDX-License-Identifier: Apache-2.0
"""Memory that a program maps by itself, or opens of another process, is live where it was mapped.

In no case is it holes, and what is charged once is counted once.
"""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, process_folders, program, report_of, run

CONTEXT = 64 * MIB
PAGE = 4 * MIB


class Mapped(ProcessTest):
    def reports(self, scenario: str, **settings: Any) -> list[dict[str, Any]]:
        """Of the processes that used the device, by what they were charged for, most first."""
        self.said = run(
            [program("map_job"), scenario],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "SIMGPU_CONTEXT": CONTEXT,
                "SIMGPU_MEMORY": "1GiB",
                **settings,
            },
        ).check()
        reports = [report_of(folder) for folder in process_folders(self.output)]
        return sorted(
            (report for report in reports if report["devices"]),
            key=lambda report: -report["devices"][0]["peak_charged_bytes"],
        )

    def ledger(self, report: dict[str, Any]) -> dict[str, int]:
        """Rows at the peak; they must add up to the device by themselves."""
        rows = {row["name"]: row["bytes"] for row in report["devices"][0]["peak"]["ledger"]}
        self.assertEqual(rows.pop("unexplained", 0), 0, rows)
        return rows

    def holder(self, report: dict[str, Any]) -> str:
        """The function that held most at the peak."""
        site = max(report["call_sites"], key=lambda site: int(site["at_peak_bytes"]))
        return str(site["line"])

    def live_at_end(self, report: dict[str, Any]) -> int:
        return sum(int(site["live_bytes"]) for site in report["call_sites"])

    def test_pages_are_live_at_their_map(self) -> None:
        (report,) = self.reports("own")
        device = report["devices"][0]
        self.assertEqual(device["peak_live_bytes"], 4 * PAGE)
        self.assertEqual(device["peak_charged_bytes"], CONTEXT + 4 * PAGE)
        rows = self.ledger(report)
        self.assertNotIn("holes", rows)
        self.assertNotIn("application", rows)
        self.assertIn("map_chunk", self.holder(report))

    def test_pages_without_the_pool(self) -> None:
        (report,) = self.reports("own", MEMSHIM_POOL="off")
        self.assertEqual(report["devices"][0]["peak_live_bytes"], 4 * PAGE)
        self.assertNotIn("holes", self.ledger(report))

    def test_pieces_that_a_framework_reports(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                report = self.reports("framework", MEMSHIM_POOL=pool)[0]
                self.assertEqual(self.live_at_end(report), PAGE // 2 + PAGE)

    def test_gaps_between_pieces_are_no_memory_in_use(self) -> None:
        """What is refused because of them would fit: the cap is not to blame, but their owner."""
        limit = CONTEXT + 9 * PAGE
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.output = self.folder / pool
                (report,) = self.reports("gaps", MEMSHIM_POOL=pool, MEMSHIM_LIMIT=limit)
                (oom,) = report["oom_events"]
                self.assertEqual(oom["rule"]["live_bytes"], PAGE // 2 + 4 * PAGE)
                self.assertEqual(oom["rule"]["fixed_bytes"], CONTEXT)
                self.assertEqual(oom["rule"]["hole_bytes"], 3 * PAGE + PAGE // 2)
                self.assertEqual(oom["verdict"], "fragmentation")
                if pool == "on":
                    self.assertIn("an allocator keeps them for itself", self.said.stderr)

    def test_a_chunk_of_another_process(self) -> None:
        owner, opener = self.reports("imported")
        self.assertEqual(owner["devices"][0]["peak_live_bytes"], PAGE)
        self.assert_opened(opener, "map_chunk")

    def test_a_block_of_another_process(self) -> None:
        owner, opener = self.reports("shared")
        self.assertEqual(owner["devices"][0]["peak_live_bytes"], PAGE)
        self.assert_opened(opener, "open_shared")

    def test_a_block_of_another_process_without_the_pool(self) -> None:
        owner, opener = self.reports("shared", MEMSHIM_POOL="off")
        self.assertEqual(owner["devices"][0]["peak_live_bytes"], PAGE)
        self.assert_opened(opener, "open_shared")

    def test_symmetric_memory_with_multicast(self) -> None:
        world: dict[str, Any] = {"SIMGPU_DEVICES": 2, "SIMGPU_MULTICAST": 1}
        plain = run([program("map_job"), "symmetric"], shim=False, **world).check()
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.output = self.folder / pool
                reports = self.reports("symmetric", MEMSHIM_POOL=pool, **world)
                self.assertEqual(self.said.stdout, plain.stdout)
                self.assertEqual(len(reports), 2)
                for report in reports:
                    self.assertEqual(self.live_at_end(report), 0)
                    # What it made is charged, and live. The other's is live on the other's device.
                    # The multicast object is nothing.
                    own, other = sorted(
                        report["devices"], key=lambda device: -int(device["peak_charged_bytes"])
                    )
                    self.assertEqual(own["peak_charged_bytes"], CONTEXT + PAGE)
                    self.assertEqual(other["peak_charged_bytes"], 0)
                    for device in (own, other):
                        rows = {row["name"]: row["bytes"] for row in device["peak"]["ledger"]}
                        self.assertEqual(device["peak_live_bytes"], PAGE)
                        self.assertEqual(rows.get("unexplained", 0), 0, rows)
                        self.assertNotIn("holes", rows)
                    self.assertIn("map_chunk", self.holder(report))
                owners = {
                    device["index"]
                    for report in reports
                    for device in report["devices"]
                    if device["peak_charged_bytes"]
                }
                self.assertEqual(owners, {0, 1})

    def assert_opened(self, opener: dict[str, Any], function: str) -> None:
        device = opener["devices"][0]
        self.assertEqual(device["peak_live_bytes"], PAGE)
        self.assertEqual(self.live_at_end(opener), 0)
        self.assertEqual(device["peak_charged_bytes"], CONTEXT)
        rows = self.ledger(opener)
        self.assertNotIn("holes", rows)
        self.assertEqual(rows["live_forwarded"], -PAGE)
        self.assertIn(function, self.holder(opener))

    def test_unmapped_without_host_memory(self) -> None:
        """What memshim notes of it needs some: then nothing is unmapped, and the call may be tried
        again."""
        self.run_under_shim(program("unmap_job"), SIMGPU_CONTEXT=CONTEXT).check()


if __name__ == "__main__":
    unittest.main()
