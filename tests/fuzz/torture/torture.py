# SPDX-License-Identifier: Apache-2.0
"""A campaign against memshim: random programs, faults, kills and damage, for a given time.

    scripts/torture.sh [--minutes N] [--seed N] [--only PART] [--try SEED]

Each part is tried over and over, each try from a seed of its own, until the time is over; what a
full run (60 minutes) has to reach of each part is in its row, a shorter one has its share of that
as its aim. A try that fails leaves what it said in the folder of logs, and the command that repeats
it in the table. Exit status: 1 when a try failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
JOB = BUILD / "tests" / "fuzz" / "torture" / "torture_job"
SHIM = BUILD / "libmemshim.so"
CLI = BUILD / "memshim"
FULL_MINUTES = 60
AT_ONCE = 2
# What a try may take before it counts as stuck. Where other work shares the processors, a second
# counts as the part of it that the try can have had.
TRY_S = 300
LOOK_S = 5
# Of what a failed try said, so much stands below the table: a reader of CI's output has no logs.
SHOWN_LINES = 40


@dataclass
class Try:
    """One try: its folder, its draws, and what came of it."""

    folder: Path
    draw: random.Random
    seed: int
    done: int = 0  # of what the part counts
    wrong: str = ""  # what failed; empty: nothing
    log: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str | Path], **settings: object) -> tuple[int, str]:
        """Runs a command in a session of its own: its exit status and all it said."""
        return self.finish(self.start(command, **settings))

    def start(self, command: Sequence[str | Path], **settings: object) -> subprocess.Popen[str]:
        text = [str(part) for part in command]
        shown = [f"{name}={value}" for name, value in sorted(settings.items())]
        self.log.append("$ " + " ".join([*shown, *text]))
        return subprocess.Popen(
            text,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
            env={**clean_environment(self.folder), **{n: str(v) for n, v in settings.items()}},
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        begun, left_s = time.monotonic(), float(TRY_S)
        processors = len(os.sched_getaffinity(0))
        said = None
        while said is None:
            try:
                said, _ = process.communicate(timeout=LOOK_S if left_s > 0 else None)
            except subprocess.TimeoutExpired:
                left_s -= LOOK_S * processors / max(processors, os.getloadavg()[0])
                if left_s <= 0:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    after_s = round(time.monotonic() - begun)
                    self.wrong = self.wrong or f"stuck: not over after {after_s} s"
        self.log.append(said)
        return process.returncode, said

    def expect(self, holds: bool, sentence: str) -> bool:
        if not holds:
            self.wrong = self.wrong or sentence
        return holds


def clean_environment(folder: Path) -> dict[str, str]:
    """What surrounds a try: nothing of memshim's or the simulated GPU's from outside, and a home,
    a cache and an output folder of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SIMGPU_", "MEMSHIM_", "PYTORCH_", "LD_"))
    }
    return {
        **kept,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MEMSHIM_OUTPUT": str(folder / "out"),
        "MEMSHIM_BUILD": str(BUILD),
        "OMP_NUM_THREADS": "1",
    }


def account_of(said: str) -> dict[str, int]:
    """The line of JSON that the job ends with; empty where it did not come so far."""
    for line in reversed(said.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
    return {}


def last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line and not line.startswith("memshim: ")]
    return lines[-1] if lines else "it said nothing"


# --- programs -------------------------------------------------------------------------------------

FEATURES = ("peers", "captures", "streams", "forks", "fails")


def job_settings(attempt: Try, limit_mib: int, spill: str) -> dict[str, object]:
    """A small simulated machine around the job."""
    return {
        "LD_LIBRARY_PATH": BUILD / "simgpu",
        "LD_PRELOAD": SHIM,
        "SIMGPU_DEVICES": 4,
        "SIMGPU_MEMORY": "1GiB",
        "SIMGPU_CONTEXT": "8MiB",
        "SIMGPU_DELAY_US": attempt.draw.choice(("0", "0-50", "0-300", "20-1000")),
        "SIMGPU_SEED": attempt.seed,
        "MEMSHIM_LIMIT": f"{limit_mib}MiB",
        "MEMSHIM_SPILL": spill,
        "MEMSHIM_SPILL_LIMIT": "512MiB",
    }


