# SPDX-License-Identifier: Apache-2.0
"""What others take and give back while the driver takes memory for this process is not ours."""

from __future__ import annotations

import subprocess
import unittest
from pathlib import Path
from typing import Any

from machine import TIMEOUT_S, ProcessTest, environment, program

MODULE_MIB = 16
OTHER_MIB = 64


class Told:
    """A process that does what it is told, line by line."""

    def __init__(self, module: Path, shim: bool, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [program("overhead_job"), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(shim, **settings),
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode


class Overhead(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.module = self.folder / "slow.module"
        self.module.write_text("simgpu-module\nkernel k\n")

    def start(self, **settings: Any) -> tuple[Told, Told]:
        """A process under memshim with a cap, and another beside it, both with a context."""
        shared = {
            "SIMGPU_SHARED": self.folder / "devices",
            "SIMGPU_CONTEXT": "100MiB",
            "SIMGPU_MODULE": f"{MODULE_MIB}MiB",
            **settings,
        }
        other = Told(self.module, False, **shared)
        ours = Told(
            self.module,
            True,
            MEMSHIM_OUTPUT=self.output,
            MEMSHIM_LOG="off",
            MEMSHIM_LIMIT="300MiB",
            XDG_CACHE_HOME=self.folder,
            **shared,
        )
        for process in (other, ours):
            self.addCleanup(process.end)
            self.assertEqual(process.tell("context"), "done")
        return ours, other

    def load(self, ours: Told, other: Told, meanwhile: str) -> int:
        """By how many MiB the process has less than before it loaded a module, while the other
        one did something in the middle of that."""
        before = int(ours.tell("free"))
        self.assertEqual(ours.tell("load"), "loading")
        self.assertEqual(other.tell(meanwhile), "done")
        self.assertEqual(ours.tell("go on"), "done")
        return (before - int(ours.tell("free"))) // 1024

    def test_what_another_takes_meanwhile_is_not_ours(self) -> None:
        ours, other = self.start()
        self.assertEqual(self.load(ours, other, f"take {OTHER_MIB}"), MODULE_MIB)

    def test_what_another_gives_back_meanwhile_is_not_ours(self) -> None:
        ours, other = self.start()
        self.assertEqual(other.tell(f"take {OTHER_MIB}"), "done")
        self.assertEqual(self.load(ours, other, "give"), MODULE_MIB)

    def test_where_nobody_says_whose_it_was_it_is_looked_at_again(self) -> None:
        ours, other = self.start(**self.without_nvml())
        self.assertEqual(self.load(ours, other, f"take {OTHER_MIB}"), MODULE_MIB + OTHER_MIB)
        # 300 - 100 - 16 MiB are there, of which 64 are taken for used.
        self.assertEqual(ours.tell("take 160"), "refused")
        # Nobody can have them now: the other one has given back more.
        self.assertEqual(other.tell("give"), "done")
        self.assertEqual(other.end(), 0)
        self.assertEqual(ours.tell("take 160"), "done")

    def test_threads_that_look_again_at_once_all_get_what_there_is(self) -> None:
        ours, other = self.start(**self.without_nvml())
        self.assertEqual(self.load(ours, other, f"take {OTHER_MIB}"), MODULE_MIB + OTHER_MIB)
        self.assertEqual(other.tell("give"), "done")
        self.assertEqual(other.end(), 0)
        # 300 - 100 - 16 MiB are there, of which the other's context and 64 are taken for used.
        self.assertEqual(ours.tell("together 4 40"), "0")


if __name__ == "__main__":
    unittest.main()
