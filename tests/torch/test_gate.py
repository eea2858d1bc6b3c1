# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs brought to a standstill at random: they compute what they compute without.

The job's own thread waits at the gate with Python's global lock held, as it does where another
thread's allocation needs room: the standstill is therefore made in one call outside Python.
"""

from __future__ import annotations

import tempfile
import unittest
from typing import Any

import harness

GATE = harness.BUILD / "tests" / "process" / "libgate_memshim.so"

# arguments: standstills a second at most, the workload, its arguments
JOB = """
    import collections, ctypes, json, random, runpy, sys, threading, time

    stand = ctypes.CDLL(None).gate_stand
    stand.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    statuses = collections.Counter()
    over = threading.Event()

    def standstills():
        draw = random.Random(1)
        while not over.wait(draw.random() * 0.01):
            statuses[stand(0, 50_000_000, int(draw.random() * 2_000_000))] += 1

    thread = threading.Thread(target=standstills)
    thread.start()
    path, *sys.argv[1:] = sys.argv[1:]
    sys.path.insert(0, path.rpartition("/")[0])
    runpy.run_path(path, run_name="__main__")
    over.set()
    thread.join()
    print(json.dumps({"event": "standstills", **{str(k): v for k, v in statuses.items()}}))
"""

# What a job says that depends on the clock.
TIMES = ("seconds", "steps_per_second", "time")


def account(result: harness.Result) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if not name.endswith(TIMES)}
        for line in result.lines()
        if line.get("event") != "standstills"
    ]


@harness.needs_torch
class Standstills(unittest.TestCase):
    def check(self, workload: str, *arguments: str, **settings: Any) -> None:
        path = str(harness.WORKLOADS / workload)
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        self.addCleanup(holder.cleanup)
        settings["MEMSHIM_OUTPUT"] = holder.name
        plain = harness.run_workload(workload, *arguments, preload=harness.SHIM, **settings)
        held = harness.run(JOB, path, *arguments, preload=GATE, **settings)
        self.assertEqual(account(held.check()), account(plain.check()), held.describe())
        (statuses,) = held.lines("standstills")
        self.assertGreater(statuses["0"], 20, statuses)
        self.assertNotIn("-1", statuses)

    def test_gpt(self) -> None:
        self.check("gpt.py", "--steps", "8", "--vary")

    @harness.thorough
    def test_slow_device(self) -> None:
        self.check("gpt.py", "--steps", "3", SIMGPU_DELAY_US="0-100")


if __name__ == "__main__":
    unittest.main()
