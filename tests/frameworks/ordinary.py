# SPDX-License-Identifier: Apache-2.0
"""What holds of an ordinary script of any framework, with a leak planted in it.

A script says at its end how many bytes its framework had at most, by the framework's own figure,
and what it came to: one JSON line, {"event": "end", "peak_bytes": ..., ...}. Of several ranks each
says so, with its "rank".
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness
from owners import owners

MIB = 1 << 20


@dataclass(frozen=True)
class Program:
    """A script, and how it is run."""

    source: str
    arguments: Sequence[str] = ()
    ranks: int = 0  # under torchrun
    settings: Mapping[str, object] = field(default_factory=dict)
    before: Sequence[str] = ()  # words that its command line begins with

    def alone(self) -> harness.Result:
        return harness.run(
            self.source, *self.arguments, ranks=self.ranks, before=self.before, **self.settings
        )

    def under_memshim(self, **more: object) -> harness.Job:
        return harness.run_memshim(
            self.source,
            *self.arguments,
            ranks=self.ranks,
            before=self.before,
            **{**self.settings, **more},
        )

    def line_of(self, text: str) -> int:
        return 1 + self.source[: self.source.index(text)].count("\n")


def ends_of(result: harness.Result) -> list[dict[str, Any]]:
    """What each rank said at its end."""
    return sorted(result.check().lines("end"), key=lambda end: int(end.get("rank", 0)))


def reports_of(job: harness.Job) -> list[dict[str, Any]]:
    """That of each rank which left one."""
    return sorted(job.reports, key=lambda report: int(report["process"]["rank"] or 0))


class Ordinary(unittest.TestCase):
    """Runs a script alone, under memshim, and with half and nine tenths of what it needs."""

    def check_script(
        self,
        program: Program,
        *,
        steps: int,
        line: str,
        each: int,
        refused: str,
        unseen: int = 0,
        near: float = 0,
    ) -> dict[str, Any]:
        """Its report; of several ranks, the first one's.

        line: words of the line that keeps `each` bytes more, in a step or now and then.
        refused: words of the framework's error where memory runs out.
        unseen: so many steps may be missing. near: by what part the peak may differ from the
        framework's own.
        """
        alone = self.results_of(program.alone())
        job = program.under_memshim()
        self.assertEqual(self.results_of(job.result), alone)
        reports = reports_of(job)
        for end, report in zip(ends_of(job.result), reports, strict=True):
            device = report["devices"][0]
            if end["peak_bytes"] is not None:
                peak = end["peak_bytes"]
                self.assertAlmostEqual(device["peak_live_bytes"], peak, delta=near * peak)
            self.assert_named(report)
            found = report["steps"]
            self.assertIn(found["count"], range(steps - unseen, steps + 1), found)
            self.assert_leak(device, program.line_of(line), each)
        self.check_cap(program, reports[0]["devices"][0], refused)
        self.check_spill(program, reports[0]["devices"][0], alone)
        return reports[0]

    @staticmethod
    def results_of(result: harness.Result) -> list[dict[str, Any]]:
        ends = ends_of(result)
        return [{name: end[name] for name in end if name != "peak_bytes"} for end in ends]

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
        # What else passes through that line may be there yet: a few bytes.
        seen = grown / rounds if rounds else leak["bytes_per_round"]
        self.assertAlmostEqual(seen / each, 1, delta=0.001, msg=leak)

    @staticmethod
    def limit_of(device: dict[str, Any], part: float) -> int:
        """A limit that leaves this part of the peak's live bytes."""
        beside = device["peak_charged_bytes"] - device["peak_reserved_bytes"]
        return int(beside + part * device["peak_live_bytes"])

    def assert_kept(self, job: harness.Job, limit: int) -> None:
        for report in reports_of(job):
            self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], limit)

    def check_cap(self, program: Program, device: dict[str, Any], refused: str) -> None:
        # How far the program is ahead of the device differs from run to run, and so does its peak.
        limit = self.limit_of(device, 0.5)
        short = program.under_memshim(MEMSHIM_LIMIT=limit)
        self.assertNotEqual(short.result.status, 0)
        self.assertIn(refused, short.result.stderr)
        self.assertTrue(short.reports, short.result.describe())
        self.assert_kept(short, limit)

    def check_spill(
        self, program: Program, device: dict[str, Any], alone: list[dict[str, Any]]
    ) -> None:
        limit = self.limit_of(device, 0.9)
        spilled = program.under_memshim(MEMSHIM_LIMIT=limit, MEMSHIM_SPILL="auto")
        self.assertEqual(self.results_of(spilled.result), alone)
        self.assert_kept(spilled, limit)
