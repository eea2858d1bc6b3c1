# SPDX-License-Identifier: Apache-2.0
"""Two hundred processes killed at seeded moments: what had completed before is in the report."""

from __future__ import annotations

import os
import random
import signal
import struct
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from machine import CLI, ProcessTest, process_folders, program, report_of, run

PROGRESS = struct.Struct("<4Q")
ROUNDS = 20000
REFUSALS = 40


@dataclass(frozen=True)
class Phase:
    """A part of the victim's life: how many of the kills fall into it, what can be done in it
    before the moment comes, and the longest delay after that."""

    name: str
    kills: int
    things: int
    delay_ns: int


PHASES = (
    Phase("start", 30, 1, 8_000_000),
    Phase("churn", 95, ROUNDS, 20_000),
    Phase("out of memory", 40, REFUSALS, 10_000),
    Phase("exit", 35, 1, 4_000_000),
)
EXIT = 3
ALL_OF_THE_RUN = 8  # of one victim in so many, the report of its run is made as well


@dataclass(frozen=True)
class Killed:
    seed: int
    status: int
    phase: int  # in which it was when it died
    allocations: int
    frees: int
    refusals: int
    output: Path


def kill_one(folder: Path, seed: int, number: int) -> Killed:
    """Runs the victim, which dies at a moment drawn from the seed."""
    draw = random.Random(seed)
    phase = PHASES[number]
    folder.mkdir()
    output = folder / "memshim-out"
    progress = folder / "progress"
    moment = (number, draw.randrange(phase.things), draw.randrange(phase.delay_ns))
    result = run(
        [program("victim"), progress, str(seed), str(ROUNDS), *map(str, moment)],
        shim=True,
        MEMSHIM_OUTPUT=output,
        SIMGPU_CONTENTS="none",
    )
    done = progress.read_bytes() if progress.exists() else b""
    phase_then, allocations, frees, refusals = PROGRESS.unpack(done.ljust(PROGRESS.size, b"\0"))
    return Killed(seed, result.status, phase_then, allocations, frees, refusals, output)


class Kills(ProcessTest):
    def check(self, killed: Killed) -> None:
        self.assertIn(killed.status, (-signal.SIGKILL, 0))
        folders = process_folders(killed.output)
        if not folders:
            self.assertEqual((killed.allocations, killed.frees, killed.refusals), (0, 0, 0))
            return
        self.assertEqual(len(folders), 1)
        text = run([CLI, "report", folders[0]]).check().stdout
        self.assertIn("victim", text)
        if killed.seed % ALL_OF_THE_RUN == 0:
            run([CLI, "report", folders[0].parent]).check()
        report = report_of(folders[0])
        devices = report["devices"]
        seen = devices[0] if devices else {"allocations": 0, "frees": 0, "failed_allocations": 0}
        # One call at most was under way, neither acknowledged nor surely unrecorded.
        self.assertIn(seen["allocations"] - killed.allocations, (0, 1))
        self.assertIn(seen["frees"] - killed.frees, (0, 1))
        self.assertIn(seen["failed_allocations"] - killed.refusals, (0, 1))
        asked = sum(event["asked_times"] for event in report["oom_events"])
        self.assertIn(asked - killed.refusals, (0, 1))
        if killed.phase != EXIT:
            self.assertNotEqual(report["process"]["exit"], 0)

    def test_nothing_completed_is_missing(self) -> None:
        numbers = [number for number, phase in enumerate(PHASES) for _ in range(phase.kills)]
        self.assertEqual(len(numbers), 200)
        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            victims = list(
                workers.map(
                    lambda seed: kill_one(self.folder / str(seed), seed, numbers[seed]),
                    range(len(numbers)),
                )
            )
        for killed in victims:
            with self.subTest(seed=killed.seed, phase=PHASES[numbers[killed.seed]].name):
                self.check(killed)
        for number, phase in enumerate(PHASES):
            hit = sum(1 for one in victims if one.phase == number and one.status != 0)
            self.assertGreater(hit, phase.kills // 5, f"too few died in the phase {phase.name}")


if __name__ == "__main__":
    unittest.main()
