# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check.sh with PyTorch on the simulated GPU: its jobs run under memshim and without,
as many as fit into a minute, and what does not is told and not failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

SCRIPT = harness.ROOT / "scripts" / "gpu_check.sh"
MINUTES = "1"
PARTS = ("torch", "fragmentation", "spill")
# How each part's first case is called, and what a case says that time did not allow.
FIRST = {
    "torch": "the job is deterministic without memshim",
    "fragmentation": "fragmentation: the job with ample memory",
    "spill": "spill: down, contents as written",
}
NO_TIME = "no time left"


@harness.needs_torch
class GpuCheck(unittest.TestCase):
    def check(self, folder: str) -> dict[str, Any]:
        only = [word for name in PARTS for word in ("--only", name)]
        command = [str(SCRIPT), "--simulated", "--build", str(harness.BUILD)]
        done = subprocess.run(
            [*command, "--python", sys.executable, "--minutes", MINUTES, "--out", folder, *only],
            capture_output=True,
            text=True,
            timeout=300,
            env={n: v for n, v in os.environ.items() if not n.startswith(("SIMGPU_", "LD_"))},
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = json.loads((Path(folder) / "results.json").read_text())
        assert isinstance(found, dict)
        return found

    @harness.thorough
    def test_a_minute_of_it(self) -> None:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            found = self.check(folder)
        self.assertEqual([part["name"] for part in found["parts"]], list(PARTS))
        self.assertTrue(found["machine"]["torch"])
        for part in found["parts"]:
            self.assertIn(part["ended"], ("done", "cut off"))
            cases = part["cases"]
            if len(cases) > 1:
                self.assertEqual(cases[0]["name"], FIRST[part["name"]])
            for case in cases:
                self.assertNotEqual(case["status"], "fail", case)
                # Losses are zeros here: equal ones must not be told as proof.
                if case["name"].startswith("losses: "):
                    self.assertEqual(case["status"], "skipped", case)
            # On a machine too busy for anything all of it is told as left out.
            left_out = all(NO_TIME in c["reason"] or "were over" in c["reason"] for c in cases)
            ran = any(case["status"] == "pass" for case in cases)
            self.assertTrue(ran or left_out, cases)
        losses = [row for row in found["targets"] if row["what"] == "losses"]
        self.assertEqual([row["status"] for row in losses], ["unknown"])


if __name__ == "__main__":
    unittest.main()
