# SPDX-License-Identifier: Apache-2.0
"""What `documents.read_report` asks of every report can fail: reports with one thing changed."""

from __future__ import annotations

import json
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contradictions import contradictions
from machine import GIB, MIB, process_folders, program, run
from report_sums import bytes_text
from report_words import DATA

Report = dict[str, Any]


def ledger_row(report: Report, name: str) -> Report:
    rows = report["oom_events"][-1]["ledger"]
    found: Report = next(row for row in rows if row["name"] == name)
    return found


def more_in_the_ledger(report: Report) -> None:
    ledger_row(report, "context")["bytes"] += 1


def negative_row(report: Report) -> None:
    ledger_row(report, "free")["bytes"] = -1


def another_verdict(report: Report) -> None:
    report["oom_events"][-1]["verdict"] = "demand"


def another_shortage(report: Report) -> None:
    report["oom_events"][-1]["short_bytes"] += MIB


def another_request(report: Report) -> None:
    report["oom_events"][-1]["requested_bytes"] += MIB


def larger_batch(report: Report) -> None:
    report["oom_events"][-1]["estimated_factor_that_fits"] = 1.1


def whole_batch_at_most(report: Report) -> None:
    report["oom_events"][-1]["factor_at_most"] = 1.0


def more_than_at_most(report: Report) -> None:
    report["oom_events"][-1]["estimated_factor_at_least"] = 0.9


def another_bound(report: Report) -> None:
    report["oom_events"][-1]["rule"]["cap_bytes"] = report["devices"][0]["total_bytes"]


def another_need(report: Report) -> None:
    report["oom_events"][-1]["rule"]["need_bytes"] += 1


def another_piece(report: Report) -> None:
    report["oom_events"][-1]["rule"]["piece_bytes"] = 1


def another_answer(report: Report) -> None:
    report["answer"]["headline"] = "All is well."


def another_note(report: Report) -> None:
    report["notes"] = [note.replace(" cap: ", " demand: ") for note in report["notes"]]


def row_that_the_text_has_not(report: Report) -> None:
    ledger_row(report, "context")["bytes"] += MIB
    ledger_row(report, "free")["bytes"] -= MIB


def growth_of_nothing(report: Report) -> None:
    event = report["oom_events"][-1]
    event["sentence"] = event["sentence"].replace(" cap: ", " growth: ")
    event["verdict"] = "growth"


def site_beyond_the_peak(report: Report) -> None:
    report["call_sites"][0]["peak_bytes"] = report["devices"][0]["total_bytes"] * 2


def more_frees(report: Report) -> None:
    report["call_sites"][0]["frees"] = report["call_sites"][0]["allocations"] + 1


def kind_lost(report: Report) -> None:
    report["kinds"] = [kind for kind in report["kinds"] if kind["at_peak_bytes"] == 0]


def less_than_live(report: Report) -> None:
    report["devices"][0]["overhead"] = {"ratio": 0.98, "torch_ratio": None}


def smaller_cap_does(report: Report) -> None:
    cap = {"cap_bytes": 2 * MIB, "too_small_bytes": 0, "peak_host_bytes": 0}
    report["what_if"] = {
        "why": None,
        "oom": len(report["oom_events"]) - 1,
        "without_spill": cap,
        "with_spill": None,
        "own_cap_with_spill": False,
        "own_cap_host_bytes": 0,
    }


def ended_well(report: Report) -> None:
    report["process"]["exit"] = 0


def none_judged(report: Report) -> None:
    report["oom_events"][-1]["recovered"] = True


CHANGES: dict[Callable[[Report], None], str] = {
    more_in_the_ledger: "the rows are",
    negative_row: "free is -1 bytes",
    another_verdict: "demand, but the sentence says",
    another_shortage: "bytes short, not as in",
    another_request: "bytes were asked for, not as in",
    another_bound: "cap, by the rule not_device",
    another_need: "bytes were needed, by the rule",
    another_piece: "bytes were asked for, not as in {",
    another_answer: "does not begin with",
    another_note: "said during the run: demand",
    row_that_the_text_has_not: "another ledger than report.json",
    larger_batch: "of the batch that failed fits",
    whole_batch_at_most: "at most",
    more_than_at_most: "of the batch fits",
    growth_of_nothing: "growth, of 0 bytes",
    site_beyond_the_peak: "bytes at once, of",
    more_frees: "frees of",
    kind_lost: "kinds had 0 bytes at the peak",
    less_than_live: "less than what was live",
    smaller_cap_does: "does, under",
    ended_well: "did not recover",
    none_judged: "that was recovered from",
}


