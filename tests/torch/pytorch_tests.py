# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests on the simulated GPU, without memshim and with it, and compares.

    python tests/torch/pytorch_tests.py FOLDER [GROUP...] [--settings NAME,...] [--only TEXT]
                                        [--out FILE] [--resume]

FOLDER is the folder test/ of PyTorch's sources, best of the installed version; without GROUP all
groups of GROUPS run. A group's tests run one after the other in one process. One that hangs or
kills its process costs that test alone: the next process goes on behind it. What differs is run
again, by itself, as often as CONFIRM says, without memshim and with it; what still differs is the
table. Each outcome and each difference is written when it is found, to FILE and to FILE.jsonl, from
which --resume goes on.

Exit status: 0 where nothing differs but what KNOWN names, 1 where more does.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent

# What one test may take. On an idle machine most take milliseconds, two ranks some ten seconds.
TEST_LIMIT_S = 90
# What loading a file may take: on a busy machine PyTorch alone takes a minute.
LOAD_LIMIT_S = 300
# How often in a row a process may end without a word.
SILENT_MOST = 3
# How often what differed is run again by itself.
CONFIRM = 2


@dataclass(frozen=True)
class Group:
    """Tests of one file: its path below FOLDER, and which ids (Class.test, shell patterns)."""

    file: str
    tests: Sequence[str]
    settings: dict[str, str] = field(default_factory=dict)
    before: str = ""  # Python that runs before the file is loaded, and before each test


# As PyTorch's test_cuda_expandable_segments.py does: the tests know that the segments are on. Some
# end with them off.
EXPANDABLE = """
import torch
from torch.testing._internal import common_utils
torch.cuda.memory._set_allocator_settings("expandable_segments:True")
common_utils.EXPANDABLE_SEGMENTS = True
"""
TWO_RANKS = {"SIMGPU_DEVICES": "2"}
GROUPS = {
    "multiprocessing": Group(
        "test_multiprocessing.py",
        ["TestMultiprocessing.*cuda*", "TestMultiprocessing.test_event*", "*.test_mixed_types_*"],
        TWO_RANKS,
    ),
    "cuda": Group(
        "test_cuda.py",
        ["TestCuda.*", "TestCudaMallocAsync.*", "TestBlockStateAbsorption.*", "TestMemPool.*",
         "TestCudaAllocator.*"],
    ),
    "expandable": Group(
        "test_cuda.py",
        ["TestCuda.*", "TestCudaMallocAsync.*", "TestBlockStateAbsorption.*", "TestMemPool.*",
         "TestCudaAllocator.*"],
        before=EXPANDABLE,
    ),
    "multigpu": Group("test_cuda_multigpu.py", ["TestCudaMultiGPU.*", "TestCudaComm.*"], TWO_RANKS),
    "c10d": Group("distributed/test_c10d_nccl.py", ["*"], TWO_RANKS),
    "collectives": Group("distributed/test_c10d_ops_nccl.py", ["*"], TWO_RANKS),
    "spawn": Group(
        "distributed/test_distributed_spawn.py",
        ["*"],
        {**TWO_RANKS, "BACKEND": "nccl", "WORLD_SIZE": "2"},
    ),
}  # fmt: skip

# A cap is compared with a device that has no more: tests ask what the device has.
WHOLE, TIGHT = "8GiB", "2GiB"
PLAIN = {"without": WHOLE, "without-tight": TIGHT}
# Each setting's variables, and what it is compared with.
SETTINGS: dict[str, tuple[dict[str, str], str]] = {
    "default": ({}, "without"),
    "spill-off": ({"MEMSHIM_SPILL": "off"}, "without"),
    "tight": ({"MEMSHIM_LIMIT": TIGHT}, "without-tight"),
    "tight-spill-off": ({"MEMSHIM_LIMIT": TIGHT, "MEMSHIM_SPILL": "off"}, "without-tight"),
}

