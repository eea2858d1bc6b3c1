# SPDX-License-Identifier: Apache-2.0
"""Why memory ran out: each reason planted, and named; the ledger beside the device's own count."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from machine import GIB, MIB, ProcessTest, only_report, process_folders, program

CONTEXT = 64 * MIB
# Refusals: nothing spills but where a case says so.
WORLD: dict[str, Any] = {
    "MEMSHIM_SPILL": "off",
    "SIMGPU_MEMORY": "1GiB",
    "SIMGPU_CONTEXT": CONTEXT,
}


class Planted(ProcessTest):
    def report(self, *arguments: str, status: int = 1, **settings: Any) -> dict[str, Any]:
        result = self.run_under_shim(
            program("verdict_job"), *arguments, **{**WORLD, **settings}
        ).check(status)
        self.said = result.stderr
        self.seen = result.stdout
        return only_report(self.output)

    def text(self) -> str:
        (folder,) = process_folders(self.output)
        return (folder / "report.txt").read_text()

    def only_oom(self, report: dict[str, Any]) -> dict[str, Any]:
        (event,) = report["oom_events"]
        assert isinstance(event, dict)
        return event


class Verdicts(Planted):
    def test_demand(self) -> None:
        event = self.only_oom(self.report("ask", "600", "600"))
        self.assertEqual(event["verdict"], "demand")
        self.assertEqual(event["short_bytes"], 1200 * MIB + CONTEXT - GIB)
        self.assertFalse(event["recovered"])
        self.assertIn("demand: memory in use and the request come to 1.23 GiB", self.said)
        self.assertRegex(self.text(), r"holds  600\.0 MiB \(100\.0 % of live\) .* ask")

    def test_cap(self) -> None:
        report = self.report("ask", "300", "300", MEMSHIM_FRACTION="0.5")
        event = self.only_oom(report)
        self.assertEqual(event["verdict"], "cap")
        self.assertEqual(event["short_bytes"], 600 * MIB + CONTEXT - GIB // 2)
        self.assertIn("which the device (1.00 GiB) has, but the cap does not allow", self.said)

    def test_advice_names_the_setting_that_is_set(self) -> None:
        self.report("ask", "300", "300", MEMSHIM_LIMIT="512MiB")
        text = self.text()
        self.assertRegex(
            text,
            r"next   a larger MEMSHIM_LIMIT, or compute that one tensor in pieces: it alone takes "
            r"most of the cap; this one request was 152\.0 MiB short\n",
        )
        self.assertRegex(text, r"tried  .* under a cap of .* \(MEMSHIM_LIMIT=6[67]\dMiB\)")
        self.assertIn("  short  300.0 MiB asked for - 148.0 MiB free = 152.0 MiB\n", text)

    def test_below_a_cap_that_is_to_stay_a_smaller_batch_fits(self) -> None:
        self.report("ask", "200", "200", "200", MEMSHIM_FRACTION="0.5")
        text = self.text()
        self.assertIn("next   a larger MEMSHIM_FRACTION, or a smaller batch or shape; ", text)

    def test_no_heading_stands_over_nothing(self) -> None:
        self.report("ask", "2000")
        text = self.text()
        for heading in ("What was live when", "Who asked for what", "of the live bytes have"):
            self.assertNotIn(heading, text)

    def test_what_is_on_the_host_is_said_to_be_subtracted(self) -> None:
        self.report(
            "ask", "400", "400", "150", "150", MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="64MiB"
        )
        self.assertRegex(self.text(), r"\n  ~ +-\S+ MiB +on host +subtracted: live bytes above")
        self.assertIn("live bytes count wherever they lie", self.text())

    def test_what_would_have_been_enough(self) -> None:
        """Replayed: 664 MiB are needed, in hundredths of the cap; with less it fails."""
        tried = self.report("ask", "300", "300", MEMSHIM_FRACTION="0.5")["what_if"]
        need = 600 * MIB + CONTEXT
        enough = tried["without_spill"]
        self.assertGreaterEqual(enough["cap_bytes"], need)
        self.assertLess(enough["cap_bytes"], need + GIB // 50)
        self.assertLess(enough["too_small_bytes"], need)
        self.assertAlmostEqual(enough["fraction"], enough["cap_bytes"] / GIB, delta=0.002)
        # The first block may move to the host; the request itself has to fit.
        self.assertTrue(tried["own_cap_with_spill"])
        self.assertGreater(tried["own_cap_host_bytes"], 0)
        self.assertLess(tried["with_spill"]["cap_bytes"], GIB // 2)
        self.assertRegex(
            self.text(), r"tried  this request succeeds under a cap of .* \(fraction 0\.6\d*\)"
        )

    def test_what_would_have_been_enough_under_a_small_cap(self) -> None:
        """However large the device is, the answer is of the size of what was short."""
        need = 60 * MIB + CONTEXT
        tried = self.report("ask", "30", "30", MEMSHIM_LIMIT=need - 4 * MIB)["what_if"]
        self.assertEqual(tried["without_spill"]["cap_bytes"], need)

    def test_what_others_hold_no_cap_gives(self) -> None:
        shared: dict[str, Any] = {"SIMGPU_SHARED": self.folder / "device"}
        with self.running(program("verdict_job"), "hold", "500", **WORLD, **shared) as other:
            assert other.stdout
            self.assertEqual(other.stdout.readline(), "ready\n")
            tried = self.report("ask", "300", "300", **shared)["what_if"]
        left = GIB - 500 * MIB - CONTEXT
        self.assertGreaterEqual(tried["without_spill"]["too_small_bytes"], left)
        self.assertGreaterEqual(tried["without_spill"]["cap_bytes"], 600 * MIB + CONTEXT)
        self.assertTrue(tried["own_cap_with_spill"])
        self.assertGreaterEqual(tried["own_cap_host_bytes"], 600 * MIB + CONTEXT - left)
        self.assertRegex(self.text(), r"tried  .* if this process may have .*; others left")

    def test_where_it_spilled_a_larger_limit_does(self) -> None:
        report = self.report(
            "ask", "400", "400", "150", "150", MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="64MiB"
        )
        tried = report["what_if"]
        self.assertTrue(tried["own_cap_with_spill"])
        self.assertGreater(tried["own_cap_host_bytes"], 64 * MIB)
        self.assertIn("with the same device memory and a MEMSHIM_SPILL_LIMIT above", self.text())

    def test_without_a_road_to_the_host_a_replay_tells_nothing(self) -> None:
        """It would put what lies in holes on the host."""
        tried = self.report("holes", SIMGPU_HOST_NUMA=0)["what_if"]
        self.assertIn("which this run did not have", tried["why"])

    def test_without_the_pool_a_replay_tells_nothing(self) -> None:
        tried = self.report("holes", MEMSHIM_POOL="off")["what_if"]
        self.assertIn("did not use the pool", tried["why"])

    def test_the_rule_by_its_figures(self) -> None:
        rule = self.only_oom(self.report("holes", MEMSHIM_POOL="off"))["rule"]
        self.assertEqual(rule["verdict"], "fragmentation")
        self.assertEqual(rule["fixed_bytes"], CONTEXT)
        self.assertEqual(rule["live_bytes"], 100 * MIB)
        self.assertEqual(rule["hole_bytes"], 500 * MIB)
        self.assertEqual(rule["need_bytes"], 500 * MIB + CONTEXT)
        self.assertEqual(rule["free_bytes"], GIB - 600 * MIB - CONTEXT)

    def test_the_line_at_once_leaves_growth_to_the_report(self) -> None:
        self.report("grow")
        self.assertNotIn("\n  tried  ", self.text(), "more memory would only delay it")
        self.assertIn("demand: ", self.said)
        self.assertIn("the first finding, from the figures of this moment alone", self.said)
        self.assertIn("in its line `why`", self.said)
        self.assertRegex(self.text(), r"demand +the run did not go on; `why` says (likely )?growth")

    def test_the_fraction_that_suffices_does(self) -> None:
        tried = self.report("ask", "300", "300", MEMSHIM_FRACTION="0.5")["what_if"]
        folder = self.output
        self.output = Path(f"{folder}-again")
        enough = self.report(
            "ask", "300", "300", status=0, MEMSHIM_FRACTION=tried["without_spill"]["fraction"]
        )
        self.assertEqual(enough["oom_events"], [])
        self.assertIsNone(enough["what_if"])

    def test_holes_that_the_driver_serves(self) -> None:
        event = self.only_oom(self.report("holes", MEMSHIM_POOL="off"))
        self.assertEqual(event["verdict"], "fragmentation")
        self.assertIn("500.0 MiB are free in holes", event["sentence"])
        self.assertIn("MEMSHIM_POOL=off", event["sentence"])

    def test_the_same_holes_are_no_obstacle_for_the_pool(self) -> None:
        self.assertEqual(self.report("holes", status=0)["oom_events"], [])

    def test_holes_that_a_graph_replays_into(self) -> None:
        event = self.only_oom(self.report("captured"))
        self.assertEqual(event["verdict"], "fragmentation")
        self.assertIn("500.0 MiB are free in holes", event["sentence"])
        self.assertIn("CUDA graphs replay into memory that was allocated", event["sentence"])

    def test_holes_that_no_host_memory_could_stand_in_for(self) -> None:
        event = self.only_oom(self.report("holes", SIMGPU_HOST_NUMA=0))
        self.assertEqual(event["verdict"], "fragmentation")
        self.assertIn("500.0 MiB are free in holes", event["sentence"])
        self.assertIn("no host memory could stand in for them", event["sentence"])

    def test_other_process(self) -> None:
        shared: dict[str, Any] = {"SIMGPU_SHARED": self.folder / "device"}
        with self.running(program("verdict_job"), "hold", "500", **WORLD, **shared) as other:
            assert other.stdout
            self.assertEqual(other.stdout.readline(), "ready\n")
            event = self.only_oom(self.report("ask", "300", "300", **shared))
        self.assertEqual(event["verdict"], "other_process")
        (who,) = event["other_processes"]
        self.assertEqual(who["pid"], other.pid)
        self.assertEqual(who["bytes"], 500 * MIB + CONTEXT)
        self.assertIn(f"pid {other.pid}: 564.0 MiB", self.said)
        self.assertEqual(row(event["ledger"], "other_processes"), 500 * MIB + CONTEXT)

    def test_what_others_leave_is_a_cap(self) -> None:
        """The cap is the whole device, and half of it is another process's: live memory moves."""
        shared: dict[str, Any] = {"SIMGPU_SHARED": self.folder / "device"}
        with self.running(program("verdict_job"), "hold", "500", **WORLD, **shared) as other:
            assert other.stdout
            self.assertEqual(other.stdout.readline(), "ready\n")
            report = self.report("ask", "300", "300", status=0, MEMSHIM_SPILL="auto", **shared)
        self.assertEqual(report["oom_events"], [])
        device = report["devices"][0]
        self.assertEqual(device["cap_bytes"], GIB)
        # 396 MiB are left beside both contexts.
        self.assertGreaterEqual(device["spill"]["spilled_bytes"], 204 * MIB)
        self.assertLessEqual(device["peak_charged_bytes"], 460 * MIB)

    def test_a_driver_that_refuses_what_it_has(self) -> None:
        """As it does where it finds no host memory, or no address space."""
        for pool, call in (("on", "cuMemCreate"), ("off", "cuMemAlloc")):
            with self.subTest(pool=pool):
                self.output = self.folder / pool
                event = self.only_oom(
                    self.report("ask", "300", MEMSHIM_POOL=pool, SIMGPU_FAIL=f"{call}@*=2")
                )
                self.assertEqual((event["verdict"], event["short_bytes"]), ("not_device", 0))
                self.assertIn("the driver says that 960.0 MiB are free", self.said)
                self.assertIn("next   look at the host", self.text())

    def test_host_memory_that_cannot_be_pinned(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.output = self.folder / pool
                report = self.report(
                    "pin", "24", "2048", SIMGPU_FAIL="cuMemAllocHost@2=2", MEMSHIM_POOL=pool
                )
                event = self.only_oom(report)
                self.assertEqual(event["verdict"], "not_device")
                self.assertEqual(event["source"], "host")
                self.assertEqual(event["short_bytes"], 0)
                self.assertTrue(event["rule"]["of_host"])
                self.assertIn("host: OUT OF MEMORY: asked for 2.00 GiB of page-locked", self.said)
                self.assertNotIn("short 0 B", self.text())
                self.assertIn("the host refused, and the device was not asked", self.text())
                self.assertIn("has no more memory that can be page-locked", self.text())
                self.assertRegex(
                    self.text(), r"holds  24\.0 MiB of pinned memory at most, asked for by .* pin"
                )

    def test_host_memory_that_was_got_in_the_end(self) -> None:
        report = self.report("pin", "24", status=0)
        self.assertEqual(report["oom_events"], [])

    def test_a_driver_that_keeps_to_a_limit_of_its_own(self) -> None:
        """It refuses everything: its limit is the reason where more than that is asked for."""
        limit: dict[str, Any] = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512M"}
        for pool, call in (("on", "cuMemCreate"), ("off", "cuMemAlloc")):
            with self.subTest(pool=pool):
                self.output = self.folder / pool
                event = self.only_oom(
                    self.report(
                        "ask", "300", "300", MEMSHIM_POOL=pool, SIMGPU_FAIL=f"{call}@*=2", **limit
                    )
                )
                self.assertEqual(event["verdict"], "not_device")
                self.output = self.folder / f"{pool}-large"
                event = self.only_oom(
                    self.report("ask", "600", MEMSHIM_POOL=pool, SIMGPU_FAIL=f"{call}@*=2", **limit)
                )
                self.assertEqual(event["verdict"], "driver_limit")
                self.assertEqual(
                    event["driver_limit"], {"by": "mps", "bytes": 512 * MIB, "used_bytes": 0}
                )
                self.assertIn("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows this process", self.said)
                self.assertIn("next   raise that limit", self.text())

    def test_growth(self) -> None:
        report = self.report("grow")
        event = report["oom_events"][-1]
        self.assertEqual(event["verdict"], "growth")
        self.assertRegex(
            event["sentence"],
            r"growth: verdict_job\.c:\d+ in \w+ has kept 2\.0 MiB more every step",
        )
        # 1 GiB less the context and the 64 MiB that come and go, 2 MiB a step.
        self.assertAlmostEqual(event["step"], (GIB - CONTEXT - 64 * MIB) / (2 * MIB), delta=2)
        self.assertIn("growth: verdict_job.c:", self.text())
        self.assertIn("more memory would only have delayed the end", self.text())

    def test_spill_limit(self) -> None:
        event = self.report(
            "ask", "400", "400", "150", "150", MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="64MiB"
        )["oom_events"][-1]
        self.assertEqual(event["verdict"], "spill_limit")
        self.assertIn("MEMSHIM_SPILL_LIMIT", self.said)

    def test_recovered_is_told_from_what_ended_it(self) -> None:
        first, last = self.report("search")["oom_events"]
        self.assertTrue(first["recovered"])
        self.assertFalse(last["recovered"])
        self.assertRegex(self.text().splitlines()[1], r"^OUT OF MEMORY .* asked for 601\.0 MiB")


def row(ledger: list[dict[str, Any]], name: str) -> int:
    return sum(entry["bytes"] for entry in ledger if entry["name"] == name)


class Ledger(Planted):
    def check(self, ledger: list[dict[str, Any]]) -> None:
        self.assertEqual(sum(entry["bytes"] for entry in ledger), GIB)
        self.assertLess(abs(row(ledger, "unexplained")), GIB // 100)
        self.assertEqual(row(ledger, "context"), CONTEXT)
        self.assertEqual(row(ledger, "arrays"), 16 * MIB)
        # Charged in full, though the driver puts none of it on the device before it is touched:
        # this one row is the most that it can be.
        self.assertEqual(row(ledger, "managed"), 8 * MIB)
        self.assertEqual(row(ledger, "unknown") + row(ledger, "live_forwarded"), 300 * MIB)

    def test_at_the_out_of_memory_and_at_the_peak(self) -> None:
        report = self.report("ledger")
        used = json.loads(self.seen)["used_bytes"]
        event = self.only_oom(report)
        self.check(event["ledger"])
        self.check(report["devices"][0]["peak"]["ledger"])
        free = row(event["ledger"], "free") + row(event["ledger"], "free_above_cap")
        self.assertEqual(free, GIB - used)
        self.assertEqual(row(event["ledger"], "other_processes"), 0)

    def test_with_another_process_and_a_cap(self) -> None:
        shared: dict[str, Any] = {"SIMGPU_SHARED": self.folder / "device"}
        with self.running(program("verdict_job"), "hold", "100", **WORLD, **shared) as other:
            assert other.stdout
            self.assertEqual(other.stdout.readline(), "ready\n")
            report = self.report("ledger", MEMSHIM_FRACTION="0.75", **shared)
        used = json.loads(self.seen)["used_bytes"]
        for ledger in (self.only_oom(report)["ledger"], report["devices"][0]["peak"]["ledger"]):
            self.check(ledger)
            self.assertEqual(row(ledger, "other_processes"), 100 * MIB + CONTEXT)
        event = self.only_oom(report)
        free = row(event["ledger"], "free") + row(event["ledger"], "free_above_cap")
        self.assertEqual(free, GIB - used - 100 * MIB - CONTEXT)
        self.assertGreater(row(event["ledger"], "free_above_cap"), 0)

    def test_pinned_host_memory_by_site(self) -> None:
        device = self.report("ledger")["devices"][0]
        (site,) = device["host_pinned"]
        self.assertEqual(site["bytes"], 24 * MIB)
        self.assertIn("ledger", site["line"])


if __name__ == "__main__":
    unittest.main()
