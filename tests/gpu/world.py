# SPDX-License-Identifier: Apache-2.0
"""What every part of the check stands on: the machine, commands with and without memshim, times by
which to end, and the lines in which a part says what it found.

A part is a program (part_*.py) that check.py starts with the settings of `World` in its
environment. It writes one JSON line for each thing it has found, at once, so that what it had when
its time was up is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PREFIX = "GPU_CHECK_"
NO_KERNELS = "kernels do nothing on the simulated GPU"
PR_SET_CHILD_SUBREAPER = 36
# Processes that each make a context: where only results count, so many at a time.
AT_ONCE = 8
KILLED_S = 10.0
# With all of them making one at the same time.
FIRST_WORD_S = 10.0


class Skip(Exception):
    """A case that cannot be tried here, and why."""


class Fail(Exception):
    """A case that was tried and did not hold."""


@dataclass(frozen=True)
class Result:
    """How a command ended: its status as subprocess gives it (-N: signal N) and what it said."""

    command: Sequence[str]
    status: int
    stdout: str
    stderr: str
    timed_out: bool
    out_of_time: bool = False  # not the command's own time was up, but the part's

    def check(self, status: int = 0) -> Result:
        if self.out_of_time:
            raise Skip("no time left: it was ended")
        if self.timed_out:
            raise Fail(f"{self.name()} did not end in time: {self.last_words()}")
        if self.status != status:
            raise Fail(f"{self.name()} ended with status {self.status}: {self.last_words()}")
        return self

    def name(self) -> str:
        return " ".join(Path(part).name if "/" in part else part for part in self.command)[:120]

    def last_words(self) -> str:
        lines = [
            line
            for line in (self.stderr + "\n" + self.stdout).splitlines()
            if line.strip() and not line.startswith("memshim: ")
        ]
        errors = [line for line in lines if "Error" in line or "error" in line]
        return (errors or lines or ["it said nothing"])[-1].strip()[:300]

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The JSON lines of its output; with an event's name, only those."""
        found = []
        for line in self.stdout.splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line) if line.startswith("{") else None
                if isinstance(value, dict) and event in (None, value.get("event")):
                    found.append(value)
        return found