# (setting, group, test), as shell patterns: why it differs.
SERVED = "the tensors that are to be refused are served: half of them lies on the host"
FITS = "what runs out of memory under this cap without memshim is served"
SEGMENTS = (
    "memshim switches expandable segments on: a pool has fewer segments, of which the test asks"
)
ALONE = "under a cap a process is shown its own memory alone, and the test counts another's"
KNOWN: dict[tuple[str, str, str], str] = {
    ("*", "cuda", "TestBlockStateAbsorption.test_allocate_in_thread_to_pool"): SEGMENTS,
    ("tight*", "cuda", "TestCuda.test_graph_cudnn_dropout"): FITS,
    ("tight*", "expandable", "TestCuda.test_graph_cudnn_dropout"): FITS,
    ("default", "*", "TestCuda.test_out_of_memory_retry"): SERVED,
    ("tight", "*", "TestCuda.test_out_of_memory_retry"): SERVED,
    ("tight", "multigpu", "TestCudaMultiGPU.test_memory_stats*"): FITS,
    ("tight*", "c10d", "ProcessGroupNCCLGroupTest.test_extra_cuda_context"): ALONE,
}


def known_reason(setting: str, group: str, test: str) -> str | None:
    for patterns, reason in KNOWN.items():
        if all(map(fnmatch.fnmatchcase, (setting, group, test), patterns)):
            return reason
    return None


# ---- the process that runs a file's tests


