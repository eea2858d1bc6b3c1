# SPDX-License-Identifier: Apache-2.0
"""What a report says twice it says alike, sums add up, and no advice is against a measurement.

    contradictions(FOLDER)        # of a process's folder, or of a run's: sentences, one a finding
    python contradictions.py FOLDER...

`documents.read_report` asks for every report that a test reads. What a report has to say at all is
the tests' own business: here stands only what is wrong in any report, whatever the program did.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from report_sums import Json, judged_event, of_process
from report_words import of_page, of_shares, of_text


def of_run(report: Json, text: str) -> Iterator[str]:
    ranks = {rank["folder"]: rank for rank in report["ranks"]}
    processes = {process["folder"]: process for process in report["processes"]}
    if ranks.keys() != processes.keys():
        yield f"the run has ranks {sorted(ranks)} and processes {sorted(processes)}"
        return
    for member in ("first_dead", "outlier"):
        if report[member] is not None and report[member] not in ranks:
            yield f"{member} is {report[member]}, which is no process of this run"
    for folder, rank in ranks.items():
        if rank["died_of_oom"] != (judged_event(processes[folder]) is not None):
            yield f"{folder} died of memory by its rank, or by itself, not by both"
        yield from (f"{folder}: {found}" for found in of_process(processes[folder]))
    dead = sum(rank["died_of_oom"] for rank in ranks.values())
    alone = dead == len(ranks) == 1 and " ran out of memory:\n" in text
    if dead and not alone and f"\n{dead} of {len(ranks)} processes" not in text:
        yield f"{dead} of {len(ranks)} processes ran out of memory, report.txt says otherwise"
    yield from of_shares(text)


def contradictions(folder: Path) -> list[str]:
    """In the files of a folder; those that are not there say nothing."""
    report: Json = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if report["schema"] == "memshim-run-report/1":
        return list(of_run(report, (folder / "report.txt").read_text(encoding="utf-8")))
    found = list(of_process(report))
    text, page = folder / "report.txt", folder / "report.html"
    if text.exists():
        found += of_text(report, text.read_text(encoding="utf-8", errors="replace"))
    if page.exists():
        found += of_page(report, page.read_text(encoding="utf-8"), folder.name)
    return found


def main() -> int:
    status = 0
    for folder in sys.argv[1:]:
        for sentence in contradictions(Path(folder)):
            print(f"{folder}: {sentence}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
