# SPDX-License-Identifier: Apache-2.0
"""Runs scripts in processes forked from one that has imported PyTorch: the import costs several
times what a small job does.

    run = forked.run("moe.py", "--steps", "2", ranks=2, SIMGPU_MEMORY="1GiB")
    run.result.check()          # of all ranks: the first status that is not 0, and what they said
    run.reports                 # report.json of each rank
    run.folder                  # what memshim left, until the tests of this process end
    forked.run_plain("gpt.py")  # the same without memshim: a result, and no report
    forked.run_source("print(1)").check()

The process that forks has not used the driver: each child is a process like any other to memshim
and to the simulated GPU, reads its own settings, and leaves a trace of its own. What PyTorch reads
as it is loaded (PYTORCH_ALLOC_CONF's backend), or what starts interpreters itself, is not for it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import harness

# All that the scripts of tests/workloads import sooner or later.
MODULES = (
    *("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim"),
    *("torch.distributed.tensor", "torch.utils.checkpoint"),
)


@dataclass(frozen=True)
class Run:
    """A job that has ended. Reports and texts are in the order of ranks."""

    result: harness.Result
    reports: Sequence[dict[str, Any]]
    texts: Sequence[str]
    folder: Path  # the run's, with a folder for each process
    folders: Sequence[Path]  # those, in the order of ranks


# ---- the process that forks ----


def become(request: dict[str, Any], rank: int) -> None:
    """What is left of this process's life is the job's."""
    folder = Path(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / f"{name}.{rank}", os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.environ.update(request["settings"])
    if request["ranks"] > 1:
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
    script, *arguments = request["command"]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def wait_for(children: Sequence[int], timeout_s: float) -> list[int]:
    """Their exit statuses; those that are not through in time are killed."""
    deadline = time.monotonic() + timeout_s
    statuses: dict[int, int] = {}
    while len(statuses) < len(children):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            statuses[pid] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > deadline:
            for child in set(children) - set(statuses):
                os.kill(child, signal.SIGKILL)
            deadline += timeout_s
        else:
            time.sleep(0.01)
    return [statuses[child] for child in children]


def serve() -> tuple[dict[str, Any], int] | None:
    """Returns in every child, with what it is to do; at the end of the requests, in the parent."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in MODULES:
        importlib.import_module(name)
    for line in requests:
        request = json.loads(line)
        children = []
        for rank in range(request["ranks"]):
            child = os.fork()
            if child == 0:
                requests.close()
                replies.close()
                return request, rank
            children.append(child)
        replies.write(json.dumps(wait_for(children, request["timeout_s"])) + "\n")
        replies.flush()
    return None


def main() -> None:
    task = serve()
    if task:
        become(*task)


# ---- the tests' side ----


class Forks:
    """The process that forks, and a folder for what its children leave."""

    def __init__(self, preload: harness.Preload) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        self.errors = Path(self.folder.name) / "errors"
        self.jobs = 0
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [str(harness.SIMGPU), sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=harness.environment(preload),
                start_new_session=True,
            )
        atexit.register(self.close)

    def close(self) -> None:
        pipe(self.process.stdin).close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        pipe(self.process.stdout).close()
        self.folder.cleanup()

    def run(self, request: dict[str, Any]) -> list[int]:
        requests, replies = pipe(self.process.stdin), pipe(self.process.stdout)
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        reply = replies.readline()
        if not reply:
            raise AssertionError(f"the process that forks is gone\n{self.errors.read_text()}")
        statuses: list[int] = json.loads(reply)
        return statuses


def pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None
    return end


@functools.cache
def forks(shim: bool) -> Forks:
    return Forks(harness.SHIM if shim else None)


