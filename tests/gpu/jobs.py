# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs under each of the allocators that are compared."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import targets
from world import HERE, ROOT, Fail, Result, Skip, World, only_device

CONF = "PYTORCH_CUDA_ALLOC_CONF"
TIMED_OUT = -signal.SIGALRM


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
    """A process with PyTorch loaded (serve.py) that runs jobs in one configuration, side by side
    where several threads ask for them."""

    def __init__(self, world: World, configuration: Configuration, contents: str) -> None:
        self.world = world
        self.configuration = configuration
        self.contents = contents
        self.lock = threading.Lock()
        self.log = world.work / f"serve-{time.monotonic_ns()}.log"
        self.process: subprocess.Popen[str] | None = None
        self.loaded: Future[None] = Future()
        self.running: dict[int, Future[int]] = {}
        self.count = 0
        # All at once they would keep each other waiting where there are few processors.
        if not world.simulated:
            self.start()

    def start(self) -> None:
        world = self.world
        command = [world.need_python(), str(HERE / "serve.py")]
        settings: dict[str, object] = {**COMMON, **self.configuration.settings}
        if world.simulated:
            command.insert(0, str(ROOT / "scripts" / "simgpu.sh"))
            settings["SIMGPU_CONTENTS"] = self.contents
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=world.work,
                env=world.environment(self.configuration.shim, settings),
            )
        threading.Thread(target=self.listen, args=(self.process,), daemon=True).start()

    def listen(self, process: subprocess.Popen[str]) -> None:
        """Hands on each answer to who waits for it; at the end a refusal to all who still do."""
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            if "ready" in answer:
                self.loaded.set_result(None)
            else:
                with self.lock:
                    running = self.running.pop(answer["id"])
                running.set_result(int(answer["status"]))
        words = (self.log.read_text().strip().splitlines() or ["it said nothing"])[-1]
        gone = Fail(f"the jobs' process of {self.configuration.name} ended: {words[:300]}")
        with self.lock:
            left = [*self.running.values()]
            self.running.clear()
        if not self.loaded.done():
            self.loaded.set_exception(gone)
        for future in left:
            future.set_exception(gone)

    def wait_loaded(self) -> None:
        with self.lock:
            if self.process is None:
                self.start()
        try:
            self.loaded.result(max(0.0, self.world.left_s()))
        except futures.TimeoutError:
            raise Skip("no time left: PyTorch was being loaded") from None

    def begin(
        self,
        program: str,
        arguments: Sequence[object],
        timeout_s: float,
        stdin: str = os.devnull,
        **settings: Any,
    ) -> Running:
        """A job; its time begins when PyTorch is loaded."""
        self.wait_loaded()
        process = self.process
        assert process is not None and process.stdin is not None
        left_s = self.world.left_s()
        if left_s < 1:
            raise Skip("no time left")
        status: Future[int] = Future()
        with self.lock:
            self.count += 1
            number = self.count
            name = f"job-{time.monotonic_ns()}"
            files = [self.world.work / f"{name}.{end}" for end in ("out", "err")]
            words = [str(argument) for argument in arguments]
            request = {
                "id": number,
                "program": program,
                "arguments": words,
                "environment": {key: str(value) for key, value in settings.items()},
                "stdin": stdin,
                "stdout": str(files[0]),
                "stderr": str(files[1]),
                "timeout_s": min(timeout_s, left_s),
            }
            self.running[number] = status
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        return Running([program, *words], files[0], files[1], status, left_s <= timeout_s)

    def run(
        self,
        program: str,
        arguments: Sequence[object],
        timeout_s: float,
        **settings: Any,
    ) -> Result:
        """One job to its end."""
        return self.begin(program, arguments, timeout_s, **settings).result()

    def close(self) -> None:
        """What it has started is ended with the part."""
        if self.process is not None:
            self.process.kill()


@dataclass(frozen=True)
class Running:
    """A job that a server runs."""

    command: Sequence[str]
    stdout: Path
    stderr: Path
    status: Future[int]
    ends_with_part: bool  # not its own time would be up, but the part's

    def result(self) -> Result:
        status = self.status.result()
        texts = [
            file.read_text(errors="replace") if file.exists() else ""
            for file in (self.stdout, self.stderr)
        ]
        timed_out = status == TIMED_OUT
        ended = timed_out and self.ends_with_part
        return Result(self.command, status, texts[0], texts[1], timed_out, ended)


class Rounds:
    """A job that stays (rounds.py), and goes over its batches when it is told to."""

    def __init__(self, server: Server, job: Sequence[object], **settings: Any) -> None:
        self.name = server.configuration.name
        pipe = server.world.work / f"rounds-{time.monotonic_ns()}"
        os.mkfifo(pipe)
        # Open for both, it waits for no reader; closed, it is the end of the job's input.
        self.input = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
        if server.configuration.shim:
            settings = {"MEMSHIM_OUTPUT": server.world.output("rounds"), **settings}
        self.running = server.begin("rounds", job, 3600, stdin=str(pipe), **settings)
        self.seen = 0

    def answers(self, count: int) -> list[dict[str, Any]]:
        """The next so many lines; how it ended, where it has."""
        while True:
            over = self.running.status.done()
            text = self.running.stdout.read_text() if self.running.stdout.exists() else ""
            lines = [line for line in text.splitlines(keepends=True) if line.startswith("{")]
            whole = [line for line in lines if line.endswith("\n")][self.seen :]
            if len(whole) >= count:
                self.seen += count
                return [json.loads(line) for line in whole[:count]]
            if over:
                result = self.running.result().check()
                raise Fail(f"{result.name()} ended: {result.last_words()}")
            time.sleep(0.001)

    def go(self, passes: int) -> float:
        """Steps a second."""
        os.write(self.input, (json.dumps({"passes": passes}) + "\n").encode())
        told = self.answers(passes)
        return float(sum(one["steps"] for one in told) / sum(one["seconds"] for one in told))

    def memory(self) -> dict[str, Any]:
        os.write(self.input, b'{"passes": 0, "tell": true}\n')
        return self.answers(1)[0]

    def close(self) -> None:
        os.close(self.input)


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


def spread(values: Sequence[float]) -> float:
    """Between the quartiles, in percent of the median: one hiccup does not count."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return 100 * (high - low) / middle


@dataclass(frozen=True)
class Trained:
    """What a run of train.py said, and what memshim's report says of it."""

    losses: Sequence[str]
    steps_per_s: float
    each_s: Sequence[float]  # of each step, where it was waited for
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
        # The driver takes some only after the live peak, as local memory at later launches.
        others = max(
            int(device["peak"]["charged_bytes"] - device["peak"]["reserved_bytes"]),
            int(device["peak_charged_bytes"] - device["peak_reserved_bytes"]),
        )
        live = int(device["peak_live_bytes"])
    return Trained(
        losses=end["losses"],
        steps_per_s=end["steps_per_s"],
        each_s=end["each_s"],
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