def job_command(
    attempt: Try, operations: int, limit_mib: int, features: Sequence[str]
) -> list[str]:
    devices = attempt.draw.randint(1, 3)
    # More alive than the devices may hold, so that memory has to move.
    live_mib = int(limit_mib * devices * attempt.draw.uniform(0.9, 1.6))
    return [
        str(part)
        for part in (JOB, attempt.seed, operations, devices, live_mib, limit_mib, *features)
    ]


def check_job(attempt: Try, status: int, said: str) -> dict[str, int]:
    account = account_of(said)
    attempt.expect(status == 0, f"status {status}: {last_line(said)}")
    attempt.expect(bool(account) or status != 0, "it ended without its account")
    return account


def try_programs(attempt: Try) -> None:
    """Everything at once: threads, streams, devices, captures, peers, forks and failing calls."""
    features = [name for name in FEATURES if attempt.draw.random() < 0.6]
    limit_mib = attempt.draw.choice((48, 64, 96))
    spill = attempt.draw.choice(("auto", "auto", "auto", "off"))
    status, said = attempt.run(
        job_command(attempt, 3000, limit_mib, features), **job_settings(attempt, limit_mib, spill)
    )
    attempt.done = check_job(attempt, status, said).get("checked", 0)


def try_forks(attempt: Try) -> None:
    """Forks while other threads are short of memory."""
    limit_mib = 64
    status, said = attempt.run(
        job_command(attempt, 2000, limit_mib, ["forks", "captures", "streams"]),
        **job_settings(attempt, limit_mib, "auto"),
    )
    attempt.done = check_job(attempt, status, said).get("forked", 0)


def try_processes(attempt: Try) -> None:
    """Two to four processes on the same devices; one of them is killed at some moment."""
    number = attempt.draw.randint(2, 4)
    limit_mib = 64
    shared = attempt.folder / "devices"
    victim = attempt.draw.randrange(number) if attempt.draw.random() < 0.7 else None
    running = []
    for _ in range(number):
        features = [name for name in FEATURES if attempt.draw.random() < 0.4]
        settings = job_settings(attempt, limit_mib, "auto")
        # Together they may want more than there is: who is refused then goes on.
        settings |= {"SIMGPU_SHARED": shared, "SIMGPU_MEMORY": f"{limit_mib * number}MiB"}
        running.append(attempt.start(job_command(attempt, 2000, limit_mib, features), **settings))
    if victim is not None:
        time.sleep(attempt.draw.uniform(0, 3))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running[victim].pid, signal.SIGKILL)
    for index, process in enumerate(running):
        status, said = attempt.finish(process)
        if index != victim or status != -signal.SIGKILL:
            check_job(attempt, status, said)
            attempt.done += 1
    status, said = attempt.run([CLI, "report", attempt.folder / "out", "--format", "json"])
    attempt.expect(status in (0, 1), f"the report ended with status {status}")


ANSWERS_JOB = BUILD / "tests" / "fuzz" / "torture" / "answers_job"
ANSWERS_CALLS = 1500


def try_answers(attempt: Try) -> None:
    """Random calls, right and wrong ones: what the driver answers, and what memory holds, is the
    same with and without memshim, also where memory moves to the host."""
    world: dict[str, object] = {
        "LD_LIBRARY_PATH": BUILD / "simgpu",
        "SIMGPU_DEVICES": 2,
        "SIMGPU_MEMORY": "2GiB",
        "SIMGPU_CONTEXT": "8MiB",
    }
    command = [str(ANSWERS_JOB), str(attempt.seed), str(ANSWERS_CALLS)]
    if attempt.draw.random() < 0.3:
        command.append("no-peers")
        world["SIMGPU_PEERS"] = 0
    # Below what is alive at times; beside contexts, managed memory and the program's own chunks.
    tight = {"MEMSHIM_LIMIT": "160MiB", "MEMSHIM_SPILL_LIMIT": "1GiB"}
    shim = {"LD_PRELOAD": SHIM, **attempt.draw.choice(({}, {"MEMSHIM_POOL": "off"}, tight, tight))}
    answers = []
    for settings in ({}, shim):
        status, said = attempt.run(command, **world, **settings)
        if not attempt.expect(status == 0, f"status {status}: {last_line(said)}"):
            return
        answers.append([line for line in said.splitlines() if not line.startswith("memshim: ")])
    for plain, under in zip(*answers, strict=False):
        if not attempt.expect(plain == under, f"without: {plain}; with: {under}"):
            return
    attempt.done = len(answers[0])


