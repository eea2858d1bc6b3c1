#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the labelled corpus under memshim on the simulated GPU and compares answers with truths."""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truth import FOLDER, Truth, corpus

sys.path.append(str(FOLDER.parent / "torch"))

import harness  # noqa: E402
from contradictions import contradictions  # noqa: E402

CONTEXT_MIB = 128
FACTOR_ERROR = 0.03
SHORT_ERROR_MIB = 2  # a chunk of the device
DEAD = "dead, no out-of-memory in the report"
TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Answer:
    """What the report said, beside what is true. None: there is nothing to compare."""

    job: Truth
    verdict: str
    lines: tuple[str, ...]  # FILE:LINE, in the order of the text
    factor: float | None
    short_mib: float | None
    seconds: float
    most: float | None = None  # no larger a factor fits; where `factor` is not known
    broken: str = ""  # why nothing could be read
    contradictions: tuple[str, ...] = ()  # of the report with itself
    unseen: bool = (
        False  # it says that its lines asked for segments, and that none is known to keep
    )

    @property
    def verdict_right(self) -> bool:
        return self.verdict == self.job.verdict

    @property
    def culprit_right(self) -> bool | None:
        if self.job.names == "none" or (self.unseen and not self.known):
            return None
        return bool(self.lines) and self.lines[0] in self.job.culprits

    @property
    def known(self) -> bool:
        """Whether it names a line as the culprit. Without tensors a line that asked for segments
        may be right, but it is not said to be."""
        return bool(self.lines) and (not self.unseen or self.lines[0] in self.job.culprits)

    @property
    def factor_right(self) -> bool | None:
        """Of a batch that dies in a forward pass or an evaluation what comes behind the request was
        never seen: there a bound will do, if it is true."""
        if not self.job.fits:
            return None
        true = self.job.fits / self.job.batch
        if self.factor is None and not self.job.foretellable:
            return self.most is not None and true <= self.most < 1
        return self.factor is not None and abs(self.factor / true - 1) <= FACTOR_ERROR

    @property
    def short_right(self) -> bool | None:
        if self.job.short_mib < 0:
            return None
        near = self.short_mib is not None
        return near and abs((self.short_mib or 0) - self.job.short_mib) <= SHORT_ERROR_MIB


def settings_of(job: Truth) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SIMGPU_MEMORY": f"{job.memory_mib}MiB",
        "SIMGPU_CONTEXT": f"{CONTEXT_MIB}MiB",
        "SIMGPU_CONTENTS": "none",
        "SIMGPU_DEVICES": job.ranks,
        "MEMSHIM_SPILL": "auto" if job.spill_mib else "off",
        "MEMSHIM_TORCH": job.mode if job.mode in ("native", "tensor", "off") else "native",
    }
    if job.cap_mib:
        found["MEMSHIM_LIMIT"] = f"{job.cap_mib}MiB"
    else:
        found["MEMSHIM_FRACTION"] = "1"
    if job.spill_mib:
        found["MEMSHIM_SPILL_LIMIT"] = f"{job.spill_mib}MiB"
    if job.mode == "pool-off":
        found["MEMSHIM_POOL"] = "off"
    if job.batch:
        found["MEMSHIM_BATCH"] = job.batch
    for setting in job.settings.split():
        name, _, value = setting.partition("=")
        found[name] = value
    return found


def start(job: Truth, output: Path, batch: int, timeout_s: float) -> harness.Result:
    script = job.command(batch)
    python = harness.torchrun(job.ranks) if job.ranks > 1 else [sys.executable]
    return harness.run_command(
        [harness.CLI, "run", "--", *python, *script],
        cwd=output,
        timeout_s=timeout_s,
        MEMSHIM_OUTPUT=str(output / "out"),
        **settings_of(job),
    )


def line_of(text: str, label: str) -> str:
    """The rest of the answer's line that begins with this word, before the first empty line."""
    answer = text.split("\n\n", 1)[0]
    found = re.search(rf"^ *{label}  (.*)$", answer, re.MULTILINE)
    return found[1] if found else ""


def lines_named(report: dict[str, Any], text: str, job: Truth) -> tuple[str, ...]:
    """Lines of the corpus that the report names as the culprit: in `why` and `holds`, or
    where the request itself is to blame, in `asked`."""
    said = line_of(text, "asked") if job.names == "asks" else line_of(text, "why")
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, job.files))}):\d+")
    found = pattern.findall(said)
    if not found and job.names == "grows":
        rows = [row for device in report["devices"] for row in device["growth"] or []]
        found = [number for row in rows[:1] for number in pattern.findall(row["line"] or "")]
    if not found and job.names != "asks":
        found = pattern.findall(line_of(text, "holds"))
    return tuple(found)


def fatal(report: dict[str, Any]) -> dict[str, Any] | None:
    """The out-of-memory that the answer is about."""
    return next((event for event in report["oom_events"] if event["judged"]), None)


