# SPDX-License-Identifier: Apache-2.0
"""The jobs of tests/workloads under memshim, at the sizes of the GPUs that they are meant for."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness


@harness.needs_torch
class Workloads(unittest.TestCase):
    """Each runs to its end, or to the out-of-memory that it is known for, and is seen as it is."""

    def run_job(
        self, memory: str, ranks: int, script: str, *arguments: str
    ) -> tuple[harness.Result, list[dict[str, Any]]]:
        """What the job said, and memshim's reports, rank by rank."""
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            start = harness.torchrun(ranks) if ranks > 1 else [sys.executable]
            result = harness.run_command(
                [harness.CLI, "run", "--", *start, harness.WORKLOADS / script, *arguments],
                timeout_s=600,
                MEMSHIM_OUTPUT=f"{folder}/out",
                SIMGPU_DEVICES=ranks,
                SIMGPU_MEMORY=memory,
                SIMGPU_CONTENTS="none",
            )
            reports, _ = harness.reports_in(Path(folder) / "out")
            return result, sorted(reports, key=lambda report: int(report["process"]["rank"] or 0))

    def check_job(self, memory: str, ranks: int, script: str, *arguments: str) -> None:
        """It completes, and memshim saw the peak that PyTorch saw."""
        result, reports = self.run_job(memory, ranks, script, *arguments)
        ends = sorted(result.check().lines("end"), key=lambda line: int(line["rank"]))
        self.assertEqual(len(ends), ranks)
        self.assertEqual(len(reports), ranks)
        for end, report in zip(ends, reports, strict=True):
            device = report["devices"][0]
            self.assertEqual(device["peak_live_bytes"], end["max_allocated_bytes"])
            self.assertLessEqual(device["peak_charged_bytes"], device["cap_bytes"])

    def test_asv_transformer(self) -> None:
        self.check_job("24GiB", 1, "asv_transformer.py", "--steps", "1", "--accumulation", "2")

    @harness.thorough
    def test_asv_transformer_in_chunks(self) -> None:
        chunks = ("--asv-chunk-size", "256", "--checkpoint-chunks")
        steps = ("--steps", "1", "--accumulation", "2")
        self.check_job("24GiB", 1, "asv_transformer.py", *chunks, *steps)

    def test_peptide_model(self) -> None:
        self.check_job("24GiB", 1, "peptide_recurrent.py", "--batch", "32", "--steps", "2")

    def test_peptide_model_with_too_large_a_batch(self) -> None:
        result, (report,) = self.run_job(
            "24GiB", 1, "peptide_recurrent.py", "--batch", "96", "--steps", "1"
        )
        self.assertEqual(result.status, 1, result.describe())
        self.assertEqual(len(result.lines("out_of_memory")), 1)
        self.assertTrue(report["oom_events"])

    @harness.thorough
    def test_spectrum_transformer(self) -> None:
        few = ("--epochs", "1", "--batches", "4", "--validation-batches", "2")
        self.check_job("24GiB", 2, "spectrum_finetune.py", *few)

    @harness.thorough
    def test_language_model(self) -> None:
        self.check_job("44GiB", 4, "lm512m.py", "--steps", "1", "--accumulation", "1")

    @harness.thorough
    def test_mixture_of_experts(self) -> None:
        evaluation = ("--evaluate-every", "2", "--evaluation-factor", "4")
        self.check_job("24GiB", 1, "moe.py", "--steps", "2", "--layers", "4", *evaluation)

    @harness.thorough
    def test_mixture_of_experts_sharded(self) -> None:
        for sharding in ("zero1", "fsdp2"):
            with self.subTest(sharding):
                few = ("--steps", "1", "--layers", "2", "--evaluate-every", "0")
                self.check_job("24GiB", 2, "moe.py", "--sharding", sharding, *few)

    @harness.thorough
    def test_llama_built_on_meta(self) -> None:
        small = ("--layers", "2", "--width", "256", "--inner", "512", "--heads", "4")
        few = ("--steps", "2", "--length", "256", "--vocabulary", "2000", "--key-heads", "2")
        self.check_job("4GiB", 2, "llama_fsdp.py", *small, *few)

    def test_unet(self) -> None:
        self.check_job("24GiB", 1, "unet.py", "--steps", "4")

    @harness.thorough
    def test_detector(self) -> None:
        self.check_job("24GiB", 1, "detector.py", "--steps", "6")

    @harness.thorough
    def test_encoder_decoder(self) -> None:
        self.check_job("24GiB", 1, "encoder_decoder.py", "--steps", "4")

    @harness.thorough
    def test_gan(self) -> None:
        self.check_job("24GiB", 1, "gan.py", "--steps", "4")


if __name__ == "__main__":
    unittest.main()
