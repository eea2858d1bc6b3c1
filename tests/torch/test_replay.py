# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch, replayed: from a memory snapshot of its own, and from a trace of memshim's."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

IMPORT = harness.ROOT / "scripts" / "import_torch_snapshot.py"

# The peak is within what is recorded; some of it was live before.
SOURCE = """
    import json, sys, torch

    before = torch.empty(3 << 20, device="cuda")
    torch.cuda.memory._record_memory_history(max_entries=100000)
    kept = []
    for i in range(1, 30):
        large, small = torch.empty(i * 300 * 512, device="cuda"), torch.empty(512, device="cuda")
        kept.append(small)
        if i % 3 == 0:
            kept.append(large)
        del large
    torch.cuda.empty_cache()
    if len(sys.argv) > 1:
        torch.cuda.memory._dump_snapshot(sys.argv[1])
    print(json.dumps({
        "event": "end",
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_requested": torch.cuda.memory_stats()["requested_bytes.all.peak"],
        "requested": torch.cuda.memory_stats()["requested_bytes.all.current"],
    }))
"""


# Recorded from its fifth step on: by then PyTorch has cached, empty, what smaller and other shapes
# left, and holds tensors in between.
MIDWAY = """
    import json, sys, torch
    from torch import nn

    def empty(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")

    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        model(torch.zeros(batch, 1024, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for batch in (4000, 9000, 2000, 7001):
        step(batch)
    passing = [empty(37 + 3 * i) for i in range(8)]
    kept = passing[::3]
    del passing
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(max_entries=100000)
    torch.cuda.reset_peak_memory_stats()
    for batch in (3000, 8000, 10000, 6000, 24000):
        step(batch)
    torch.cuda.memory._dump_snapshot(sys.argv[1])
    print(json.dumps({
        "event": "end",
        "cached": cached,
        "max_requested": torch.cuda.memory_stats()["requested_bytes.all.peak"],
    }))
"""


# 600 MiB live, 256 cached; 500 are given up for 250, and 700 are what it ends of.
DYING = """
    import torch

    def empty(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")

    cached = [empty(64) for _ in range(4)]
    del cached
    kept = empty(600)
    try:
        more = empty(500)
    except torch.OutOfMemoryError:
        more = empty(250)
    empty(700)
"""


def replay(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
    result = subprocess.run(
        [harness.CLI, "replay", *arguments, "--json"],
        capture_output=True,
        timeout=harness.TIMEOUT_S,
    )
    if result.returncode != status:
        raise AssertionError(result.stderr)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@harness.needs_torch
class Replay(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check_snapshot(self, expandable: bool) -> None:
        snapshot, packed = self.folder / "job.pickle", self.folder / "job.csv.gz"
        said = harness.run(
            SOURCE, str(snapshot), PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}"
        )
        end = said.check().lines("end")[0]
        converted = subprocess.run(
            [sys.executable, IMPORT, snapshot, packed],
            capture_output=True,
            timeout=harness.TIMEOUT_S,
        )
        self.assertEqual((converted.returncode, converted.stderr), (0, b""))
        answer = replay(packed)
        self.assertTrue(answer["completed"])
        self.assertIsNone(answer["violation"])
        self.assertEqual(answer["invalid_reports"], 0)
        # A snapshot tells what was asked for, without PyTorch's rounding.
        self.assertEqual(answer["peak_live_bytes"], end["max_requested"])
        self.assertEqual(answer["recording"]["end_live_bytes"], end["requested"])
        self.assertEqual(answer["recording"]["pages_mapped"] > 0, expandable)

    def test_a_snapshot_of_segments(self) -> None:
        self.check_snapshot(expandable=False)

    def test_a_snapshot_of_expandable_segments(self) -> None:
        self.check_snapshot(expandable=True)

    def check_midway(self, expandable: bool) -> None:
        snapshot, packed = self.folder / "job.pickle", self.folder / "job.csv.gz"
        said = harness.run(
            MIDWAY,
            str(snapshot),
            PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
            SIMGPU_MEMORY="8GiB",
            SIMGPU_CONTENTS="none",
        )
        end = said.check().lines("end")[0]
        self.assertGreater(end["cached"], 100 << 20)
        subprocess.run(
            [sys.executable, IMPORT, snapshot, packed], check=True, timeout=harness.TIMEOUT_S
        )
        for mode in ("native", "tensor"):
            with self.subTest(mode):
                smallest = replay(packed, "--min-cap", "--mode", mode)
                self.assertEqual(smallest["peak_live_bytes"], end["max_requested"])
                self.assertLessEqual(smallest["min_cap_bytes"], 1.02 * end["max_requested"])

    def test_a_snapshot_begun_midway_of_segments(self) -> None:
        self.check_midway(expandable=False)

    def test_a_snapshot_begun_midway_of_expandable_segments(self) -> None:
        self.check_midway(expandable=True)

    def test_a_trace(self) -> None:
        """PyTorch's own peak; and a cap of that and a few chunks is enough, in either mode."""
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            said = harness.run(SOURCE, preload=harness.SHIM, MEMSHIM_OUTPUT=f"{folder}/out")
            end = said.check().lines("end")[0]
            trace = Path(folder) / "out" / "latest"
            answer = replay(trace, "--without-charges")
            self.assertEqual(answer["peak_live_bytes"], end["max_allocated"])
            self.assertEqual(answer["recording"]["left_out"], 0)
            for mode in ("native", "tensor"):
                smallest = replay(trace, "--min-cap", "--mode", mode)
                self.assertLess(smallest["min_cap_bytes"], end["max_allocated"] + (16 << 20))

    def test_a_trace_of_a_run_that_died(self) -> None:
        """PyTorch asks the driver twice for a page, and raises its error: one request."""
        said = harness.run(
            DYING,
            preload=harness.SHIM,
            MEMSHIM_OUTPUT=f"{self.folder}/out",
            MEMSHIM_SPILL="off",
            SIMGPU_MEMORY="1GiB",
            SIMGPU_CONTEXT=f"{64 << 20}",
            PYTORCH_ALLOC_CONF="expandable_segments:True",
        )
        self.assertEqual(said.status, 1, said.describe())
        trace = self.folder / "out" / "latest"
        died = replay(trace, "--cap", "1GiB", status=1)
        self.assertEqual((died["recording"]["refused"], died["recording"]["fatal"]), (1, 1))
        self.assertEqual((died["failure"]["op"], died["failure"]["bytes"]), ("fatal", 700 << 20))
        self.assertEqual((died["refused_tried"], died["refused_served"]), (2, 0))
        smallest = replay(trace, "--min-cap")
        self.assertEqual(smallest["min_cap_bytes"], 1550 << 20)
        self.assertEqual(smallest["refused_served"], 2)


if __name__ == "__main__":
    unittest.main()