def contradictions_in(output: Path) -> tuple[str, ...]:
    """A process that was killed may have left a trace and no report: there is nothing to check."""
    folders = [output / "latest", *harness.folders_in(output)]
    files = ("report.txt", "report.json", "report.html")
    whole = [folder for folder in folders if all((folder / file).exists() for file in files)]
    return tuple(found for folder in whole for found in contradictions(folder))


def last_word(result: harness.Result) -> str:
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else "no word"


def read(job: Truth, output: Path, result: harness.Result, seconds: float) -> Answer:
    if result.timed_out:
        return Answer(job, TIMED_OUT, (), None, None, seconds, broken=last_word(result))
    folders = [f for f in harness.folders_in(output) if (f / "report.json").exists()]
    reports = [json.loads((folder / "report.json").read_text()) for folder in folders]
    texts = [(folder / "report.txt").read_text() for folder in folders]
    if not reports:
        return Answer(job, "no report", (), None, None, seconds, broken=last_word(result))
    # torchrun itself uses no device; of several ranks the first that died is the one.
    dying = [pair for pair in zip(reports, texts, strict=True) if fatal(pair[0])]
    dying.sort(key=lambda pair: (fatal(pair[0]) or {})["time_ns"])
    report, text = dying[0] if dying else (reports[0], texts[0])
    event = fatal(report)
    if not event:
        broken = "" if result.status == 0 else last_word(result)
        verdict = "none" if result.status == 0 else DEAD
        return Answer(job, verdict, (), None, None, seconds, broken=broken)
    return Answer(
        job,
        event["verdict"],
        lines_named(report, text, job),
        event["estimated_factor_that_fits"],
        event["short_bytes"] / (1 << 20),
        seconds,
        event["factor_at_most"],
        unseen="\n  unseen tensors: " in text,
    )


def run(job: Truth, timeout_s: float, keep: Path | None) -> Answer:
    with tempfile.TemporaryDirectory(
        prefix="memshim-verdict.", ignore_cleanup_errors=True
    ) as folder:
        output = keep / job.name if keep else Path(folder)
        output.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        result = start(job, output, job.batch, timeout_s)
        answer = read(job, output / "out", result, time.monotonic() - began)
        return replace(answer, contradictions=contradictions_in(output / "out"))


def judge_again(job: Truth, kept: Path) -> Answer:
    """Of the traces that an earlier run left: so one does not wait for the jobs."""
    output = kept / job.name / "out"
    began = time.monotonic()
    status = 0
    files = {"text": "report.txt", "json": "report.json", "html": "report.html"}
    for folder in harness.folders_in(output):
        for form, file in files.items():
            command = [harness.CLI, "report", folder, "--format", form, "--output", folder / file]
            subprocess.run(command, check=True)
        status |= json.loads((folder / "report.json").read_text())["process"]["exit"] != 0
    result = harness.Result((), status, "", "ended with an error")
    answer = read(job, output, result, time.monotonic() - began)
    found = [one for folder in harness.folders_in(output) for one in contradictions(folder)]
    return replace(answer, contradictions=tuple(found))


