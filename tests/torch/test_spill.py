"""Jobs that need more than there is complete when what is cold may lie in host memory."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

CONTEXT_BYTES = 400 << 20
PART = 0.85  # of what the job needs

# Workloads 2 and 5 with the shapes that decide, and less of what only repeats.
PEPTIDE = ("peptide_recurrent.py", "--batch", "96", "--supervisions", "2", "--latent-steps", "3")
MIXTURE = ("moe.py", "--batch", "12", "--evaluate-every", "2", "--evaluation-factor", "4")


@harness.needs_torch
class Spill(unittest.TestCase):
    def run_job(
        self, *job: str, cap_bytes: int | None = None, **settings: Any
    ) -> tuple[harness.Result, dict[str, Any]]:
        """What the job said, and memshim's report."""
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            result = harness.run_command(
                [harness.CLI, "run", "--", sys.executable, harness.WORKLOADS / job[0], *job[1:]],
                MEMSHIM_OUTPUT=f"{folder}/out",
                MEMSHIM_LIMIT=cap_bytes,
                SIMGPU_MEMORY="64GiB",
                SIMGPU_CONTENTS="none",
                **{"MEMSHIM_SPILL": "auto", **settings},
            )
            (report,), _ = harness.reports_in(Path(folder) / "out")
            return result, report

    def need_bytes(self, *job: str) -> int:
        """The least device memory with which it could complete: what is live at its worst."""
        result, report = self.run_job(*job)
        (end,) = result.check().lines("end")
        self.assertEqual(report["devices"][0]["spill"]["spills"], 0)
        return int(end["max_allocated_bytes"]) + CONTEXT_BYTES

    def check_completes(self, cap_bytes: int, *job: str) -> None:
        result, report = self.run_job(*job, cap_bytes=cap_bytes)
        self.assertEqual(len(result.check().lines("end")), 1)
        device = report["devices"][0]
        self.assertGreater(device["peak_live_bytes"] + CONTEXT_BYTES, cap_bytes)
        self.assertLessEqual(device["peak_charged_bytes"], device["cap_bytes"])
        self.assertGreater(device["spill"]["spilled_bytes"], 0)
        self.assertEqual(report["oom_events"], [])
        # The first time and the crossings are said once each.
        self.assertEqual(result.stderr.count("They keep their addresses"), 1, result.describe())
        for state in ("warning", "critical", "emergency"):
            self.assertLessEqual(result.stderr.count(f": {state}, "), 1)

    def test_peptide_model(self) -> None:
        job = (*PEPTIDE, "--steps", "2")
        cap_bytes = int(self.need_bytes(*job) * PART)
        result, report = self.run_job(*job, cap_bytes=cap_bytes, MEMSHIM_SPILL="off")
        self.assertEqual(result.status, 1, result.describe())
        self.assertTrue(report["oom_events"])
        self.assertEqual(report["devices"][0]["spill"]["spills"], 0)
        self.check_completes(cap_bytes, *job)

    def test_evaluation_of_the_mixture(self) -> None:
        job = (*MIXTURE, "--steps", "3", "--layers", "2")
        cap_bytes = int(self.need_bytes(*job) * PART)
        # Without host memory: what PyTorch keeps of the training step would lie there otherwise.
        result, report = self.run_job(*job, cap_bytes=cap_bytes, SIMGPU_HOST_NUMA=0)
        self.assertEqual(result.status, 1, result.describe())
        self.assertTrue(report["oom_events"])
        self.check_completes(cap_bytes, *job)

    def test_the_limit_of_spilling(self) -> None:
        job = (*PEPTIDE, "--steps", "1")
        cap_bytes = int(self.need_bytes(*job) * 0.7)
        result, report = self.run_job(*job, cap_bytes=cap_bytes, MEMSHIM_SPILL_LIMIT="64MiB")
        self.assertEqual(result.status, 1, result.describe())
        self.assertEqual(report["oom_events"][-1]["verdict"], "spill_limit")
        self.assertIn("MEMSHIM_SPILL_LIMIT", report["oom_events"][-1]["sentence"])


if __name__ == "__main__":
    unittest.main()
