# SPDX-License-Identifier: Apache-2.0
"""Runs Python scripts on the simulated GPU, with settings and, if wanted, with memshim preloaded.

    result = harness.run("import torch; print(torch.cuda.device_count())", SIMGPU_DEVICES=2)
    result = harness.run_workload("gpt.py", "--steps", "5", ranks=2, preload=harness.SHIM)
    result.check()                      # the exit status was 0
    result.lines("end")                 # the JSON lines with that event, as dictionaries

Uses the build folder MEMSHIM_BUILD (default build/) and the Python that runs the tests, which must
have PyTorch: decorate test classes with `@harness.needs_torch`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "process"))  # it has files of the same names

from contradictions import contradictions  # noqa: E402
from documents import read_report  # noqa: E402

BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
SHIM = BUILD / "libmemshim.so"
CLI = BUILD / "memshim"
STAMP = BUILD / "tests" / "torch" / "stamp" / "libstamp.so"
SIMGPU = ROOT / "scripts" / "simgpu.sh"
WORKLOADS = ROOT / "tests" / "workloads"
# Of a program, on a machine that is busy with other tests.
TIMEOUT_S = 600

needs_torch = unittest.skipUnless(
    importlib.util.find_spec("torch"), "PyTorch is not installed in this Python"
)
# What takes long and says little that the others do not.
thorough = unittest.skipUnless(os.environ.get("MEMSHIM_TEST_ALL"), "scripts/test.sh --all")


@dataclass(frozen=True)
class Result:
    """What a run left: its exit status as subprocess gives it (-N: signal N) and its output."""

    command: Sequence[str]
    status: int
    stdout: str
    stderr: str
    timed_out: bool = False

    def check(self) -> Result:
        """Fails the test, with everything the run said, unless it succeeded."""
        if self.status != 0:
            raise AssertionError(self.describe())
        return self

    def describe(self) -> str:
        return (
            f"{' '.join(self.command)}\nended with status {self.status}\n"
            f"--- stdout\n{self.stdout[-20000:]}\n--- stderr\n{self.stderr[-20000:]}"
        )

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The JSON lines of the output; with an event's name, only those."""
        found = []
        for line in self.stdout.splitlines():
            # torchrun may put a prefix such as "[default0]:" before a rank's line, and ranks that
            # write at once may come to stand in one: Python may write a line's end by itself.
            start = line.find("{")
            while start >= 0:
                value = None
                with contextlib.suppress(ValueError):
                    value, end = json.JSONDecoder().raw_decode(line, start)
                if isinstance(value, dict) and event in (None, value.get("event")):
                    found.append(value)
                start = line.find("{", start + 1 if value is None else end)
        return found


Preload = Path | Sequence[Path] | None


@functools.cache
def caches() -> Path:
    """A folder that goes when the tests of this process end."""
    holder = tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True)
    atexit.register(holder.cleanup)
    return Path(holder.name)


def new_cache() -> Path:
    """What an earlier run found out must not decide what a later one does: each has a cache of its
    own."""
    return Path(tempfile.mkdtemp(dir=caches()))


def environment(preload: Preload = None, **settings: object) -> dict[str, str]:
    """This process's environment with these variables; None removes one.

    Variables of the simulated GPU and of memshim that are set here are not passed on. What is about
    spilling switches it on: elsewhere memory that runs out has to be seen to.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SIMGPU_", "MEMSHIM_", "PYTORCH_", "LD_"))
    }
    kept["MEMSHIM_BUILD"] = str(BUILD)
    if (Path(sys.prefix) / "bin" / "python").exists():
        kept["MEMSHIM_VENV"] = sys.prefix
    kept["XDG_CACHE_HOME"] = str(new_cache())
    kept["OMP_NUM_THREADS"] = "1"
    kept["MEMSHIM_SPILL"] = os.environ.get("MEMSHIM_TEST_SPILL", "off")
    # What a test reads of a report stands when the program has ended, however busy the machine is.
    kept["MEMSHIM_REPORT_WAIT"] = "300"
    if preload is not None:
        paths = [preload] if isinstance(preload, Path) else preload
        kept["LD_PRELOAD"] = ":".join(str(path) for path in paths)
    for name, value in settings.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = str(value)
    return kept


@contextlib.contextmanager
def started(
    command: Sequence[str | Path],
    preload: Preload = None,
    cwd: Path | None = None,
    **settings: object,
) -> Iterator[subprocess.Popen[str]]:
    """A command on the simulated GPU that is still running; whatever is left of it is killed."""
    process = subprocess.Popen(
        [str(part) for part in (SIMGPU, *command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env=environment(preload, **settings),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_command(
    command: Sequence[str | Path],
    preload: Preload = None,
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    **settings: object,
) -> Result:
    """Runs a command on the simulated GPU to its end. A timeout fails the test, with the output."""
    with started(command, preload, cwd, **settings) as process:
        timed_out = False
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            stderr += f"\n(killed by the test after {timeout_s} s)"
        words = [str(part) for part in command]
        return Result(words, process.returncode, stdout, stderr, timed_out)


def torchrun(ranks: int) -> list[str]:
    """The beginning of a command line that starts that many ranks on this machine."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
    ]