def largest_that_runs(job: Truth, timeout_s: float) -> int:
    """Found by trying, to 1 %; the answers are not looked at. What runs with live memory on the
    host, and slowly, has not fitted."""
    runs, dies = 0, job.batch
    while dies - runs > max(1, dies // 100):
        middle = (runs + dies) // 2
        with tempfile.TemporaryDirectory(
            prefix="memshim-verdict.", ignore_cleanup_errors=True
        ) as folder:
            result = start(job, Path(folder), middle, timeout_s)
            if result.timed_out:
                raise TimeoutError(f"{job.name}, batch {middle}: {last_word(result)}")
            if result.status == 0 and "no device memory was left" not in result.stderr:
                runs = middle
            else:
                dies = middle
    return runs


def ends_as_meant(job: Truth, timeout_s: float) -> str:
    """Whether the job dies of memory where its truth says so; says nothing of memshim's answer."""
    with tempfile.TemporaryDirectory(
        prefix="memshim-verdict.", ignore_cleanup_errors=True
    ) as folder:
        result = start(job, Path(folder), job.batch, timeout_s)
    if result.timed_out:
        return TIMED_OUT
    if (result.status == 0) == (job.verdict == "none"):
        of_memory = "out of memory" in result.stderr or result.status == 0
        return "as meant" if of_memory else "dies of something else"
    return "ends well, but should not" if result.status == 0 else "dies, but should not"


def share(found: Sequence[bool | None]) -> float | None:
    """Of those that have an answer to be right about."""
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def mark(right: bool | None) -> str:
    return "-" if right is None else "yes" if right else "NO"


def row(answer: Answer) -> str:
    job = answer.job
    world = f"{job.mode}{'+spill' if job.spill_mib else ''} x{job.ranks} {job.loop}"
    return (
        f"{job.name:36} {job.when:9} {world:26} {job.verdict:13} {answer.verdict:13} "
        f"{mark(answer.verdict_right):4} {mark(answer.culprit_right):4} "
        f"{mark(answer.factor_right):4} {mark(answer.short_right):4} {answer.seconds:5.1f} s"
    )


def misses(answer: Answer) -> list[str]:
    job, said = answer.job, []
    if not answer.verdict_right:
        said.append(f"{answer.verdict} where it is {job.verdict} ({job.reason}: {job.keeps})")
    if answer.culprit_right is False:
        named = answer.lines[0] if answer.lines else "not known"
        said.append(f"line {named}, not {', '.join(job.culprits)}")
    if answer.factor_right is False:
        said.append(
            f"factor {answer.factor}, at most {answer.most}, not {job.fits / job.batch:.3f}"
        )
    if answer.short_right is False:
        said.append(f"{answer.short_mib} MiB short, not {job.short_mib}")
    if answer.broken:
        said.append(answer.broken)
    return said + [f"contradiction: {found}" for found in answer.contradictions]


def summary(answers: list[Answer]) -> dict[str, float | None]:
    """Prints the confusion matrix, every miss and the shares; returns the shares."""
    print("\ntruth -> answers")
    for verdict in sorted({answer.job.verdict for answer in answers}):
        given = Counter(a.verdict for a in answers if a.job.verdict == verdict)
        print(f"  {verdict:14}", ", ".join(f"{name} {n}" for name, n in given.most_common()))
    print("\nmisses")
    for answer in answers:
        for said in misses(answer):
            print(f"  {answer.job.name}: {said}")
    with_culprit = [answer for answer in answers if answer.job.names != "none"]
    shares = {
        "verdict": share([answer.verdict_right for answer in answers]),
        "culprit": share([answer.culprit_right for answer in answers]),
        "factor": share([answer.factor_right for answer in answers]),
        "short": share([answer.short_right for answer in answers]),
        "unknown": share([not answer.known for answer in with_culprit]),
    }
    print(f"\n{len(answers)} jobs")
    for name, value in shares.items():
        print(f"  {name:8} {'-' if value is None else f'{100 * value:.1f} %'}")
    return shares


def chosen(options: argparse.Namespace) -> list[Truth]:
    every = corpus()
    if options.jobs:
        unknown = set(options.jobs) - {job.name for job in every}
        if unknown:
            sys.exit(f"run.py: no such job: {', '.join(sorted(unknown))}")
        every = [job for job in every if job.name in options.jobs]
    if options.strangers:
        every = [job for job in every if not job.function]
    elif not options.everything and not options.list:
        every = [job for job in every if job.held_out == options.held_out]
    if options.third is not None:
        every = every[options.third :: 3]
    return every


def installed(jobs: list[Truth]) -> list[Truth]:
    found = []
    for job in jobs:
        if job.package and not importlib.util.find_spec(job.package):
            print(f"skipped: {job.name}, for want of the package {job.package}")
        else:
            found.append(job)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--third", type=int, choices=(0, 1, 2), help="every third job, from this")
    which.add_argument("--all", action="store_true", help="all jobs (as without --third)")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--held-out", action="store_true", help="the half that is held out")
    half.add_argument("--everything", action="store_true", help="both halves")
    half.add_argument("--strangers", action="store_true", help="the programs of strangers/ alone")
    parser.add_argument("--list", action="store_true", help="names and truths, of both halves")
    parser.add_argument("--measure", action="store_true", help="the largest batch that runs")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="of a job")
    parser.add_argument("--ends", action="store_true", help="only whether it dies, as meant")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="jobs (default 2)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="what runs write stays there")
    parser.add_argument("--again", action="store_true", help="judge what --keep kept, run nothing")
    for name in ("verdict", "culprit", "factor", "short"):
        parser.add_argument(f"--least-{name}", type=float, default=0, metavar="SHARE")
    parser.add_argument("--most-unknown", type=float, default=1, metavar="SHARE")
    options = parser.parse_args()
    jobs = chosen(options)
    if options.list:
        for job in jobs:
            half_of = "held out" if job.held_out else ""
            print(json.dumps({"name": job.name, "half": half_of, "truth": vars(job)}))
        return 0
    jobs = installed(jobs)
    if options.ends:
        for job in jobs:
            print(f"{job.name:36} {ends_as_meant(job, options.timeout)}", flush=True)
        return 0
    if options.measure:
        for job in jobs:
            print(job.name, largest_that_runs(job, options.timeout), flush=True)
        return 0
    if options.again:
        jobs = [job for job in jobs if (options.keep / job.name / "out" / "latest").exists()]

    def answer_of(job: Truth) -> Answer:
        if options.again:
            return judge_again(job, options.keep)
        return run(job, options.timeout, options.keep)

    print(f"{'job':36} {'when':9} {'world':26} {'truth':13} {'answer':13} verd line fact shrt")
    answers = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as at_once:
        for answer in at_once.map(answer_of, jobs):
            answers.append(answer)
            print(row(answer), flush=True)
    shares = summary(answers)
    failed = (shares.pop("unknown") or 0) > options.most_unknown
    failed |= any(answer.contradictions for answer in answers)
    for name, value in shares.items():
        failed |= value is not None and value < getattr(options, f"least_{name}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
