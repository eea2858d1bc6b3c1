# SPDX-License-Identifier: Apache-2.0
"""Runs workloads one after the other, each in a child of its own, without importing PyTorch anew.

    scripts/simgpu.sh python tests/bench/worker.py

reads jobs from its standard input, one JSON object a line (overhead.py writes them), and answers
each with a line {"statuses": [...]}. What is settled when libraries are loaded (memshim or not,
PyTorch's allocator, the simulated device) is this process's environment; what a job may change is
read when a process first uses the driver, which is in the child.

The child watches the workload from outside: after every step it says how often the simulated
driver's memory functions were called so far, and what the process uses of the device.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"

# What workloads share, and what takes PyTorch long; none of it touches the device.
IMPORTED = ("attention", "job", "gpt", "torch._dynamo")

# The driver's functions that change memory or its mapping. Each flavour of a function counts.
MEMORY_CALLS = {
    "create": ("cuMemCreate",),
    "release": ("cuMemRelease",),
    "map": ("cuMemMap",),
    "unmap": ("cuMemUnmap",),
    "set_access": ("cuMemSetAccess",),
    "reserve": ("cuMemAddressReserve",),
    "unreserve": ("cuMemAddressFree",),
    "alloc": ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"),
    "free": ("cuMemFree", "cuMemFreeAsync"),
}


def driver_calls() -> dict[str, int]:
    """Calls that reached the simulated driver so far, by kind."""
    count = ctypes.CDLL(None).simgpu_calls
    count.restype = ctypes.c_uint64
    return {
        kind: sum(count(name.encode()) for name in names) for kind, names in MEMORY_CALLS.items()
    }


def used_bytes(device: int) -> int:
    """What this process uses of a device, its context included."""
    used = ctypes.CDLL(None).simgpu_used_bytes
    used.restype = ctypes.c_uint64
    return int(used(device))


def leave_free(device: int, available_bytes: int) -> None:
    """Takes so much of the device that this much is left, its context apart."""
    driver = ctypes.CDLL(None)
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for status in (
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        driver.cuCtxPushCurrent_v2(context),
        driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(free.value - available_bytes)),
        driver.cuCtxPopCurrent_v2(ctypes.byref(context)),
    ):
        if status != 0:
            raise OSError(f"the simulated driver said {status}")


def watch_steps() -> None:
    """Every step that a workload says is followed by a line with the driver's calls, what is in
    use, and how many tensors PyTorch has made so far."""
    import job
    import torch

    say_step = job.Job.say_step

    def watched(self: job.Job, **values: object) -> None:
        say_step(self, **values)
        self.say(
            "driver",
            calls=driver_calls(),
            used_bytes=used_bytes(self.device.index),
            births=torch.cuda.memory_stats().get("allocation.all.allocated", 0),
        )

    job.Job.say_step = watched


def become_rank(request: dict[str, Any], rank: int, port: int) -> None:
    """In the child: its environment, its output, and the workload as a program of its own."""
    os.environ.update(request["environment"])
    if request["ranks"] > 1:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(request["ranks"]),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    for number, name in ((1, "out"), (2, "err")):
        path = Path(request["folder"]) / f"rank{rank}.{name}"
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if request["available_bytes"] is not None:
        leave_free(rank, request["available_bytes"])
    script = WORKLOADS / request["script"]
    sys.argv = [str(script), *request["arguments"]]
    watch_steps()
    runpy.run_path(str(script), run_name="__main__")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(children: list[int], timeout_s: float) -> list[int]:
    """Their exit statuses. When one fails or time is up, the others are killed."""
    statuses: dict[int, int] = {}
    end = time.monotonic() + timeout_s
    while len(statuses) < len(children):
        for child in children:
            if child not in statuses:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    statuses[child] = os.waitstatus_to_exitcode(status)
        if any(statuses.values()) or time.monotonic() > end:
            for child in children:
                if child not in statuses:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [statuses[child] for child in children]


def serve() -> dict[str, Any] | None:
    """Runs jobs until there are no more. In a child: returns what that child shall do."""
    for line in sys.stdin:
        request = json.loads(line)
        port = free_port()
        children = []
        for rank in range(request["ranks"]):
            child = os.fork()
            if child == 0:
                return {**request, "rank": rank, "port": port}
            children.append(child)
        statuses = wait_for(children, request["timeout_s"])
        sys.stdout.write(json.dumps({"statuses": statuses}) + "\n")
        sys.stdout.flush()
    return None


def main() -> None:
    sys.path.insert(0, str(WORKLOADS))
    for name in IMPORTED:
        importlib.import_module(name)

    mine = serve()
    if mine is not None:
        become_rank(mine, mine["rank"], mine["port"])


if __name__ == "__main__":
    main()