def script_text(source: str) -> str:
    """A script of this Python source text; its lines keep their numbers. At its end it waits for
    autograd's threads.

    It writes each line at once: torchrun starts ranks with `python -u`, which writes the words that
    are printed one by one, so that other ranks' come in between."""
    lines = "sys.stdout.reconfigure(line_buffering=True, write_through=False); "
    before = f"import sys; {lines}sys.path.append({str(WORKLOADS)!r}); import settle; "
    return before + textwrap.dedent(source)


def new_script(name: str, source: str) -> Path:
    """A file of that name in a folder of its own, with `script_text` of the source."""
    script = new_cache() / name
    script.write_text(script_text(source))
    return script


def preloading(library: Path) -> list[str]:
    """The beginning of a command line: this library comes before all others, memshim's too."""
    return ["sh", "-c", f'LD_PRELOAD={library}:$LD_PRELOAD exec "$@"', "sh"]


def run(
    source: str,
    *arguments: str,
    ranks: int = 0,
    preload: Preload = None,
    before: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
    **settings: object,
) -> Result:
    """Runs Python source text; with `ranks`, as that many ranks under torchrun.

    before: words that the command line begins with."""
    with tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True) as folder:
        script = Path(folder) / "script.py"
        script.write_text(script_text(source))
        start = torchrun(ranks) if ranks else [sys.executable]
        return run_command(
            [*before, *start, script, *arguments],
            preload=preload,
            cwd=Path(folder),
            timeout_s=timeout_s,
            **settings,
        )


@dataclass(frozen=True)
class Job:
    """A run under memshim: what it said, and what it left."""

    result: Result
    reports: Sequence[dict[str, Any]]  # report.json of every process, by folder name
    texts: Sequence[str]  # report.txt of the same

    def only(self) -> dict[str, Any]:
        """The report of the one process that left one; else the test fails."""
        if len(self.reports) != 1:
            raise AssertionError(f"{len(self.reports)} reports\n{self.result.describe()}")
        return self.reports[0]


def folders_in(output: Path) -> list[Path]:
    """Of the processes of the latest run in an output folder."""
    return [p for p in sorted((output / "latest").glob("*/")) if (p / "trace.mshm").exists()]


def reports_in(output: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The reports of the latest run in an output folder: the parsed ones and the texts."""
    run_folder, folders = output / "latest", folders_in(output)
    if (run_folder / "report.txt").exists():
        found = contradictions(run_folder)
        assert not found, found[:5]
    reports = [read_report(folder / "report.json") for folder in folders]
    return reports, [(folder / "report.txt").read_text() for folder in folders]


def run_memshim(
    source: str,
    *arguments: str,
    ranks: int = 0,
    python: Sequence[str] = (),
    before: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
    **settings: Any,
) -> Job:
    """Runs Python source text under `memshim run`, with these settings."""
    with tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True) as folder:
        script = Path(folder) / "script.py"
        script.write_text(script_text(source))
        start = torchrun(ranks) if ranks else [sys.executable, *python]
        result = run_command(
            [CLI, "run", "--", *before, *start, script, *arguments],
            cwd=Path(folder),
            timeout_s=timeout_s,
            MEMSHIM_OUTPUT=f"{folder}/out",
            **settings,
        )
        return Job(result, *reports_in(Path(folder) / "out"))


def run_stamped(
    source: str,
    *arguments: str,
    shim: bool = True,
    ranks: int = 0,
    timeout_s: float = TIMEOUT_S,
    **settings: Any,
) -> Job:
    """Runs Python source text under the preload that stamps tensors (stamp/stamp.c), and memshim.

    A wrong byte ends the run with status 86 and a line on stderr that begins with "stamp:".
    """
    with tempfile.TemporaryDirectory(prefix="memshim-test.", ignore_cleanup_errors=True) as folder:
        script = Path(folder) / "script.py"
        script.write_text(script_text(source))
        start = torchrun(ranks) if ranks else [sys.executable]
        result = run_command(
            [*start, script, *arguments],
            preload=[STAMP, SHIM] if shim else [STAMP],
            cwd=Path(folder),
            timeout_s=timeout_s,
            **{"MEMSHIM_OUTPUT": f"{folder}/out", "SIMGPU_DELAY_US": "0-300", **settings},
        )
        # A process that died of what was found leaves no report.
        ended = shim and result.status == 0
        return Job(result, *(reports_in(Path(folder) / "out") if ended else ([], [])))


def run_workload(
    name: str,
    *arguments: str,
    ranks: int = 0,
    preload: Preload = None,
    timeout_s: float = TIMEOUT_S,
    **settings: object,
) -> Result:
    """Runs a script of tests/workloads; with `ranks`, as that many ranks under torchrun."""
    start = torchrun(ranks) if ranks else [sys.executable]
    return run_command(
        [*start, WORKLOADS / name, *arguments],
        preload=preload,
        cwd=None,
        timeout_s=timeout_s,
        **settings,
    )
