# SPDX-License-Identifier: Apache-2.0
"""Runs programs on the simulated GPU, with and without memshim, and reads what they left."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from documents import read_report

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
INSTALLED = BUILD / "libmemshim.so"
# The same with checks of the order of its locks, where the build has it
# (allocator/base/locks/lock_rank.def).
CHECKED = BUILD / "checked" / "libmemshim.so"
SHIM = CHECKED if CHECKED.exists() else INSTALLED
CLI = BUILD / "memshim"
SIMGPU = BUILD / "simgpu"
PROGRAMS = BUILD / "tests" / "process"
MAKE_RUN = BUILD / "tests" / "unit" / "report" / "unit_report_make_run"
MIB = 1 << 20
GIB = 1 << 30
# Where the build was made with a sanitizer: it names that one's library, and all takes longer.
SANITIZER = BUILD / "sanitizer-runtime"
TIMEOUT_S = 900 if SANITIZER.exists() else 300


@dataclass(frozen=True)
class Result:
    """How a run ended: its exit status as subprocess gives it (-N: signal N) and its output."""

    command: Sequence[str]
    status: int
    stdout: str
    stderr: str

    def check(self, status: int = 0) -> Result:
        """Fails the test, with everything the run said, unless it ended with this status."""
        if self.status != status:
            raise AssertionError(self.describe())
        return self

    def describe(self) -> str:
        return (
            f"{' '.join(self.command)}\nended with status {self.status}\n"
            f"--- stdout\n{self.stdout[-8000:]}\n--- stderr\n{self.stderr[-8000:]}"
        )


def environment(shim: bool, **settings: Any) -> dict[str, str]:
    """The environment of a run: the simulated GPU's libraries first, memshim preloaded or not.

    Variables of the simulated GPU and of memshim that are set around the tests are not passed on.
    What is about spilling switches it on: elsewhere memory that runs out has to be seen to, unless
    MEMSHIM_TEST_SPILL, around the tests, says otherwise.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SIMGPU_", "MEMSHIM_", "LD_"))
    }
    kept["LD_LIBRARY_PATH"] = str(SIMGPU)
    if shim:
        kept["LD_PRELOAD"] = str(SHIM)
    kept["MEMSHIM_SPILL"] = os.environ.get("MEMSHIM_TEST_SPILL", "off")
    # What a test reads of a report stands when the program has ended, however busy the machine is.
    kept["MEMSHIM_REPORT_WAIT"] = "300"
    for name, value in settings.items():
        kept[name] = str(value)
    if SANITIZER.exists() and "LD_PRELOAD" in kept:
        kept["LD_PRELOAD"] = f"{SANITIZER.read_text()}:{kept['LD_PRELOAD']}"
        # What the pool's own pages point to would count as lost: they are none of the heap's.
        kept["ASAN_OPTIONS"] = "detect_leaks=0"
    return kept


def start(
    command: Sequence[str | Path],
    shim: bool = False,
    cwd: Path | None = None,
    preexec: Callable[[], None] | None = None,
    **settings: Any,
) -> subprocess.Popen[str]:
    """Starts a command in a session of its own, so that the whole of it can be ended."""
    return subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(shim, **settings),
        start_new_session=True,
        preexec_fn=preexec,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> Result:
    """Waits for its end. A timeout fails the test, with the output so far."""
    command = [str(part) for part in process.args]  # type: ignore[union-attr]
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        stderr += f"\n(killed by the test after {timeout_s} s)"
    return Result(command, process.returncode, stdout, stderr)


def run(
    command: Sequence[str | Path],
    shim: bool = False,
    cwd: Path | None = None,
    preexec: Callable[[], None] | None = None,
    timeout_s: float = TIMEOUT_S,
    **settings: Any,
) -> Result:
    return finish(start(command, shim, cwd, preexec, **settings), timeout_s)


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Nobody else is given these ports meanwhile. A server can listen there, because both allow the
    address's reuse, as servers do, and this one does not listen."""
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        yield [holder.getsockname()[1] for holder in holders]


def program(name: str) -> Path:
    """A C program of tests/process, as built."""
    return PROGRAMS / name


def run_folders(output: Path) -> list[Path]:
    """The runs' folders below an output folder, without the link to the latest."""
    if not output.is_dir():
        return []
    return sorted(path for path in output.iterdir() if path.is_dir() and not path.is_symlink())


def process_folders(output: Path) -> list[Path]:
    """The folders that processes left there, over all runs."""
    return sorted(
        path.parent for folder in run_folders(output) for path in folder.glob("*/trace.mshm")
    )


def report_of(folder: Path) -> dict[str, Any]:
    """A process's report.json."""
    return read_report(folder / "report.json")


def only_report(output: Path) -> dict[str, Any]:
    """The report of the one process that left something there."""
    folders = process_folders(output)
    assert len(folders) == 1, f"{len(folders)} processes left a trace: {folders}"
    return report_of(folders[0])


def without_pointers(text: str) -> str:
    """A program's account, with what may differ from run to run taken out."""
    return re.sub(r"0x[0-9a-f]+", "POINTER", text)


@functools.cache
def run_of_three() -> Path:
    """One that went well, one out of memory, one killed; made once for all tests of a process."""
    holder = tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True)
    atexit.register(holder.cleanup)
    made = run([MAKE_RUN, holder.name]).check()
    return Path(made.stdout.strip().splitlines()[-1])


def remove_output(folder: Path) -> None:
    """Removes what runs left, also while a reader still writes there."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


class ProcessTest(unittest.TestCase):
    """A test with a folder of its own, which is also where its runs leave their reports, and with a
    home and a cache of its own."""

    folder: Path
    output: Path

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True)
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.output = self.folder / "memshim-out"
        home = tempfile.TemporaryDirectory(prefix="memshim-home.", ignore_cleanup_errors=True)
        self.addCleanup(home.cleanup)
        own = {"HOME": home.name, "XDG_CACHE_HOME": str(Path(home.name) / "cache")}
        surroundings = mock.patch.dict(os.environ, own)
        surroundings.start()
        self.addCleanup(surroundings.stop)

    def without_nvml(self) -> dict[str, Any]:
        """The driver alone, which does not know who uses what."""
        alone = self.folder / "driver"
        alone.mkdir()
        (alone / "libcuda.so.1").symlink_to(SIMGPU / "libcuda.so.1")
        return {"LD_LIBRARY_PATH": alone}

    def run_under_shim(self, *command: str | Path, **settings: Any) -> Result:
        return run(command, shim=True, MEMSHIM_OUTPUT=self.output, **settings)

    @contextlib.contextmanager
    def running(self, *command: str | Path, **settings: Any) -> Iterator[subprocess.Popen[str]]:
        """A command that is still running; whatever is left of it at the end is killed."""
        process = start(command, **settings)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