def adopt_orphans() -> None:
    """What this process's children leave behind becomes its child, and so can be ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in (folder / "children").read_text().split()]
    return found


def end_tree(pid: int) -> None:
    """Kills a child of this process with all that it has started. Others stay."""
    tree = [pid]
    for one in tree:
        tree += children_of(one)
    for one in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def end_descendants() -> None:
    """Kills everything that this process has started, directly or not, and waits for its end."""
    while True:
        living = children_of(os.getpid())
        if not living:
            return
        for child in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in living:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


@dataclass(frozen=True)
class World:
    """Where this check runs. Times are of time.monotonic, which all processes share."""

    build: Path
    work: Path  # for what is thrown away at the end
    out: Path  # for what is kept
    python: str  # an interpreter with PyTorch; "": there is none
    libraries: str  # for LD_LIBRARY_PATH: what was carried here and this machine lacks
    simulated: bool
    limit_bytes: int  # the most device memory that a part may use at a time
    deadline: float
    torch_tests: str = ""  # the folder test/ of PyTorch's sources; "": there is none

    def exported(self) -> dict[str, str]:
        return {
            PREFIX + "BUILD": str(self.build),
            PREFIX + "WORK": str(self.work),
            PREFIX + "OUT": str(self.out),
            PREFIX + "PYTHON": self.python,
            PREFIX + "LIBRARIES": self.libraries,
            PREFIX + "SIMULATED": "1" if self.simulated else "",
            PREFIX + "LIMIT": str(self.limit_bytes),
            PREFIX + "DEADLINE": repr(self.deadline),
            PREFIX + "TORCH_TESTS": self.torch_tests,
        }

    @staticmethod
    def imported() -> World:
        env = os.environ
        return World(
            build=Path(env[PREFIX + "BUILD"]),
            work=Path(env[PREFIX + "WORK"]),
            out=Path(env[PREFIX + "OUT"]),
            python=env[PREFIX + "PYTHON"],
            libraries=env[PREFIX + "LIBRARIES"],
            simulated=env[PREFIX + "SIMULATED"] == "1",
            limit_bytes=int(env[PREFIX + "LIMIT"]),
            deadline=float(env[PREFIX + "DEADLINE"]),
            torch_tests=env[PREFIX + "TORCH_TESTS"],
        )

    def left_s(self) -> float:
        """Seconds that this part still has."""
        return self.deadline - time.monotonic()

    def need(self, seconds: float) -> None:
        """Skips the case unless there is as much time."""
        if self.left_s() < seconds:
            raise Skip("no time left")

    @property
    def at_once(self) -> int:
        """Programs side by side, where their times do not count. One, where a step of the simulated
        GPU is all processor time."""
        return 1 if self.simulated else max(1, min(AT_ONCE, len(os.sched_getaffinity(0))))

    @property
    def shim(self) -> Path:
        return self.build / "libmemshim.so"

    @property
    def cli(self) -> Path:
        return self.build / "memshim"

    def program(self, name: str) -> Path:
        """A C program of tests/gpu or tests/process, as built."""
        for folder in ("gpu", "process"):
            path = self.build / "tests" / folder / name
            if path.exists():
                return path
        raise Skip(f"this build has no {name}")

    def need_python(self) -> str:
        if not self.python:
            raise Skip("no python3 with PyTorch here")
        return self.python

    def environment(self, shim: bool, settings: Mapping[str, object]) -> dict[str, str]:
        """A command's environment: ours without what is about memshim or PyTorch's allocator, then
        these; None removes one. Running out is to be seen unless a part says otherwise, so spilling
        is off."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MEMSHIM_", "PYTORCH_", PREFIX)) and name != "LD_PRELOAD"
        }
        kept["MEMSHIM_SPILL"] = "off"
        kept["MEMSHIM_REPORT_WAIT"] = "300"
        kept["MEMSHIM_OUTPUT"] = str(self.work / "memshim-out")
        paths = [self.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        if self.simulated:
            paths.insert(0, str(self.build / "simgpu"))
            kept["MEMSHIM_BUILD"] = str(self.build)
            kept["SIMGPU_SHARED"] = str(self.work / "devices")
            kept.setdefault("SIMGPU_MEMORY", "64GiB")
            kept["OMP_NUM_THREADS"] = "1"
            if self.python:
                kept["MEMSHIM_VENV"] = str(Path(self.python).parent.parent)
        kept["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        if shim:
            kept["LD_PRELOAD"] = str(self.shim)
        for name, value in settings.items():
            kept.pop(name, None)
            if value is not None:
                kept[name] = str(value)
        return kept

    def start(
        self,
        command: Sequence[str | Path],
        shim: bool = False,
        torch: bool = False,
        **settings: object,
    ) -> subprocess.Popen[str]:
        words = [str(part) for part in command]
        if torch and self.simulated:
            words.insert(0, str(ROOT / "scripts" / "simgpu.sh"))
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.work,
            env=self.environment(shim, settings),
        )

    def run(
        self,
        command: Sequence[str | Path],
        shim: bool = False,
        torch: bool = False,
        timeout_s: float = 60,
        **settings: object,
    ) -> Result:
        """A command to its end, or until this much time, or this part's, is up. `torch`: a Python
        program that wants PyTorch's libraries, of which the simulated GPU has doubles."""
        left_s = self.left_s()
        if left_s <= 0:
            raise Skip("no time left")
        process = self.start(command, shim, torch, **settings)
        timed_out = False
        try:
            stdout, stderr = process.communicate(timeout=min(timeout_s, left_s))
        except subprocess.TimeoutExpired:
            timed_out = True
            end_tree(process.pid)
            try:
                stdout, stderr = process.communicate(timeout=KILLED_S)
            except subprocess.TimeoutExpired:
                stdout, stderr = "", "it left a process that holds its output"
        words = [str(part) for part in command]
        ended = timed_out and left_s <= timeout_s
        result = Result(words, process.returncode, stdout, stderr, timed_out, ended)
        if result.status != 0:
            self.note(result)
        return result

    def run_until_silent(
        self, command: Sequence[str | Path], silent_s: float, shim: bool = False, **settings: object
    ) -> Result:
        """A command that is ended when it has said nothing more for so long, or nothing at all for
        longer than a context takes, or with this part."""
        process = self.start(command, shim, False, **settings)
        assert process.stdout is not None and process.stderr is not None
        said = bytearray()
        timed_out = False
        while True:
            wait_s = min(silent_s if said else FIRST_WORD_S, max(0.0, self.left_s()))
            if not select.select([process.stdout], [], [], wait_s)[0]:
                timed_out = True
                break
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                break
            said += more
        if timed_out:
            end_tree(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_S)
        process.stdout.close()
        process.stderr.close()
        words = [str(part) for part in command]
        text = said.decode(errors="replace")
        status = -signal.SIGKILL if process.returncode is None else process.returncode
        result = Result(words, status, text, "", timed_out, self.left_s() <= 0)
        if result.status != 0:
            self.note(result)
        return result

    def note(self, result: Result) -> None:
        """All that a command said that did not end well, for who looks into a kept work folder."""
        text = f"{result.command}\nstatus {result.status}, timed out: {result.timed_out}\n"
        text += f"--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}\n"
        (self.work / f"ended-{time.monotonic_ns()}.txt").write_text(text)

    def run_python(self, script: str, *arguments: object, **settings: Any) -> Result:
        """A Python program of this folder, with PyTorch."""
        command: list[str | Path] = [self.need_python(), HERE / script, *map(str, arguments)]
        return self.run(command, torch=True, **settings)

    def output(self, name: str) -> Path:
        """A new folder for what memshim leaves of one run."""
        path = self.work / f"output-{name}-{time.monotonic_ns()}"
        path.mkdir()
        return path


def reports(output: Path) -> list[dict[str, Any]]:
    """The reports of the processes that left one there."""
    return [
        json.loads(path.read_text())
        for path in sorted(output.glob("*/*/report.json"))
        if "latest" not in path.parts
    ]


def only_device(output: Path) -> dict[str, Any]:
    """The first device of the one report there."""
    found = reports(output)
    if len(found) != 1:
        raise Fail(f"{len(found)} reports where one was expected")
    device = found[0]["devices"][0]
    assert isinstance(device, dict)
    return device


def context_bytes(world: World) -> int:
    """What the device loses to a C program's context, measured by one that needs hardly more."""
    output = world.output("context")
    sizes = ("--steps", "1", "--layers", "1", "--width", "64")
    world.run([world.program("trainer"), *sizes], shim=True, MEMSHIM_OUTPUT=output).check()
    peak = only_device(output)["peak"]
    return int(peak["charged_bytes"] - peak["reserved_bytes"])


def package_folders(world: World) -> list[str]:
    """Folders in which CUDA's libraries may lie: the toolkit's and those beside PyTorch."""
    folders = [Path("/usr/local/cuda/lib64"), Path("/usr/local/cuda/extras/CUPTI/lib64")]
    if world.python:
        site = world.run(
            [world.python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"]
        )
        packages = Path(site.stdout.strip()).parent.parent if site.status == 0 else Path("/nowhere")
        folders += [*packages.glob("nvidia/*/lib"), packages / "torch" / "lib"]
    return [str(folder) for folder in folders if folder.is_dir()]


class Part:
    """One part's cases, each of which passes, fails or is skipped, with figures."""

    def __init__(self) -> None:
        adopt_orphans()
        self.world = World.imported()

    def say(self, **values: object) -> None:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()

    def figure(self, name: str, value: float | None, unit: str = "") -> None:
        """A number worth keeping, under a name that targets.py may know."""
        self.say(figure=name, value=value, unit=unit)

    def answer(self, question: str, saw: str, value: float | None = None, unit: str = "") -> None:
        """What was found out where nothing was taken for granted: words, a number, or both."""
        self.say(answer=question, saw=saw, value=value, unit=unit)

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[None]:
        """What happens inside is the case; it fails by an exception, and the part goes on."""
        start = time.monotonic()
        status, reason = "pass", ""
        try:
            yield
        except Skip as why:
            status, reason = "skipped", str(why)
        except Fail as why:
            status, reason = "fail", str(why)
        except Exception as error:
            status, reason = "fail", f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self.say(case=name, status=status, reason=reason, seconds=time.monotonic() - start)

    def side_by_side(self, jobs: Sequence[Callable[[], None]], at_once: int = 0) -> None:
        """Each is one case or some; `at_once` of them at a time, begun in their order."""
        with ThreadPoolExecutor(at_once or self.world.at_once) as threads:
            for done in [threads.submit(job) for job in jobs]:
                done.result()

    def needs_kernels(self) -> None:
        """At the end of a case whose outcome says nothing where no kernel runs."""
        if self.world.simulated:
            raise Skip(f"it ran through, but {NO_KERNELS}")


def expect(condition: bool, reason: str) -> None:
    if not condition:
        raise Fail(reason)


def main(run: Callable[[Part], None]) -> None:
    """A part's program."""
    part = Part()

    def stop(*_: object) -> None:
        end_descendants()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    run(part)
    end_descendants()
