"""Two hundred processes killed at seeded moments: what had completed before is in the report."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from machine import CLI, ProcessTest, process_folders, program, report_of, run, start

KILLS = 200
PROGRESS = struct.Struct("<4Q")
PHASES = ("start", "churn", "out of memory", "exit")
# Of 200: a few before anything, most while allocating, some while running out and while exiting.
SHARES = {"start": 25, "churn": 100, "out of memory": 40, "exit": 35}
ROUNDS = 20000


@dataclass(frozen=True)
class Killed:
    phase: str
    acknowledged: tuple[int, int, int]  # allocations, frees, refusals
    output: Path
    survived: bool  # it ended before the signal came


def read_progress(view: mmap.mmap) -> tuple[int, int, int, int]:
    phase, allocations, frees, refusals = PROGRESS.unpack(view[: PROGRESS.size])
    return phase, allocations, frees, refusals


def wait_for(view: mmap.mmap, process_ended: object, phase: int, count: int) -> None:
    """Until the victim is in that phase and has done that many things in it, or has ended."""
    deadline = time.monotonic() + 60
    assert callable(process_ended)
    while time.monotonic() < deadline and process_ended() is None:
        now, allocations, _, refusals = read_progress(view)
        done = allocations if phase == 1 else refusals if phase == 2 else 0
        if now > phase or (now == phase and done >= count):
            return


def kill_one(folder: Path, seed: int, phase: str) -> Killed:
    """Runs the victim and kills it at a moment drawn from the seed."""
    draw = random.Random(seed)
    folder.mkdir()
    output = folder / "memshim-out"
    progress = folder / "progress"
    progress.write_bytes(bytes(PROGRESS.size))
    number = PHASES.index(phase)
    with progress.open("r+b") as file, mmap.mmap(file.fileno(), PROGRESS.size) as view:
        process = start(
            [program("victim"), progress, str(seed), str(ROUNDS)],
            shim=True,
            MEMSHIM_OUTPUT=output,
            SIMGPU_CONTENTS="none",
        )
        count = draw.randrange(ROUNDS) if number == 1 else draw.randrange(40) if number == 2 else 0
        wait_for(view, process.poll, number, count)
        time.sleep(draw.random() * (0.03 if phase == "start" else 0.004))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _, allocations, frees, refusals = read_progress(view)
    return Killed(phase, (allocations, frees, refusals), output, process.returncode == 0)


class Kills(ProcessTest):
    def check(self, killed: Killed) -> None:
        allocations, frees, refusals = killed.acknowledged
        folders = process_folders(killed.output)
        if not folders:
            self.assertEqual(killed.acknowledged, (0, 0, 0))
            return
        self.assertEqual(len(folders), 1)
        run([CLI, "report", folders[0], "--format", "json"]).check()
        text = run([CLI, "report", folders[0]]).check().stdout
        self.assertIn("victim", text)
        run([CLI, "report", folders[0].parent]).check()
        report = report_of(folders[0])
        devices = report["devices"]
        seen = devices[0] if devices else {"allocations": 0, "frees": 0, "failed_allocations": 0}
        # One call at most was under way, neither acknowledged nor surely unrecorded.
        self.assertIn(seen["allocations"] - allocations, (0, 1))
        self.assertIn(seen["frees"] - frees, (0, 1))
        self.assertIn(seen["failed_allocations"] - refusals, (0, 1))
        self.assertIn(len(report["oom_events"]) - refusals, (0, 1))
        if not killed.survived:
            self.assertNotEqual(report["process"]["exit"], 0)

    def test_nothing_completed_is_missing(self) -> None:
        seeds = [
            (seed, phase)
            for seed, phase in enumerate(
                phase for phase, share in SHARES.items() for _ in range(share)
            )
        ]
        self.assertEqual(len(seeds), KILLS)
        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            killed = list(
                workers.map(lambda case: kill_one(self.folder / str(case[0]), *case), seeds)
            )
        for seed, victim in enumerate(killed):
            with self.subTest(seed=seed, phase=victim.phase):
                self.check(victim)
        died = sum(1 for victim in killed if not victim.survived)
        self.assertGreater(died, KILLS // 2, "most victims ended before they were killed")


if __name__ == "__main__":
    unittest.main()
