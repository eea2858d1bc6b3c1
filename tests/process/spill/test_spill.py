# SPDX-License-Identifier: Apache-2.0
"""Live memory goes to the host and comes back, and nothing about it changes.

MEMSHIM_SPILL_OPERATIONS: operations of the program that checks contents, in all of its threads
(default 6,000); and of the one whose driver calls fail, a hundredth of a million's.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    MIB,
    ProcessTest,
    Result,
    only_report,
    process_folders,
    program,
    report_of,
    run,
)

THREADS = 4
OPERATIONS = int(os.environ.get("MEMSHIM_SPILL_OPERATIONS", "6000")) // THREADS
FAILING_OPERATIONS = max(min(OPERATIONS, 10000 // THREADS), 400)
CAP_BYTES = 136 * MIB
CONTEXT_BYTES = 8 * MIB
LIVE_MIB = 48  # of a thread: 192 MiB, 1.5 times what the cap leaves

# Of report.txt.
LEDGER = re.compile(
    r"  host memory in the device's place: at most (?P<peak>[\d.]+) MiB, not charged: .*\n"
    r"  spilled to host memory: (?P<down>[\d.]+) MiB in (?P<downs>\d+) moves; "
    r"back: (?P<up>[\d.]+) MiB in (?P<ups>\d+); the device waited .* for the moves\n"
    r"    used there over the bus: (?P<bus>[\d.]+) M?i?B~ in (?P<uses>\d+) uses\n"
    r"    with a cap of (?P<cap>[\d.]+) MiB~ nothing would have had to move "
    r"\(fraction (?P<fraction>[\d.]+)\)\n"
    r"(?P<sites>(?:    .*\n)*)"
)
SITE = re.compile(
    r"(?P<down>[\d.]+) MiB in (?P<blocks>\d+) blocks, back (?P<up>[\d.]+) MiB: "
    r"ledger_job\.c:\d+ in make_cold"
)


class Spill(ProcessTest):
    def job(self, operations: int, *arguments: str, **settings: Any) -> Result:
        """More alive than the cap allows; MEMSHIM_SPILL and the like by `settings`."""
        return run(
            [program("spill_job"), "7", str(operations), str(LIVE_MIB), *arguments],
            shim=True,
            timeout_s=600 if OPERATIONS <= 10000 else 7200,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "MEMSHIM_SPILL": "auto",
                "MEMSHIM_LIMIT": CAP_BYTES,
                "MEMSHIM_SPILL_LIMIT": "512MiB",
                "SIMGPU_MEMORY": "1GiB",
                "SIMGPU_CONTEXT": CONTEXT_BYTES,
                "SIMGPU_DELAY_US": "0-50",
                **settings,
            },
        )

    def device(self) -> dict[str, Any]:
        (folder,) = process_folders(self.output)
        if not (folder / "report.json").exists():  # of the longest runs none is made at exit
            report = folder / "report.json"
            run(
                [CLI, "report", folder, "--format", "json", "--output", report], timeout_s=7200
            ).check()
        device = report_of(folder)["devices"][0]
        assert isinstance(device, dict)
        self.assertLessEqual(device["peak_charged_bytes"], CAP_BYTES)
        return device

    def test_contents(self) -> None:
        result = self.job(OPERATIONS).check()
        account = json.loads(result.stdout)
        self.assertEqual(account["refused"], 0)
        self.assertGreater(account["checked"], OPERATIONS)
        device = self.device()
        self.assertGreater(device["peak_live_bytes"], 1.4 * (CAP_BYTES - CONTEXT_BYTES))
        spill = device["spill"]
        # Of 1,000,000 operations these are thousands. In a short run chance decides how many come
        # back: whether the thread that tells steps tells two while the others hold little.
        self.assertGreater(spill["spills"], OPERATIONS * THREADS // 300)
        self.assertGreater(spill["promotes"], 0 if OPERATIONS < 100000 else 1000)
        self.assertGreater(spill["held_ns"], 0)
        self.assertGreaterEqual(spill["peak_host_bytes"], 32 * MIB)
        # Every byte that moved was somebody's, but for what lay free beside it.
        moved = sum(site["spilled_bytes"] for site in spill["sites"])
        self.assertLessEqual(moved, spill["spilled_bytes"])
        self.assertGreater(moved, spill["spilled_bytes"] // 2)
        self.assertIn("make_block", spill["sites"][0]["line"])
        # A cap at which this would have fitted, and not one that was enough anyway.
        self.assertGreater(spill["estimated_cap_without_bytes"], device["peak_live_bytes"])

    def test_steps_that_repeat(self) -> None:
        """What is used comes back before it is; also where the program tells no steps."""
        steps, warm_up = 9, 4
        for told in ((), ("told",)):
            with self.subTest(told), tempfile.TemporaryDirectory() as folder:
                run(
                    [program("step_job"), str(steps), *told],
                    shim=True,
                    MEMSHIM_OUTPUT=folder,
                    MEMSHIM_SPILL="auto",
                    MEMSHIM_LIMIT=CAP_BYTES,
                    SIMGPU_MEMORY="1GiB",
                    SIMGPU_CONTEXT=CONTEXT_BYTES,
                ).check()
                device = only_report(Path(folder))["devices"][0]
                over_bytes = device["peak_live_bytes"] - (CAP_BYTES - CONTEXT_BYTES)
                self.assertGreater(over_bytes, 8 * MIB)
                spill = device["spill"]
                self.assertGreater(spill["promotes"], steps - warm_up)
                self.assertGreater(spill["promoted_bytes"], (steps - warm_up) * over_bytes)
                # The optimizer's state lies there in the first steps, and no more.
                self.assertLess(spill["estimated_bus_bytes"], warm_up * 2 * over_bytes)

    def test_what_is_said(self) -> None:
        stderr = self.job(300).check().stderr
        for line in (": warning, ", ": emergency, ", "They keep their addresses"):
            self.assertEqual(stderr.count(line), 1, stderr)

    def account(self, *arguments: str, **settings: Any) -> tuple[Result, Path]:
        """ledger_job, and where its report is."""
        output = Path(tempfile.mkdtemp(dir=self.folder))
        result = run(
            [program("ledger_job"), *arguments],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": output,
                "MEMSHIM_SPILL": "auto",
                "MEMSHIM_LIMIT": CAP_BYTES,
                "SIMGPU_MEMORY": "1GiB",
                "SIMGPU_CONTEXT": CONTEXT_BYTES,
                **settings,
            },
        ).check()
        (folder,) = process_folders(output)
        return result, folder

    def test_the_ledger(self) -> None:
        """What the report says of it is what the program knows by itself."""
        delay_us = 5000
        result, folder = self.account("moved", SIMGPU_DELAY_US=f"{delay_us}-{delay_us}")
        said = json.loads(result.stdout)
        text = (folder / "report.txt").read_text()
        found = re.search(LEDGER, text)
        assert found is not None, text
        # Live: 12 cold blocks, 16 hot ones and 8 blocks' worth more. Only the cold ones have to go,
        # and once that is over all of them are back.
        block_mib = 4
        spilled = float(found["down"])
        self.assertGreaterEqual(spilled, 36 * block_mib - (CAP_BYTES - CONTEXT_BYTES) / MIB)
        self.assertLessEqual(spilled, 12 * block_mib)
        self.assertEqual(float(found["up"]), spilled)
        self.assertEqual(float(found["peak"]), spilled)
        # Each byte of them was written once while it lay there.
        self.assertEqual(float(found["bus"]), spilled)
        self.assertGreaterEqual(int(found["uses"]), spilled / block_mib)
        self.assertLessEqual(int(found["uses"]), 12)
        self.assertEqual(found["sites"].count("\n"), 1, text)
        site = re.fullmatch(SITE, found["sites"].strip())
        assert site is not None, text
        self.assertEqual(float(site["down"]), spilled)
        self.assertEqual(float(site["up"]), spilled)
        self.assertIn(int(site["blocks"]), range(int(spilled) // block_mib, 13))
        # No move without a copy, and no copy is faster than that.
        held = only_report(folder.parents[1])["devices"][0]["spill"]["held_ns"]
        moves = int(found["downs"]) + int(found["ups"])
        self.assertGreaterEqual(held, moves * delay_us * 1000)
        self.assertLessEqual(held, said["down_ns"] + said["up_ns"])
        # With what would have been enough nothing moves; with what is too little something does.
        for cap, moves in (
            ({"MEMSHIM_LIMIT": found["cap"] + "MiB"}, False),
            ({"MEMSHIM_LIMIT": "", "MEMSHIM_FRACTION": found["fraction"]}, False),
            ({"MEMSHIM_LIMIT": f"{36 * block_mib + CONTEXT_BYTES // MIB - 1}MiB"}, True),
        ):
            with self.subTest(cap):
                _, folder = self.account("moved", **cap)
                self.assertEqual(
                    "spilled to host memory" in (folder / "report.txt").read_text(), moves
                )

    def test_thrashing(self) -> None:
        """Said once; from then on what came and went stays, and what is used was never moved."""
        times = 24
        result, folder = self.account("thrash", str(times), MEMSHIM_STACKS="off")
        self.assertEqual(result.stderr.count("and back over and over"), 1, result.stderr)
        found = re.search(LEDGER, (folder / "report.txt").read_text())
        assert found is not None
        # Not held, 16 MiB would come back each time.
        self.assertLess(float(found["up"]), times * 16 / 2)
        # What is used each step never lay there; the cold ones are looked at once.
        self.assertLessEqual(float(found["bus"]), 12 * 4)
        # Steps that are foretold move what does not fit, and nobody says that it stays.
        stderr = (
            run(
                [program("step_job"), "12", "told"],
                shim=True,
                MEMSHIM_OUTPUT=self.output,
                MEMSHIM_SPILL="auto",
                MEMSHIM_LIMIT=CAP_BYTES,
                SIMGPU_MEMORY="1GiB",
                SIMGPU_CONTEXT=CONTEXT_BYTES,
            )
            .check()
            .stderr
        )
        self.assertNotIn("over and over", stderr)

    def test_every_call_failing_in_turn(self) -> None:
        result = self.job(FAILING_OPERATIONS, "fail", MEMSHIM_LOG="off").check()
        self.assertGreater(json.loads(result.stdout)["checked"], FAILING_OPERATIONS)
        self.assertGreater(self.device()["spill"]["spills"], 0)

    def test_off(self) -> None:
        result = self.job(50, MEMSHIM_SPILL="off")
        self.assertEqual(result.status, 1)
        self.assertIn("an allocation gave 2", result.stderr)
        report = only_report(self.output)
        self.assertEqual(report["devices"][0]["spill"]["spills"], 0)
        self.assertIn(report["oom_events"][-1]["verdict"], ("cap", "fragmentation"))

    def test_the_limit(self) -> None:
        """Of equal blocks of whole granules: the verdict depends on no free bytes between them."""
        self.share(4, 1, MEMSHIM_SPILL_LIMIT="16MiB")
        last = only_report(self.output)["oom_events"][-1]
        self.assertEqual(last["verdict"], "spill_limit")
        self.assertIn("of the 16.0 MiB of host memory", last["sentence"])

    def share(self, block_mib: int, devices: int, **settings: Any) -> Result:
        return run(
            [program("share_job"), str(block_mib), str(devices)],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "MEMSHIM_SPILL": "auto",
                "MEMSHIM_LIMIT": "72MiB",
                "SIMGPU_DEVICES": devices,
                "SIMGPU_MEMORY": "256MiB",
                "SIMGPU_CONTEXT": CONTEXT_BYTES,
                **settings,
            },
        ).check()

    def test_devices_share_the_limit(self) -> None:
        """What one has taken is not the other's; what it needs no more is."""
        result = self.share(4, 2, MEMSHIM_SPILL_LIMIT="48MiB")
        on_device, on_host = 64 // 4, 48 // 4
        self.assertEqual(
            [int(blocks) for blocks in result.stdout.split()],
            [on_device + on_host, on_device, on_host],
        )
        for device in only_report(self.output)["devices"]:
            self.assertEqual(device["spill"]["peak_host_bytes"], 48 * MIB)

    def test_ranks_share_what_the_host_has(self) -> None:
        limits = []
        for ranks in (1, 4):
            with tempfile.TemporaryDirectory() as folder:
                settings = {"MEMSHIM_OUTPUT": folder, "LOCAL_WORLD_SIZE": ranks}
                stderr = self.share(1, 1, **settings).stderr
            found = re.search(r"\(the limit is ([0-9.]+) ([KMG])iB\)", stderr)
            assert found is not None, stderr
            limits.append(float(found[1]) * 1024 ** "KMG".index(found[2]))
        # Others take and leave memory meanwhile.
        self.assertAlmostEqual(limits[0] / limits[1], 4, delta=1)

    def test_a_device_without_the_road(self) -> None:
        result = self.job(50, SIMGPU_HOST_NUMA=0)
        self.assertEqual(result.status, 1)
        self.assertEqual(self.device()["spill"]["spills"], 0)

    def test_born_on_the_host(self) -> None:
        """Without the road new blocks lie on the host, as far as the limit goes."""
        cases: tuple[dict[str, Any], ...] = (
            {"SIMGPU_HOST_NUMA": 0},
            {"SIMGPU_HOST_NUMA": 0, "SIMGPU_FAIL": "cuMemAllocManaged@*=801"},
            {"SIMGPU_NO_VMM": 1},
        )
        for settings in cases:
            with self.subTest(settings), tempfile.TemporaryDirectory() as folder:
                result = self.job(400, "plain", **settings, MEMSHIM_OUTPUT=folder).check()
                self.assertEqual(json.loads(result.stdout)["refused"], 0)
                managed = "SIMGPU_FAIL" not in settings
                place = "managed memory on the host" if managed else "pinned host memory"
                self.assertEqual(result.stderr.count(f"it lies in {place}"), 1, result.stderr)
                device = only_report(Path(folder))["devices"][0]
                self.assertLessEqual(device["peak_charged_bytes"], CAP_BYTES)
                self.assertGreater(device["peak_host_pinned_bytes"], 32 * MIB)
        answers = run([program("born_job")], SIMGPU_MEMORY="1GiB").check().stdout
        for settings in cases:
            with self.subTest(settings, answers=True), tempfile.TemporaryDirectory() as folder:
                shimmed = run(
                    [program("born_job")],
                    shim=True,
                    SIMGPU_MEMORY="512MiB",
                    SIMGPU_CONTEXT="8MiB",
                    MEMSHIM_LIMIT="136MiB",
                    MEMSHIM_SPILL="auto",
                    MEMSHIM_SPILL_LIMIT="128MiB",
                    MEMSHIM_OUTPUT=folder,
                    **settings,
                ).check()
                self.assertEqual(shimmed.stdout, answers)
                device = only_report(Path(folder))["devices"][0]
                self.assertGreater(device["peak_host_pinned_bytes"], 32 * MIB)
        refusals: tuple[dict[str, Any], ...] = (
            {"MEMSHIM_SPILL": "off"},
            {"MEMSHIM_SPILL_LIMIT": "8MiB"},
        )
        for settings in refusals:
            with self.subTest(settings):
                self.assertEqual(self.job(50, "plain", SIMGPU_HOST_NUMA=0, **settings).status, 1)


if __name__ == "__main__":
    unittest.main()
