# SPDX-License-Identifier: Apache-2.0
"""A program under memshim that stands still at known states (report/top_job.c)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import MIB, TIMEOUT_S, ProcessTest, environment, program

JOB = program("top_job")
LIMIT = 512 * MIB


class Job:
    """The program, standing still between two commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.known = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program ended"
        value = json.loads(line)
        assert isinstance(value, dict)
        return value

    def do(self, command: str) -> dict[str, Any]:
        """Has it done, and returns what the program then knows."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.known = self.answer()
        return self.known

    def end(self) -> str:
        """Lets it end; returns what stood on its standard error."""
        _, stderr = self.process.communicate(timeout=TIMEOUT_S)
        return stderr


class StandingTest(ProcessTest):
    @contextlib.contextmanager
    def job(self, *arguments: str, executable: Path = JOB, **settings: Any) -> Iterator[Job]:
        process = subprocess.Popen(
            [str(executable), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(
                True,
                **{"MEMSHIM_OUTPUT": self.output, "MEMSHIM_LIMIT": f"{LIMIT // MIB}MiB"} | settings,
            ),
            start_new_session=True,
        )
        try:
            yield Job(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
