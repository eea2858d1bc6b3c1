# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs under each of the allocators that are compared."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import targets
from world import HERE, ROOT, Fail, Result, Skip, World, only_device

CONF = "PYTORCH_CUDA_ALLOC_CONF"
TIMED_OUT = -signal.SIGALRM
START_S = 120.0


@dataclass(frozen=True)
class Configuration:
    name: str
    shim: bool
    settings: Mapping[str, str]


def under(name: str, **settings: str) -> Configuration:
    return Configuration(name, True, settings)


def alone(name: str, conf: str) -> Configuration:
    return Configuration(name, False, {CONF: conf})


NATIVE = alone(targets.NATIVE, "expandable_segments:False")
EXPANDABLE = alone(targets.EXPANDABLE, "expandable_segments:True")
ASYNC = alone(targets.ASYNC, "backend:cudaMallocAsync")
FULL = under(targets.FULL, MEMSHIM_TORCH="native", MEMSHIM_STACKS="full")
OFF = under(targets.OFF, MEMSHIM_TORCH="native", MEMSHIM_STACKS="off")
TENSOR = under(targets.TENSOR, MEMSHIM_TORCH="tensor")
# What PyTorch's deterministic algorithms ask of cuBLAS; the same for every run.
COMMON = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class Server:
    """A process with PyTorch loaded (serve.py) that runs jobs in one configuration."""

    def __init__(self, world: World, configuration: Configuration, contents: str) -> None:
        self.world = world
        self.configuration = configuration
        self.contents = contents
        self.lock = threading.Lock()
        self.log = world.work / f"serve-{time.monotonic_ns()}.log"
        self.process: subprocess.Popen[str] | None = None
        # All at once they would keep each other waiting where there are few processors.
        if not world.simulated:
            self.process = self.start()
        self.ready = False

    def start(self) -> subprocess.Popen[str]:
        world = self.world
        command = [world.need_python(), str(HERE / "serve.py")]
        settings: dict[str, object] = {**COMMON, **self.configuration.settings}
        if world.simulated:
            command.insert(0, str(ROOT / "scripts" / "simgpu.sh"))
            settings["SIMGPU_CONTENTS"] = self.contents
        with self.log.open("w") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=world.work,
                env=world.environment(self.configuration.shim, settings),
            )

    def answer(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            words = (self.log.read_text().strip().splitlines() or ["it said nothing"])[-1]
            raise Fail(f"PyTorch could not be loaded for {self.configuration.name}: {words[:300]}")
        value: dict[str, Any] = json.loads(line)
        return value

    def run(
        self,
        program: str,
        arguments: Sequence[object],
        timeout_s: float,
        **settings: Any,
    ) -> Result:
        """One job to its end."""
        with self.lock:
            self.process = self.process or self.start()
            if not self.ready:
                self.answer()
                self.ready = True
            left_s = self.world.left_s()
            if left_s < 1:
                raise Skip("no time left")
            files = [self.world.work / f"job-{time.monotonic_ns()}.{end}" for end in ("out", "err")]
            words = [str(argument) for argument in arguments]
            request = {
                "program": program,
                "arguments": words,
                "environment": {name: str(value) for name, value in settings.items()},
                "stdout": str(files[0]),
                "stderr": str(files[1]),
                "timeout_s": min(timeout_s, left_s),
            }
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            status = int(self.answer()["status"])
        texts = [file.read_text(errors="replace") if file.exists() else "" for file in files]
        timed_out = status == TIMED_OUT
        ended = timed_out and left_s <= timeout_s
        return Result([program, *words], status, texts[0], texts[1], timed_out, ended)

    def close(self) -> None:
        """What it has started is ended with the part."""
        if self.process is not None:
            self.process.kill()


@contextlib.contextmanager
def servers(
    world: World, *wanted: Configuration, contents: str = "none"
) -> Iterator[dict[str, Server]]:
    """Of each configuration one, by its name; they load PyTorch at the same time. `contents`: of
    the simulated GPU; where none are wanted, what jobs hold is counted and not stored."""
    made = {configuration.name: Server(world, configuration, contents) for configuration in wanted}
    try:
        yield made
    finally:
        for server in made.values():
            server.close()


@dataclass(frozen=True)
class Trained:
    """What a run of train.py said, and what memshim's report says of it."""

    losses: Sequence[str]
    steps_per_s: float
    step_s: float | None
    live_bytes: int
    reserved_bytes: int
    others_bytes: int  # charged beside the pool: context and what was forwarded
    device: Mapping[str, Any]  # of the report; empty without memshim


def outcome(result: Result, output: Path | None) -> Trained:
    ends = result.check().lines("end")
    if len(ends) != 1:
        raise Fail(f"the job did not end: {result.last_words()}")
    end = ends[0]
    device: Mapping[str, Any] = only_device(output) if output else {}
    live = int(end["peak_live_bytes"])
    others = 0
    if device:
        others = int(device["peak"]["charged_bytes"] - device["peak"]["reserved_bytes"])
        live = int(device["peak_live_bytes"])
    return Trained(
        losses=end["losses"],
        steps_per_s=end["steps_per_s"],
        step_s=end["step_s"],
        live_bytes=live,
        reserved_bytes=int(end["peak_reserved_bytes"]),
        others_bytes=others,
        device=device,
    )


def train(server: Server, *arguments: object, timeout_s: float = 120, **settings: Any) -> Trained:
    output = server.world.output("train") if server.configuration.shim else None
    if output:
        settings = {"MEMSHIM_OUTPUT": output, **settings}
    return outcome(server.run("train", arguments, timeout_s, **settings), output)


def out_of_memory(result: Result) -> bool:
    return result.status != 0 and "OutOfMemoryError" in result.stderr