# --- the pool, kills, and readers -----------------------------------------------------------------

POOL = BUILD / "tests" / "fuzz" / "pool"
POOL_OPERATIONS = 1_000_000
POOL_WORLDS = 100  # of 10,000 operations, each with a seed of its own
POOL_ROUNDS = 40
POOL_SCENARIOS = 2
KILLS = 10
INPUTS = 200


def try_command(attempt: Try, done: int, *command: object) -> None:
    """A program that says itself what is wrong: by its last line, and a status that is not 0."""
    status, said = attempt.run([str(part) for part in command])
    attempt.expect(status == 0, f"status {status}: {last_line(said)}")
    attempt.done = done


def try_pool(attempt: Try) -> None:
    """Random operations on the pool, beside a model of it."""
    done = POOL_OPERATIONS
    seed = attempt.seed * POOL_WORLDS
    try_command(attempt, done, POOL / "fuzz_pool", "--ops", done, "--seed", seed)


def try_pool_threads(attempt: Try) -> None:
    """Threads on one pool."""
    done = POOL_ROUNDS
    try_command(attempt, done, POOL / "stress_pool", "--rounds", done, "--seed", attempt.seed)


def try_pool_faults(attempt: Try) -> None:
    """Every call of the device fails at every place, and others while the first is undone."""
    done = POOL_SCENARIOS
    seed = attempt.seed * POOL_SCENARIOS
    options = ("--scenarios", done, "--pairs", 4, "--runs", 40, "--seed", seed)
    try_command(attempt, done, POOL / "faults_pool", *options)


def try_kills(attempt: Try) -> None:
    """SIGKILL at any moment: what had completed before is in the report."""
    kills = ROOT / "tests" / "process" / "kills.py"
    options = ("--count", KILLS, "--seed", attempt.seed * KILLS)
    try_command(attempt, KILLS, sys.executable, kills, *options)


def try_readers(attempt: Try) -> None:
    """Traces, recordings and runs of which some bytes are wrong."""
    damage = ROOT / "tests" / "fuzz" / "reader" / "damage.py"
    options = ("--count", INPUTS, "--seed", attempt.seed * INPUTS)
    try_command(attempt, INPUTS, sys.executable, damage, *options)


FAULT_JOB = BUILD / "tests" / "fuzz" / "torture" / "fault_job"
FAULT_RUNS = 25
FAULT_LIMIT_MIB = 28


def try_gpu_faults(attempt: Try) -> None:
    """A program that spills: any call of the driver fails, and calls within twenty of it."""
    settings = {
        **job_settings(attempt, FAULT_LIMIT_MIB, "auto"),
        "SIMGPU_DELAY_US": 0,
        "MEMSHIM_TRACE": "off",
        "MEMSHIM_STACKS": "off",
    }
    status, said = attempt.run([FAULT_JOB, str(attempt.seed)], **settings)
    account = account_of(said)
    spills = account.get("most_bytes", 0) > FAULT_LIMIT_MIB << 20
    if not attempt.expect(status == 0 and spills, f"without a failure: {last_line(said)}"):
        return
    for _ in range(FAULT_RUNS):
        nth = attempt.draw.randint(1, account["calls"])
        error = attempt.draw.choice((2, 999))
        then = attempt.draw.choice((0, attempt.draw.randint(1, 20)))
        count = attempt.draw.choice((1, 1, 2, 3, 5, 8))
        faults = [str(number) for number in (attempt.seed, nth, error, then, count)]
        status, said = attempt.run([FAULT_JOB, *faults], **settings)
        if not attempt.expect(status == 0, f"{' '.join(faults)}: {status}: {last_line(said)}"):
            return
        attempt.done += 1


# --- real PyTorch ---------------------------------------------------------------------------------

