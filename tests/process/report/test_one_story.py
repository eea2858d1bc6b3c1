# SPDX-License-Identifier: Apache-2.0
"""report.txt, report.json, the timeline and the stacks of one run say the same numbers, and what is
in parts adds up to the whole."""

from __future__ import annotations

import json
import re
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import CLI, MIB, process_folders, program, run, run_of_three
from report.test_page_views import bytes_text

SMALL: dict[str, Any] = {"SIMGPU_MEMORY": "1GiB", "SIMGPU_CONTEXT": 64 * MIB}
RUNS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "served by the driver": (["verdict_job", "ledger"], SMALL),
    "without the pool": (["verdict_job", "holes"], {**SMALL, "MEMSHIM_POOL": "off"}),
    "holes that nobody may take": (["verdict_job", "holes"], {**SMALL, "SIMGPU_HOST_NUMA": 0}),
    "out of memory under a cap": (
        ["verdict_job", "ask", "300", "300"],
        {**SMALL, "MEMSHIM_FRACTION": "0.5"},
    ),
    "arena": (["serve_job", "arena"], {}),
    "the driver's pools": (["serve_job", "pools"], {}),
    "two devices": (["driver_resolved_job"], {"SIMGPU_DEVICES": 2}),
    "tags": (["tags_job", "nested"], {}),
    "growth": (["growth_job", "13"], {}),
}


def folders() -> Iterator[tuple[str, Path]]:
    for name, (command, settings) in RUNS.items():
        with tempfile.TemporaryDirectory() as output:
            run(
                [program(command[0]), *command[1:]],
                shim=True,
                MEMSHIM_OUTPUT=output,
                MEMSHIM_LOG="off",
                **settings,
            )
            for folder in process_folders(Path(output)):
                yield name, folder
    for folder in process_folders(run_of_three().parent):
        yield "made", folder


class OneStory(unittest.TestCase):
    def export(self, form: str) -> str:
        return run([CLI, "report", self.folder, "--format", form]).check().stdout

    def test_every_form_of_a_run(self) -> None:
        for name, self.folder in folders():
            with self.subTest(name):
                self.report = json.loads(self.export("json"))
                self.text = self.export("text")
                kept = self.folder / "report.txt"
                self.assertEqual(self.text, kept.read_text() if kept.exists() else self.text)
                self.stacks = 0
                self.assertTrue(self.report["devices"])
                for device in self.report["devices"]:
                    self.parts_are_the_whole(device)
                    self.text_says_it(device)
                    self.timeline_reaches_it(device)
                folded = [
                    int(line.rsplit(" ", 1)[1]) for line in self.export("folded").split("\n")[:-1]
                ]
                self.assertEqual(sum(folded), self.stacks)

    def of(self, device: dict[str, Any], rows: str) -> list[dict[str, Any]]:
        return [row for row in self.report[rows] if row["device"] == device["index"]]

    def parts_are_the_whole(self, device: dict[str, Any]) -> None:
        peak = device["peak_live_bytes"]
        self.assertEqual(device["peak"]["live_bytes"], peak)
        sites = self.of(device, "call_sites")
        self.assertEqual(sum(site["at_peak_bytes"] for site in sites), peak)
        self.assertEqual(sum(kind["at_peak_bytes"] for kind in self.of(device, "kinds")), peak)
        allocations = device["allocations"] + (device["tensors"] or {"births": 0})["births"]
        served = sum(site["forwarded_at_peak_bytes"] for site in sites)
        if served == 0:
            self.assertLessEqual(sum(site["allocations"] for site in sites), allocations)
        self.stacks += peak + served

        # Charged at the peak: what is live or a hole, and what the driver took.
        ledger = {row["name"]: row["bytes"] for row in device["peak"]["ledger"]}
        whole = device["total_bytes"] if "unexplained" in ledger else device["cap_bytes"]
        self.assertEqual(sum(ledger.values()), whole)
        self.assertLessEqual(device["peak"]["charged_bytes"], device["peak_charged_bytes"])
        self.assertLessEqual(device["peak"]["reserved_bytes"], device["peak_reserved_bytes"])

    def text_says_it(self, device: dict[str, Any]) -> None:
        live, reserved, charged = (
            bytes_text(device[f"peak_{what}_bytes"]) for what in ("live", "reserved", "charged")
        )
        self.assertIn(
            f"  peak   live {live}   reserved {reserved}   charged {charged}\n", self.text
        )
        for event in self.report["oom_events"]:
            self.assertIn(event["verdict"], self.text)
            self.assertIn(f"asked for {bytes_text(event['requested_bytes'])}", self.text)
        _, _, asked = self.text.partition("\nWho asked for what was live when live bytes peaked")
        shares = re.findall(r"^ +\S+ \S+ +([\d.]+) %  ", asked.partition("\n\n")[0], re.MULTILINE)
        self.assertLessEqual(sum(float(share) for share in shares), 101)

    def timeline_reaches_it(self, device: dict[str, Any]) -> None:
        name = f"device {device['index']} live by kind"
        told = [
            sum(event["args"].values())
            for event in json.loads(self.export("timeline"))["traceEvents"]
            if event["name"] == name
        ]
        if told:
            self.assertEqual(max(told), device["peak_live_bytes"])


if __name__ == "__main__":
    unittest.main()
