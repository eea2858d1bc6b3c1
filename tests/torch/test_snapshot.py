# SPDX-License-Identifier: Apache-2.0
"""A snapshot made of memshim's trace, read by PyTorch's own tools."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

# Tensors of known sizes, some freed again; the script's name and lines are in their frames.
SOURCE = """
    import json, sys, torch

    def keep(count):
        return [torch.empty(1 << 20, device="cuda") for _ in range(count)]

    kept = keep(5)
    for _ in range(3):
        torch.empty(3 << 20, device="cuda")
    kept += keep(2)
    print(json.dumps({
        "event": "end",
        "max_allocated": torch.cuda.max_memory_allocated(),
        "allocated": torch.cuda.memory_allocated(),
    }))
"""


@harness.needs_torch
class Snapshot(unittest.TestCase):
    folder: Path
    end: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        said = harness.run(SOURCE, preload=harness.SHIM, MEMSHIM_OUTPUT=cls.folder / "out")
        cls.end = said.check().lines("end")[0]

    def export(self) -> tuple[Path, dict[str, Any]]:
        path = self.folder / "run.pickle"
        form = ("--format", "torch-snapshot", "--output", str(path))
        done = subprocess.run(
            [str(harness.CLI), "report", str(self.folder / "out"), *form],
            capture_output=True,
            timeout=harness.TIMEOUT_S,
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        snapshot: dict[str, Any] = pickle.loads(path.read_bytes())
        return path, snapshot

    def test_pytorch_reads_it(self) -> None:
        path, _ = self.export()
        plot, segments = self.folder / "plot.html", self.folder / "segments.html"
        for arguments in (
            ("trace_plot", path, "-o", plot),
            ("segment_plot", path, "-o", segments),
        ):
            command = [sys.executable, "-m", "torch.cuda._memory_viz", *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, timeout=harness.TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stderr)
        for page in (plot, segments):
            self.assertGreater(len(page.read_bytes()), path.stat().st_size)

    def test_what_it_says_is_what_was(self) -> None:
        viz: Any = importlib.import_module("torch.cuda._memory_viz")
        _, snapshot = self.export()
        live = 0
        mine = 0
        for line in viz.memory(snapshot, format_flamegraph=str).splitlines():
            stack, size = line.rsplit(" ", 1)
            if ";active_allocated;" in stack:
                live += int(size)
                mine += int(size) if ":keep" in stack else 0
        # At the peak the kept ones and one of the others, or all of them, are live.
        self.assertEqual(live, self.end["max_allocated"])
        self.assertIn(mine, (5 << 22, 7 << 22))
        self.assertIn("total_allocated", viz.segsum(snapshot))
        told = viz.trace(snapshot)
        self.assertIn("Device 0", told)
        self.assertIn("4.0MiB", told)
        json.dumps(snapshot["device_traces"])


if __name__ == "__main__":
    unittest.main()