# What may fail in a driver: in between a job's calls, at some time in its life.
JOB_FAULTS = (
    "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventCreate",
    "cuEventQuery", "cuEventRecord", "cuMemGetInfo", "cuCtxGetCurrent", "cuStreamIsCapturing",
)  # fmt: skip
WORKLOADS = (
    ("gpt.py", "--steps", "6"),
    ("unet.py", "--steps", "4"),
    ("detector.py", "--steps", "5"),
    ("gan.py", "--steps", "4"),
)
# The errors that PyTorch itself has for a driver that fails. Where a convolution's work space has
# no room it tries cuDNN's next algorithm, and the simulated cuDNN offers one alone.
NORMAL_ERROR = re.compile(
    r"OutOfMemoryError|CUDA error|CUDA driver error|CUDA out of memory|AcceleratorError"
    r"|INTERNAL ASSERT FAILED"
)

TERMINATE = "terminate called after throwing an instance of 'c10::"


def try_torch(attempt: Try) -> None:
    """A training job whose tensors are stamped, under a tight cap and with calls that fail: it ends
    well or with PyTorch's own error, and no tensor loses a byte."""
    script, *arguments = attempt.draw.choice(WORKLOADS)
    stamp = BUILD / "tests/torch/stamp/libstamp.so"
    fault = ""
    if attempt.draw.random() < 0.7:
        nth = int(10 ** attempt.draw.uniform(0, 3.5))
        fault = f"{attempt.draw.choice(JOB_FAULTS)}@{nth}=2"
    settings: dict[str, object] = {
        "LD_PRELOAD": f"{stamp}:{SHIM}",
        "MEMSHIM_VENV": sys.prefix,
        "MEMSHIM_LIMIT": f"{attempt.draw.choice((500, 900, 1500, 3000))}MiB",
        "MEMSHIM_SPILL": attempt.draw.choice(("auto", "off")),
        "SIMGPU_DELAY_US": "0-200",
        "SIMGPU_SEED": attempt.seed,
        **({"SIMGPU_FAIL": fault} if fault else {}),
    }
    if attempt.draw.random() < 0.3:
        settings["PYTORCH_ALLOC_CONF"] = "expandable_segments:False"
    job: tuple[str | Path, ...] = (sys.executable, ROOT / "tests/workloads" / script, *arguments)
    status, said = attempt.run([ROOT / "scripts/simgpu.sh", *job], **settings)
    # An error where PyTorch may not throw (a destructor) ends the process, without memshim too.
    said_why = NORMAL_ERROR.search(said) is not None
    normal = status == 0 or (said_why and (status == 1 or (status == -6 and TERMINATE in said)))
    attempt.expect(normal, f"status {status}: {last_line(said)}")
    attempt.done = 1


# --- the campaign ---------------------------------------------------------------------------------


@dataclass
class Part:
    """What is tried, how much of the time it gets, and what a full run has to reach."""

    name: str
    attempt: Callable[[Try], None]
    weight: float
    unit: str
    full: int
    torch: bool = False
    tries: int = 0
    done: int = 0
    spent_s: float = 0
    failures: list[tuple[int, str]] = field(default_factory=list)


PARTS = (
    Part("programs", try_programs, 4, "pages checked", 1_000_000),
    Part("forks", try_forks, 1, "forks", 1_000),
    Part("processes", try_processes, 2, "processes", 100),
    Part("answers", try_answers, 1, "answers", 50_000),
    Part("pool", try_pool, 2, "operations", 100_000_000),
    Part("pool threads", try_pool_threads, 1, "rounds", 2_000),
    Part("pool faults", try_pool_faults, 1, "scenarios", 100),
    Part("kills", try_kills, 2, "kills", 1_000),
    Part("readers", try_readers, 1, "inputs", 10_000),
    Part("gpu faults", try_gpu_faults, 1, "runs", 2_000),
    Part("torch", try_torch, 3, "jobs", 100, torch=True),
)


def log_folder(logs: Path, part: str, seed: int) -> Path:
    return logs / f"{part.replace(' ', '-')}-{seed}"


def attempt_once(part: Part, seed: int, logs: Path) -> Try:
    # Readers outlive the jobs that started them, and may still write while the folder goes.
    with tempfile.TemporaryDirectory(
        prefix="memshim-torture.", ignore_cleanup_errors=True
    ) as folder:
        attempt = Try(Path(folder), random.Random(f"{part.name} {seed}"), seed)
        part.attempt(attempt)
        if attempt.wrong:
            place = log_folder(logs, part.name, seed)
            place.mkdir(parents=True, exist_ok=True)
            (place / "log").write_text("\n".join([*attempt.log, attempt.wrong, ""]))
            with contextlib.suppress(OSError):
                shutil.copytree(Path(folder) / "out", place / "out", symlinks=True)
        return attempt


