# SPDX-License-Identifier: Apache-2.0
"""memshim diff of real PyTorch jobs: one script in two folders, steps that were found."""

from __future__ import annotations

import functools
import json
import subprocess
import textwrap
import unittest
from pathlib import Path
from typing import Any

import forked
import harness

# Its quadratic scores are needed for a moment only, at which something else is smaller.
SCRIPT = textwrap.dedent(
    """
    import sys
    import torch
    from torch import nn

    batch, length, width = int(sys.argv[1]), int(sys.argv[2]), 256

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = torch.softmax(q @ k.transpose(1, 2), -1)
            return x + self.out(scores @ v)

    model = nn.Sequential(Attention(), Attention()).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        loss = model(torch.randn(batch, length, width).cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
)


@functools.cache
def script_of(batch: int, length: int) -> Path:
    return harness.new_cache() / "train.py"


@functools.cache
def job(batch: int, length: int) -> Path:
    """The folder of a run, whose script lies in a folder of its own."""
    script = script_of(batch, length)
    script.write_text(harness.script_text(SCRIPT))
    run = forked.run(script, str(batch), str(length), SIMGPU_MEMORY="4GiB")
    run.result.check()
    return run.folders[0]


def diff(*arguments: Path | str) -> dict[str, Any]:
    said = subprocess.run(
        [harness.CLI, "diff", *arguments, "--format", "json"], capture_output=True, check=True
    )
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


@harness.needs_torch
class Diff(unittest.TestCase):
    def test_one_script_in_two_folders(self) -> None:
        """What lasts is held by the same sites, wherever their files lie."""
        small, large = job(8, 256), job(16, 256)
        rows = [site for site in diff(small, large)["sites"] if site["kind"] == "parameters"]
        self.assertTrue(rows)
        for row in rows:
            self.assertEqual(row["a_bytes"], row["b_bytes"], row)
        files = {frame["file"] for row in rows for frame in row["frames"]}
        self.assertIn(str(script_of(8, 256)), files)

    def test_steps_that_were_found(self) -> None:
        folder = job(16, 256)
        steps = json.loads((folder / "report.json").read_text())["steps"]
        self.assertEqual((steps["source"], steps["count"]), ("recurrence", 4))
        answer = diff(f"{folder}@step:2", f"{folder}@step:3")
        for side, number in (("a", 2), ("b", 3)):
            self.assertEqual(answer[side]["time_ns"], steps["times_ns"][number - 1])
        said = subprocess.run(
            [harness.CLI, "diff", f"{folder}@step:2", f"{folder}@step:5"], capture_output=True
        )
        self.assertEqual(said.returncode, 1)
        self.assertIn(b"there is no step 5, it made 4", said.stderr)

    def foretold(self, name: str, jobs: list[tuple[int, int]]) -> None:
        """Of two runs, what a third one holds at its peak; and of the larger one what it held."""
        small, large, far = (job(*shape) for shape in jobs)
        values = [batch if name == "batch" else length for batch, length in jobs]
        told = diff(small, large, "--predict", f"{name}={values[0]},{values[1]}")["predict"]
        self.assertFalse(told["refused"])
        rows = {row["value"]: row for row in told["at"]}
        for value, folder, share in ((values[1], large, 0.001), (values[2], far, 0.01)):
            report = json.loads((folder / "report.json").read_text())
            live = report["devices"][0]["peak_live_bytes"]
            self.assertLess(rows[value]["low_bytes"] * (1 - share), live)
            self.assertGreater(rows[value]["high_bytes"] * (1 + share), live)
            self.assertLess(rows[value]["high_bytes"], 1.1 * rows[value]["low_bytes"])

    def test_a_batch_foretold(self) -> None:
        """The peaks of the two are different moments of a step."""
        self.foretold("batch", [(8, 256), (16, 256), (64, 256)])

    def test_a_length_foretold(self) -> None:
        """What grows with the square is live at neither peak."""
        self.foretold("length", [(8, 256), (8, 512), (8, 2048)])

    def test_what_two_runs_do_not_explain(self) -> None:
        """Swapped: the larger batch would be the smaller run."""
        told = diff(job(16, 256), job(8, 256), "--predict", "batch=1,16")["predict"]
        self.assertTrue(told["refused"])
        self.assertEqual((told["at"], told["fits"]), ([], 0))


if __name__ == "__main__":
    unittest.main()
