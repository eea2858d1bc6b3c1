# SPDX-License-Identifier: Apache-2.0
"""Runs train.py, features.py or pairs.py again and again, each time in a child of its own, without
importing PyTorch anew: what takes seconds, and touches no device.

Reads a JSON object a line: {"program", "arguments", "environment", "timeout_s", "stdout",
"stderr"}, the last two names of files; answers each with a line {"status"}. What is settled when
libraries are loaded (memshim or not, PyTorch's allocator) is this process's environment.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

# Imported here so that children need not; an optimizer imports PyTorch's compiler.
import features  # noqa: F401
import pairs  # noqa: F401
import torch._dynamo  # noqa: F401
import train  # noqa: F401


def become(request: dict[str, Any]) -> None:
    """In the child."""
    os.setpgid(0, 0)
    os.environ.update(request["environment"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    importlib.import_module(request["program"]).main(request["arguments"])


def wait(child: int, timeout_s: float) -> int:
    """Its exit status, -N for a signal: SIGALRM's where it was killed because its time was up."""
    end = time.monotonic() + timeout_s
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM
        time.sleep(0.01)


def main() -> None:
    say = os.fdopen(os.dup(1), "w")
    say.write('{"ready": true}\n')
    say.flush()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            return
        say.write(json.dumps({"status": wait(child, request["timeout_s"])}) + "\n")
        say.flush()


if __name__ == "__main__":
    main()
