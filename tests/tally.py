# SPDX-License-Identifier: Apache-2.0
"""Adds up what the test programs said: one plain line at the end, failed and skipped by name, and
the ten that took longest.

Usage: tally.py [--skipped NAME=REASON]... [--ctest JUNIT.XML] [--unittest LOG]...

ctest counts a program as one test; here the cases inside it count, where it says how many it had
(Criterion's synthesis, unittest's summary). Exit status 1 when something failed or nothing ran.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

CRITERION = re.compile(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
CRITERION_SKIP = re.compile(r"\[SKIP\]\s*(\S+?):? (.*)")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ([\d.]+)s", re.MULTILINE)
UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
# unittest -v puts a test's docstring on a line of its own between the name and the verdict.
UNITTEST_CASE = re.compile(
    r"^(\w+) \(([\w.]+)\)(?:\n(?!\w+ \()[^\n]*)?? \.\.\. (?:[^\n]*\n)*?[^\n]*?"
    r"\b(ok|FAIL|ERROR|skipped .*|expected failure)$",
    re.MULTILINE,
)
LONGEST = 10
UNITTEST_BAD = re.compile(r"^(?:FAIL|ERROR): (.+)$", re.MULTILINE)


@dataclass
class Tally:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of programs, by name


def skipped_cases(text: str) -> list[str]:
    names = []
    for match in UNITTEST_CASE.finditer(text):
        if match[3].startswith("skipped"):
            # Since Python 3.11 the class is followed by the method's name once more.
            place = match[2].removesuffix(f".{match[1]}").rpartition(".")[2]
            names.append(f"{place}.{match[1]}: {match[3][8:].strip()}")
    return names


def count_unittest(tally: Tally, name: str, text: str) -> bool:
    """Adds a unittest run (-v) to the tally; False where the text is not one."""
    ran = UNITTEST_RAN.search(text)
    end = UNITTEST_END.search(text, ran.end()) if ran else None
    if not ran or not end:
        return False
    tally.seconds.setdefault(name, float(ran[2]))
    counts = {key: int(value) for key, value in re.findall(r"([a-z ]+)=(\d+)", end[1] or "")}
    skipped = next((value for key, value in counts.items() if key.strip() == "skipped"), 0)
    bad = sorted(set(UNITTEST_BAD.findall(text)))
    named = skipped_cases(text)[:skipped]
    named += [f"{name}: a case without a name"] * (skipped - len(named))
    tally.failed += [f"{name}: {case}" for case in bad]
    tally.skipped += [f"{name}: {case}" for case in named]
    tally.passed += max(int(ran[1]) - len(bad) - skipped, 0)
    return True


def count_criterion(tally: Tally, name: str, text: str) -> bool:
    match = CRITERION.search(text)
    if not match:
        return False
    tally.passed += int(match[2])
    tally.failed += (
        [f"{name}: {int(match[3]) + int(match[4])} cases"]
        if match[3] != "0" or (match[4] != "0")
        else []
    )
    tally.skipped += [f"{name}: {case}" for case, _ in CRITERION_SKIP.findall(text)]
    return True


def count_ctest(tally: Tally, path: Path) -> None:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name", "?")
        text = case.findtext("system-out") or ""
        tally.seconds[name] = float(case.get("time", 0))
        failed_before = len(tally.failed)
        if case.get("status") in ("notrun", "disabled") or case.find("skipped") is not None:
            skip = case.find("skipped")
            why = (skip.get("message") if skip is not None else None) or "not run"
            tally.skipped.append(f"{name}: {why}")
            continue
        counted = count_criterion(tally, name, text) or count_unittest(tally, name, text)
        if case.get("status") == "fail":
            if len(tally.failed) == failed_before:
                tally.failed.append(name)
        elif not counted:
            tally.passed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Adds up what the test programs said.")
    parser.add_argument("--ctest", type=Path, action="append", default=[])
    parser.add_argument("--unittest", type=Path, action="append", default=[])
    parser.add_argument("--skipped", action="append", default=[])
    arguments = parser.parse_args()

    tally = Tally()
    for path in arguments.ctest:
        count_ctest(tally, path)
    for path in arguments.unittest:
        if not count_unittest(tally, path.stem, path.read_text(errors="replace")):
            tally.failed.append(f"{path.stem}: it ended before its summary")
    tally.skipped += [text.replace("=", ": ", 1) for text in arguments.skipped]

    for name in sorted(tally.seconds, key=tally.seconds.__getitem__, reverse=True)[:LONGEST]:
        print(f"{tally.seconds[name]:7.0f} s  {name}")
    for text in tally.skipped:
        print(f"skipped  {text}")
    for text in tally.failed:
        print(f"FAILED   {text}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed or tally.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
