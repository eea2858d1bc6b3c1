# SPDX-License-Identifier: Apache-2.0
"""What memshim says memory was for, against the bytes that each script counts itself."""

from __future__ import annotations

import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked
import harness


@harness.needs_torch
class Kinds(unittest.TestCase):
    """Parameters, gradients and optimizer state are named right, to 5 % of their bytes."""

    def check_job(self, script: str, *arguments: str, ranks: int = 1) -> Sequence[dict[str, Any]]:
        run = forked.run(script, *arguments, ranks=ranks)
        ends = sorted(run.result.check().lines("end"), key=lambda line: int(line["rank"]))
        self.assertEqual(len(ends), ranks)
        for end, report in zip(ends, run.reports, strict=True):
            self.check_report(report, end)
        return run.reports

    def check_report(self, report: dict[str, Any], end: dict[str, Any]) -> None:
        asked = {kind["kind"]: kind["bytes"] for kind in report["kinds"]}
        truth = {
            "parameters": end["parameter_bytes"],
            "gradients": end["gradient_bytes"] * end["updates"],
            "optimizer state": end["optimizer_bytes"],
        }
        for kind, size in truth.items():
            self.assertAlmostEqual(asked[kind] / size, 1, delta=0.05, msg=f"{kind}: {asked}")
        at_peak = sum(kind["at_peak_bytes"] for kind in report["kinds"])
        self.assertEqual(at_peak, report["devices"][0]["peak_live_bytes"])
        self.assertEqual(asked.get("unknown", 0), 0)

    def test_accumulated_gradients(self) -> None:
        few = ("--steps", "2", "--accumulation", "3", "--tokens", "16")
        self.check_job("asv_transformer.py", *few)

    def test_a_moving_average(self) -> None:
        few = ("--steps", "2", "--batch", "2", "--supervisions", "2", "--latent-steps", "2")
        (report,) = self.check_job("peptide_recurrent.py", *few)
        kept = next(k for k in report["kinds"] if k["kind"] == "other persistent")
        model = next(k for k in report["kinds"] if k["kind"] == "parameters")
        self.assertGreaterEqual(kept["bytes"], model["bytes"])

    @harness.thorough
    def test_two_ranks_in_training_and_validation(self) -> None:
        few = ("--epochs", "2", "--batches", "2", "--validation-batches", "1", "--layers", "2")
        for report in self.check_job("spectrum_finetune.py", *few, ranks=2):
            self.assertIn("communication", {kind["kind"] for kind in report["kinds"]})

    def test_master_copies(self) -> None:
        small = ("--layers", "2", "--width", "256", "--heads", "4", "--vocabulary", "4000")
        few = ("--steps", "2", "--accumulation", "3", "--length", "64")
        self.check_job("lm512m.py", *small, *few)

    def test_mixture_of_experts(self) -> None:
        few = ("--steps", "4", "--layers", "2", "--evaluate-every", "2", "--length", "64")
        (report,) = self.check_job("moe.py", *few)
        reasons = [row["kind_reason"] for row in report["call_sites"]]
        self.assertTrue(all(reasons))

    def test_sharded_parameters(self) -> None:
        small = ("--layers", "2", "--length", "64", "--width", "128", "--evaluate-every", "0")
        for report in self.check_job(
            "moe.py", *small, "--steps", "3", "--sharding", "fsdp2", ranks=2
        ):
            self.assertIn("communication", {kind["kind"] for kind in report["kinds"]})

    def test_what_a_library_takes_for_itself(self) -> None:
        """cuBLAS keeps memory of its own for each handle, one of them made in a backward pass. No
        names are needed to tell it: a libdw that is no library leaves none."""
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            (Path(folder) / "libdw.so.1").write_text("not a library")
            self.check_workspaces(LD_LIBRARY_PATH=folder)
        self.check_workspaces()

    def check_workspaces(self, **settings: str) -> None:
        job = harness.run_memshim(
            """
            import torch
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(4):
                model(torch.randn(8, 64, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            """,
            SIMGPU_CAPABILITY="9.0",
            **settings,
        )
        report = job.only()
        job.result.check()
        sites = [s for s in report["call_sites"] if "libcublas" in str(s["frames"][:1])]
        self.assertEqual(sum(s["bytes"] for s in sites), 2 * ((32 << 20) + 1024))
        self.assertEqual({s["kind"] for s in sites}, {"workspace"})

    def test_an_optimizer_that_asks_for_no_memory(self) -> None:
        self.check_job("detector.py", "--steps", "5", "--size", "128")


if __name__ == "__main__":
    unittest.main()