def behind(part: Part, share: float) -> bool:
    return part.done < part.full * share


def campaign(parts: Sequence[Part], minutes: float, seed: int, logs: Path) -> None:
    """Whoever had the least of its time is next; after the time, only what has not reached its aim
    in a full run."""
    deadline = time.monotonic() + minutes * 60
    full = minutes >= FULL_MINUTES
    under_way: dict[concurrent.futures.Future[Try], tuple[Part, float]] = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        while True:
            late = time.monotonic() >= deadline
            open_parts = [
                p for p in parts if not late or (full and behind(p, 1) and not p.failures)
            ]
            if open_parts and len(under_way) < AT_ONCE:
                part = min(open_parts, key=lambda p: p.spent_s / p.weight)
                part.tries += 1
                part.spent_s += 1  # so that the other half takes another part
                future = pool.submit(attempt_once, part, seed + part.tries, logs)
                under_way[future] = (part, time.monotonic())
                continue
            if not under_way:
                return
            ended, _ = concurrent.futures.wait(
                under_way, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in ended:
                part, begun = under_way.pop(future)
                part.spent_s += time.monotonic() - begun - 1
                attempt = future.result()
                part.done += attempt.done
                if attempt.wrong:
                    part.failures.append((attempt.seed, attempt.wrong))
                    print(f"{part.name}, seed {attempt.seed}: {attempt.wrong}", flush=True)


def show(parts: Sequence[Part], minutes: float, logs: Path) -> None:
    share = min(minutes / FULL_MINUTES, 1)
    print(f"\n{'part':<13} {'tries':>6} {'failures':>8}  {'done':>12} {'aim':>12}  of what")
    for part in parts:
        aim = int(part.full * share)
        print(
            f"{part.name:<13} {part.tries:>6} {len(part.failures):>8}  "
            f"{part.done:>12,} {aim:>12,}  {part.unit}"
        )
    for part in parts:
        for seed, wrong in part.failures:
            again = f"scripts/torture.sh --only '{part.name}' --try {seed}"
            print(f"\n{part.name}: {wrong}\n  again: {again}")
            log = log_folder(logs, part.name, seed) / "log"
            if not log.exists():  # somebody has repeated the try meanwhile
                continue
            said = log.read_text().splitlines()
            print("\n".join(f"  | {line}" for line in said[-SHOWN_LINES:]))
    failed = sum(len(part.failures) for part in parts)
    if failed:
        print(f"\nwhat they said, and their traces: {logs}")
    print(f"{sum(part.tries for part in parts) - failed} passed, {failed} failed")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/torture.sh", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=3, help="how long (3; a full run: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the first try (drawn: the time)")
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS])
    parser.add_argument("--try", dest="one", type=int, help="only the try with this seed")
    parser.add_argument("--logs", type=Path, default=BUILD / "torture", help="folder for failures")
    found = parser.parse_args()
    if found.minutes <= 0:
        parser.error("--minutes: more than 0")
    if found.one is not None and len(found.only or []) != 1:
        parser.error("--try: name its part by --only")
    return found


def main() -> int:
    options = arguments()
    if not JOB.exists():
        sys.exit(f"torture: {JOB} is missing; build memshim first (scripts/torture.sh does)")
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    without = [part for part in parts if part.torch and not importlib.util.find_spec("torch")]
    for part in without:
        print(f"{part.name}: left out, this Python has no PyTorch")
    parts = [part for part in parts if part not in without]
    shutil.rmtree(options.logs, ignore_errors=True)
    if options.one is not None and parts:
        attempt = attempt_once(parts[0], options.one, options.logs)
        print("\n".join([*attempt.log, attempt.wrong or "nothing was wrong"]))
        return int(bool(attempt.wrong))
    seed = options.seed or int(time.time())
    print(f"torture: {options.minutes:g} minutes, --seed {seed}", flush=True)
    campaign(parts, options.minutes, seed, options.logs)
    show(parts, options.minutes, options.logs)
    return int(any(part.failures for part in parts))


if __name__ == "__main__":
    sys.exit(main())