@contextlib.contextmanager
def ranks_settings(ranks: int) -> Iterator[dict[str, str]]:
    """What torchrun tells its workers. Nobody else is given the port meanwhile; the first rank can
    listen there, because both allow the address's reuse and this one does not listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(holder.getsockname()[1]),
        }


def new_folder(server: Forks) -> Path:
    server.jobs += 1
    folder = Path(server.folder.name) / str(server.jobs)
    folder.mkdir()
    return folder


def run_in(
    server: Forks,
    folder: Path,
    script: str | Path,
    arguments: Sequence[str],
    ranks: int,
    timeout_s: float,
    settings: dict[str, object],
) -> harness.Result:
    command = [str(harness.WORKLOADS / script), *arguments]
    with contextlib.ExitStack() as stack:
        of_ranks = stack.enter_context(ranks_settings(ranks)) if ranks > 1 else {}
        all_settings = {
            "SIMGPU_DEVICES": ranks,
            "SIMGPU_SHARED": folder / "devices",
            "XDG_CACHE_HOME": folder / "cache",
            **of_ranks,
            **settings,
        }
        request = {
            "command": command,
            "ranks": ranks,
            "folder": str(folder),
            "timeout_s": timeout_s,
            "settings": {name: str(value) for name, value in all_settings.items()},
        }
        statuses = server.run(request)
    status = next((each for each in statuses if each != 0), 0)
    said = [
        "".join((folder / f"{name}.{rank}").read_text() for rank in range(ranks))
        for name in ("stdout", "stderr")
    ]
    return harness.Result(command, status, *said)


def run_plain(
    script: str | Path,
    *arguments: str,
    ranks: int = 1,
    timeout_s: float = harness.TIMEOUT_S,
    **settings: object,
) -> harness.Result:
    """Runs a script without memshim, by its path or by its name in tests/workloads."""
    server = forks(shim=False)
    return run_in(server, new_folder(server), script, arguments, ranks, timeout_s, settings)


def run_source(source: str, ranks: int = 1, **settings: object) -> harness.Result:
    """Runs Python source text without memshim."""
    server = forks(shim=False)
    folder = new_folder(server)
    script = folder / "script.py"
    script.write_text(harness.script_text(source))
    return run_in(server, folder, script, (), ranks, harness.TIMEOUT_S, settings)


def run(
    script: str | Path,
    *arguments: str,
    ranks: int = 1,
    timeout_s: float = harness.TIMEOUT_S,
    **settings: object,
) -> Run:
    """Runs a script, by its path or by its name in tests/workloads, as so many ranks."""
    server = forks(shim=True)
    return run_under_shim(
        *(server, new_folder(server), script, arguments, ranks, timeout_s),
        {"SIMGPU_CONTENTS": "none", **settings},
    )


def run_memshim(source: str, ranks: int = 1, **settings: object) -> harness.Job:
    """Runs Python source text, as harness.run_memshim does."""
    server = forks(shim=True)
    folder = new_folder(server)
    script = folder / "script.py"
    script.write_text(harness.script_text(source))
    run = run_under_shim(server, folder, script, (), ranks, harness.TIMEOUT_S, settings)
    return harness.Job(run.result, run.reports, run.texts)


def run_under_shim(
    server: Forks,
    folder: Path,
    script: str | Path,
    arguments: Sequence[str],
    ranks: int,
    timeout_s: float,
    settings: dict[str, object],
) -> Run:
    memshim = {"MEMSHIM_OUTPUT": folder / "out", "MEMSHIM_RUN_ID": "run"}
    result = run_in(server, folder, script, arguments, ranks, timeout_s, {**memshim, **settings})
    try:
        reports, texts = harness.reports_in(folder / "out")
    except FileNotFoundError as error:
        raise AssertionError(f"a process left no report\n{result.describe()}") from error
    folders = [Path(p).parent for p in sorted((folder / "out" / "run").glob("*/trace.mshm"))]
    order = sorted(range(len(reports)), key=lambda i: int(reports[i]["process"]["rank"] or 0))
    return Run(
        result,
        [reports[i] for i in order],
        [texts[i] for i in order],
        folder / "out" / "run",
        [folders[i] for i in order],
    )


if __name__ == "__main__":
    main()