class Contradictions(unittest.TestCase):
    """A program that asks for 300 MiB twice, under a cap of half a device of 1 GiB."""

    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        cls.addClassCleanup(holder.cleanup)
        run(
            [program("verdict_job"), "ask", "300", "300"],
            shim=True,
            MEMSHIM_OUTPUT=holder.name,
            SIMGPU_MEMORY=GIB,
            SIMGPU_CONTEXT=64 * MIB,
            MEMSHIM_FRACTION="0.5",
        )
        (cls.folder,) = process_folders(Path(holder.name))

    def changed(self, file: str, change: Callable[[str], str]) -> list[str]:
        """What is found in a copy of the folder in which that file is another."""
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as place:
            copy = Path(place) / self.folder.name
            shutil.copytree(self.folder, copy)
            text = (copy / file).read_text()
            other = change(text)
            self.assertNotEqual(other, text)
            (copy / file).write_text(other)
            return contradictions(copy)

    def test_the_report_as_it_is(self) -> None:
        self.assertEqual(contradictions(self.folder), [])
        self.assertTrue((self.folder / "report.html").exists())

    def test_what_is_changed_in_the_json(self) -> None:
        for change, sentence in CHANGES.items():
            with self.subTest(change.__name__):

                def edit(text: str, change: Callable[[Report], None] = change) -> str:
                    report = json.loads(text)
                    change(report)
                    return json.dumps(report)

                found = self.changed("report.json", edit)
                self.assertTrue(any(sentence in one for one in found), found)

    def test_what_is_changed_in_the_text(self) -> None:
        for old, new, sentence in (
            ("  why    cap:", "  why    growth:", "report.txt says 'growth'"),
            ("  next   a larger", "  next   a smaller", "where the verdict is cap"),
            ("\n  holds  ", "\n", "does not say who holds"),
            ("asked for 300.0 MiB", "asked for 301.0 MiB", "bytes were asked for, not as in"),
            ("  peak   live ", "  peak   live 1", "does not say: peak"),
            ("the request come to ", "the request come to 1", "report.txt needs 1"),
            ("this one request was ", "this one request was 1", "report.txt: 1"),
            ("  tried  ", "  torch  PyTorch counted 1 B\n  tried  ", "what PyTorch counts"),
            ("under a cap of ", "under a cap of 1", "report.txt, tried"),
            (" MiB free = ", " MiB free = 1", "report.txt adds up to"),
            ("which would have moved ", "which would have moved 1", "bytes on the host"),
            (" %  ", " %  101.0 %  ", "101.0 %"),
        ):
            with self.subTest(new):

                def edit(text: str, old: str = old, new: str = new) -> str:
                    return text.replace(old, new)

                found = self.changed("report.txt", edit)
                self.assertTrue(any(sentence in one for one in found), found)

    def test_what_is_changed_in_the_page(self) -> None:
        def edit(page: str) -> str:
            held = DATA.search(page)
            assert held
            return page.replace(held[1], held[1].replace('"verdict":"cap"', '"verdict":"demand"'))

        found = self.changed("report.html", edit)
        self.assertEqual(found, ["report.html: oom_events is another than in report.json"])

    def test_bytes_are_written_as_in_the_text(self) -> None:
        for value, text in (
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (300 * MIB, "300.0 MiB"),
            (GIB - 1, "1.00 GiB"),
            (1024 * GIB, "1.00 TiB"),
            (1 << 63, "8.00 EiB"),
        ):
            self.assertEqual(bytes_text(value), text)


if __name__ == "__main__":
    unittest.main()