def each_test(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each_test(test)
        else:
            yield test


# As sys.exc_info() gives it.
Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Said(unittest.TestResult):
    """Writes a JSON line for the beginning and the end of each test."""

    def __init__(self, to: int, before: str) -> None:
        super().__init__()
        self.to = to
        self.before = before
        self.outcome = ""

    def say(self, **what: str) -> None:
        os.write(self.to, (json.dumps(what) + "\n").encode())

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = "pass"
        self.say(begins=short_id(test))
        exec(self.before, {})

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.say(ends=short_id(test), outcome=self.outcome)

    def failed(self, test: unittest.TestCase, error: Error) -> None:
        self.outcome = "fail"
        print(
            f"--- {short_id(test)}",
            "".join(traceback.format_exception(error[1])),
            sep="\n",
            flush=True,
        )

    def addError(self, test: unittest.TestCase, err: Error) -> None:
        self.failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:
        self.failed(test, err)

    def addSubTest(
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: Error | None
    ) -> None:
        if err is not None:
            self.failed(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome = "skip"

    def addExpectedFailure(self, test: unittest.TestCase, err: Error) -> None:
        self.outcome = "expected failure"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.outcome = "unexpected success"


def short_id(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def start_other_rank(module: ModuleType) -> list[subprocess.Popen[bytes]]:
    """PyTorch 2.6's MultiProcContinousTest is told its rank by who starts it. This process becomes
    the first of two ranks, whose outcomes count; the same command is the second one."""
    told = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and getattr(value, "rank", None) == -1
        and hasattr(value, "run_rank")
    ]
    rank = int(os.environ.get("RANK", "0"))
    for test in told:
        place = {
            "rank": rank,
            "world_size": 2,
            "rdvz_file": str(Path(os.environ["TEMP_DIR"]) / test.__name__),
        }
        for name, value in place.items():
            setattr(test, name, value)
    if not told or rank != 0:
        return []
    silent = os.open(os.devnull, os.O_WRONLY)
    command = [*sys.orig_argv[:-1], str(silent)]
    return [subprocess.Popen(command, env={**os.environ, "RANK": "1"}, pass_fds=[silent])]


def child(file: Path, patterns: Sequence[str], skip: set[str], before: str, to: int) -> int:
    """Runs the file's tests of these patterns that are not in `skip`, and says so to a pipe."""
    # A library that cannot be preloaded is left out, with a line of the loader's that nobody reads.
    preloaded = "libmemshim" in os.environ.get("LD_PRELOAD", "")
    if preloaded and not hasattr(ctypes.CDLL(None), "memshim_version"):
        raise SystemExit(f"memshim is not in this process: {os.environ['LD_PRELOAD']}")
    sys.argv = [str(file)]
    sys.path.insert(0, str(file.parent))
    exec(before, {})
    module = __import__(file.stem)
    common_utils = sys.modules.get("torch.testing._internal.common_utils")
    if common_utils is not None and hasattr(common_utils, "parse_cmd_line_args"):
        common_utils.parse_cmd_line_args()
    others = start_other_rank(module)
    tests = each_test(unittest.TestLoader().loadTestsFromModule(module))
    wanted = [
        test
        for test in sorted(tests, key=short_id)
        if matches(short_id(test), patterns) and short_id(test) not in skip
    ]
    result = Said(to, before)
    unittest.TestSuite(wanted).run(result)
    # After a test that leaves the device in error PyTorch stops the suite: the rest wants a new
    # process.
    if not result.shouldStop:
        result.say(done="")
    for other in others:
        other.wait()
    return 0


# ---- the process that starts them


def environment(folder: Path, group: Group, setting: str, scratch: Path) -> dict[str, str]:
    sys.path.insert(0, str(HERE))
    import harness

    shim = SETTINGS[setting][0] if setting in SETTINGS else None
    (scratch / "barrier").touch()
    own = {
        "SIMGPU_MEMORY": PLAIN.get(setting, WHOLE),
        "TEMP_DIR": str(scratch),
        "PYTHONPATH": f"{folder}:{folder / 'distributed'}:{os.environ.get('PYTHONPATH', '')}",
        "MEMSHIM_OUTPUT": str(scratch / "out"),
        "MEMSHIM_SPILL": None,
        "MEMSHIM_REPORT_WAIT": None,
        **group.settings,
        **(shim or {}),
    }
    return harness.environment(None if shim is None else harness.SHIM, **own)


def lines_of(process: subprocess.Popen[bytes], pipe: int) -> Iterator[dict[str, str]]:
    """What a child says; ends where it ends, or takes longer over one thing than it may."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    held, until = b"", time.monotonic() + LOAD_LIMIT_S
    while selector.select(max(0.0, until - time.monotonic())):
        got = os.read(pipe, 65536)
        if not got:
            return
        held, until = held + got, time.monotonic() + TEST_LIMIT_S
        *lines, held = held.split(b"\n")
        for line in lines:
            yield json.loads(line)
    yield {"late": ""}


def one_process(
    command: Sequence[str],
    env: dict[str, str],
    log: Path,
    tell: Callable[[str, str], None] = lambda test, outcome: None,
) -> tuple[dict[str, str], bool]:
    """The outcomes of the tests that one child ran, each told at once, and whether it came to its
    end."""
    reading, writing = os.pipe()
    outcomes: dict[str, str] = {}
    running, done = "", False
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, str(writing)], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            pass_fds=[writing], start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        try:
            for line in lines_of(process, reading):
                if "begins" in line:
                    running = line["begins"]
                elif "ends" in line:
                    outcomes[line["ends"]], running = line["outcome"], ""
                    tell(line["ends"], line["outcome"])
                elif "late" in line and running:
                    outcomes[running], running = "hang", ""
                elif "done" in line:
                    done = True
                    break
        finally:
            os.close(reading)
            if not done:
                os.killpg(process.pid, signal.SIGKILL)
            ended = wait(process)
    if running:
        outcomes[running] = f"ended by {ended}"
    for test, outcome in outcomes.items():
        tell(test, outcome)
    return outcomes, done


def wait(process: subprocess.Popen[bytes]) -> str:
    try:
        return str(process.wait(TEST_LIMIT_S))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return str(process.wait())


def matches(test: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)


class Record:
    """What was found so far, a JSON line each. A run that is cut off loses none of it."""

    def __init__(self, path: Path, resume: bool) -> None:
        # By group and side; a side is a setting, or what one is compared with.
        self.outcomes: dict[tuple[str, str], dict[str, str]] = {}
        self.done: set[tuple[str, str, str]] = set()  # group, side, patterns
        # By group, setting and test: what confirmed() found.
        self.confirmed: dict[tuple[str, str, str], tuple[str, str] | None] = {}
        before = path.read_text() if resume and path.exists() else ""
        whole = before[: before.rfind("\n") + 1]  # a run may end in the middle of a line
        path.write_text(whole)
        self.file = path.open("a")
        for line in whole.splitlines():
            self.take(json.loads(line))

    def take(self, line: dict[str, Any]) -> None:
        group, side = line["group"], line["side"]
        if "done" in line:
            self.done.add((group, side, line["done"]))
        elif "outcome" in line:
            self.outcomes.setdefault((group, side), {})[line["test"]] = line["outcome"]
        else:
            again = line["again"]
            self.confirmed[group, side, line["test"]] = again and (again[0], again[1])

    def add(self, group: str, side: str, **more: object) -> None:
        line = {"group": group, "side": side, **more}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        self.take(line)

    def of(self, group: str, side: str, patterns: Sequence[str]) -> dict[str, str]:
        outcomes = self.outcomes.get((group, side), {})
        return {test: outcome for test, outcome in outcomes.items() if matches(test, patterns)}


@dataclass(frozen=True)
class Job:
    folder: Path  # test/ of PyTorch's sources
    log: Path
    record: Record

    def say(self, text: str) -> None:
        print(text, flush=True)
        with self.log.open("a") as out:
            out.write(f"=== {text}\n")


def run_side(
    job: Job, name: str, side: str, patterns: Sequence[str], tell: Callable[[str, str], None]
) -> dict[str, str]:
    """Each test's outcome, as `record` has it or as it is found now; the latter are told."""
    record = job.record

    def found(test: str, outcome: str) -> None:
        if record.of(name, side, [test]).get(test) != outcome:
            record.add(name, side, test=test, outcome=outcome)
            tell(test, outcome)

    mark = json.dumps(patterns)
    if (name, side, mark) not in record.done:
        known = record.of(name, side, patterns)
        _, done = run(job, name, side, patterns, known, found)
        if done:
            record.add(name, side, done=mark)
        else:
            job.say(f"{name} | {side} | it did not come to its end; {job.log} may say why")
    return record.of(name, side, patterns)


def run(
    job: Job,
    name: str,
    setting: str,
    patterns: Sequence[str],
    known: dict[str, str],
    tell: Callable[[str, str], None] = lambda test, outcome: None,
) -> tuple[dict[str, str], bool]:
    """Each test's outcome, and whether all ran; those known already do not run."""
    group, folder = GROUPS[name], job.folder
    outcomes = dict(known)
    silent = 0
    while silent < SILENT_MOST:
        with tempfile.TemporaryDirectory(
            prefix="memshim-test.", ignore_cleanup_errors=True
        ) as scratch:
            skip = Path(scratch) / "skip.json"
            skip.write_text(json.dumps(list(outcomes)))
            command = [
                str(HERE.parents[1] / "scripts" / "simgpu.sh"), sys.executable,
                str(HERE / "pytorch_tests.py"),
                "--child", str(folder / group.file), json.dumps(patterns), str(skip), group.before,
            ]  # fmt: skip
            env = environment(folder, group, setting, Path(scratch))
            more, done = one_process(command, env, job.log, tell)
        outcomes.update(more)
        if done:
            return outcomes, True
        silent = 0 if more else silent + 1
    return outcomes, False


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return [test for test in sorted(a.keys() | b.keys()) if a.get(test) != b.get(test)]


def confirmed(job: Job, name: str, setting: str, test: str) -> tuple[str, str] | None:
    """The outcomes without and with memshim, if no outcome is seen on both sides."""
    plain = SETTINGS[setting][1]
    seen: dict[str, set[str]] = {plain: set(), setting: set()}
    for _ in range(CONFIRM):
        for side in seen:
            outcomes, _ = run(job, name, side, [test], {})
            seen[side].add(outcomes.get(test, "not run"))
        if seen[plain] & seen[setting]:
            return None
    return "/".join(sorted(seen[plain])), "/".join(sorted(seen[setting]))


def judge(job: Job, name: str, setting: str, test: str) -> str | None:
    """Says whether a difference stays when the test runs again. The row, if it has no reason."""
    key = (name, setting, test)
    if key not in job.record.confirmed:
        again = confirmed(job, name, setting, test)
        job.record.add(name, setting, test=test, again=again)
    both = job.record.confirmed[key]
    if both is None:
        job.say(f"{name} | {setting} | {test} | the same when run again")
        return None
    reason = known_reason(setting, name, test)
    row = f"{name} | {setting} | {test} | {both[0]} | {both[1]} | {reason or 'NOT KNOWN'}"
    job.say(row)
    return None if reason else row


def compare(job: Job, name: str, settings: Sequence[str], only: str) -> list[str]:
    """Says of each setting the counts, then what differs. The rows that have no reason."""
    patterns = [f"*{only}*"] if only else GROUPS[name].tests
    rows = []
    for setting in settings:
        plain = run_side(job, name, SETTINGS[setting][1], patterns, lambda test, outcome: None)
        if not plain:
            raise SystemExit(
                f"{name}: no test of {GROUPS[name].file} ran without memshim; {job.log} says why "
                "(its own requirements are expecttest and hypothesis)"
            )

        def found(
            test: str, outcome: str, setting: str = setting, plain: dict[str, str] = plain
        ) -> None:
            if plain.get(test) != outcome:
                job.say(f"{name} | {setting} | {test} | {plain.get(test)} | {outcome} | at first")

        outcomes = run_side(job, name, setting, patterns, found)
        wanted, passed = (
            {test for test, outcome in side.items() if outcome == "pass"}
            for side in (plain, outcomes)
        )
        job.say(
            f"{name} | {setting} | {len(plain)} tests, {len(wanted)} pass without, "
            f"{len(passed)} with, {len(wanted & passed)} both ways"
        )
        for test in differences(plain, outcomes):
            row = judge(job, name, setting, test)
            rows += [row] if row else []
    return rows


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        file, patterns, skip, before, to = sys.argv[2:]
        skipped = set(json.loads(Path(skip).read_text()))
        return child(Path(file), json.loads(patterns), skipped, before, int(to))
    parser = argparse.ArgumentParser(description="Compares PyTorch's own tests.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--only", default="", help="tests whose id has this text")
    parser.add_argument("--out", type=Path, default=Path("pytorch-tests.log"))
    parser.add_argument("--resume", action="store_true", help="go on from what OUT.jsonl has")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder: give test/ of PyTorch's sources")
    settings = options.settings.split(",")
    for kind, given, known in (
        ("group", options.groups, GROUPS),
        ("setting", settings, SETTINGS),
    ):
        for name in given:
            if name not in known:
                parser.error(f"there is no {kind} {name!r}: {', '.join(known)}")
    # Whoever ends it with a signal also ends its children.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    log = options.out.resolve()
    record = Record(log.with_name(f"{log.name}.jsonl"), options.resume)
    job = Job(options.folder.resolve(), log, record)
    rows: list[str] = []
    for name in options.groups or GROUPS:
        if (job.folder / GROUPS[name].file).exists():
            rows += compare(job, name, settings, options.only)
        else:
            job.say(f"{name} | not run: no {GROUPS[name].file}")
    print(f"{len(rows)} differences without a known reason")
    return int(bool(rows))


if __name__ == "__main__":
    sys.exit(main())
