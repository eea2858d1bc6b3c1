# SPDX-License-Identifier: Apache-2.0
"""Runs train.py, rounds.py, features.py or pairs.py again and again, each time in a child of its
own, without importing PyTorch anew: what takes seconds, and touches no device.

Reads a JSON object a line: {"id", "program", "arguments", "environment", "timeout_s", "stdin",
"stdout", "stderr"}, the last three names of files. Each is answered with a line {"id", "status"}
when it has ended; those that were asked for meanwhile run beside it. What is settled when libraries
are loaded (memshim or not, PyTorch's allocator) is this process's environment.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Imported here so that children need not; an optimizer imports PyTorch's compiler.
import features  # noqa: F401
import pairs  # noqa: F401
import rounds  # noqa: F401
import torch._dynamo  # noqa: F401
import train  # noqa: F401

PERIOD_S = 0.01


def become(request: dict[str, Any]) -> None:
    """In the child."""
    os.setpgid(0, 0)
    os.environ.update(request["environment"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    importlib.import_module(request["program"]).main(request["arguments"])


@dataclass(frozen=True)
class Child:
    number: int  # the request's id
    pid: int
    end: float  # of time.monotonic, when its time is up

    def status(self) -> int | None:
        """Its exit status, -N for a signal: SIGALRM's where it was killed because its time was up.
        None while it runs."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > self.end:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return -signal.SIGALRM
        return None


def requests(held: bytearray, wait_s: float | None) -> Iterator[dict[str, Any] | None]:
    """Those that have come; None where none will come any more."""
    if not select.select([0], [], [], wait_s)[0]:
        return
    more = os.read(0, 1 << 16)
    if not more:
        yield None
    held += more
    while b"\n" in held:
        line, _, rest = held.partition(b"\n")
        held[:] = rest
        yield json.loads(line)


def main() -> None:
    say = os.fdopen(os.dup(1), "w")
    say.write('{"ready": true}\n')
    say.flush()
    children: list[Child] = []
    held = bytearray()
    while True:
        for request in requests(held, PERIOD_S if children else None):
            if request is None:
                return
            pid = os.fork()
            if pid == 0:
                become(request)
                return
            end = time.monotonic() + request["timeout_s"]
            children.append(Child(request["id"], pid, end))
        for child in list(children):
            status = child.status()
            if status is not None:
                children.remove(child)
                say.write(json.dumps({"id": child.number, "status": status}) + "\n")
                say.flush()


if __name__ == "__main__":
    main()
