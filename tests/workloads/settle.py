# SPDX-License-Identifier: Apache-2.0
"""Importing this lets autograd's threads come to rest before the interpreter ends.

They let go of Python objects after backward() has returned. An interpreter that ends meanwhile ends
such a thread inside C++, and the process dies of std::terminate ("terminate called without an
active exception"): about once in twenty short runs of PyTorch 2.15, with memshim and without.
"""

from __future__ import annotations

import atexit
import time
from pathlib import Path

LOOK_S = 0.01
LONGEST_S = 10.0


def switches() -> list[str]:
    """How often each of autograd's threads went to sleep; a thread that works is another text
    each time."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith("pt_autograd"):
                lines = (task / "status").read_text().splitlines()
                found += [task.name, *(line for line in lines if "State" in line or "ctxt" in line)]
        except OSError:
            continue  # it has ended
    return found


@atexit.register
def wait() -> None:
    """Until they have done nothing for two looks, or much longer than they could need."""
    deadline = time.monotonic() + LONGEST_S
    before: list[str] = []
    now = switches()
    while (now != before or "R (running)" in str(now)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        before, now = now, switches()
