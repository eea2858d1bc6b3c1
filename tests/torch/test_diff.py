# SPDX-License-Identifier: Apache-2.0
"""memshim diff of real PyTorch jobs: one script in two folders, steps that were found."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any

import harness

MIB = 1 << 20

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
def job(batch: int, length: int) -> Path:
    """The folder of a run, whose script lies in a folder of its own."""
    folder = tempfile.TemporaryDirectory(prefix="memshim-test.")
    atexit.register(folder.cleanup)
    script = Path(folder.name) / "train.py"
    script.write_text(SCRIPT)
    harness.run_command(
        [harness.CLI, "run", "--", sys.executable, script, str(batch), str(length)],
        MEMSHIM_OUTPUT=f"{folder.name}/out",
        SIMGPU_MEMORY="4GiB",
        SIMGPU_CONTENTS="none",
    ).check()
    return harness.folders_in(Path(folder.name) / "out")[0]


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
        self.assertIn(str(small.parents[2] / "train.py"), files)

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


if __name__ == "__main__":
    unittest.main()
