# SPDX-License-Identifier: Apache-2.0
"""Training steps that memshim finds by itself, against what each script says it did."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

import forked
import harness


@harness.needs_torch
class Steps(unittest.TestCase):
    """Optimizer steps, backward passes and evaluations of plain PyTorch jobs."""

    def check_job(
        self, script: str, *arguments: str, ranks: int = 1, passes: int = 1
    ) -> Sequence[dict[str, Any]]:
        """Counts are the script's own; passes: backward passes of one step, 0: they differ."""
        run = forked.run(script, *arguments, ranks=ranks)
        ends = sorted(run.result.check().lines("end"), key=lambda line: int(line["rank"]))
        self.assertEqual(len(ends), ranks)
        for end, report in zip(ends, run.reports, strict=True):
            steps = report["steps"]
            self.assertEqual(steps["source"], "recurrence", steps)
            self.assertEqual(steps["count"], end["updates"], steps)
            self.assertEqual(len(steps["times_ns"]), end["updates"])
            self.assertEqual(steps["times_ns"], sorted(steps["times_ns"]))
            self.assertEqual(steps["evaluations"], end["evaluations"], steps)
            self.assertEqual(steps["evaluation_batches"], end["evaluation_batches"], steps)
            if passes:
                self.assertEqual(steps["backward_passes"], passes * end["updates"], steps)
        self.assertTrue(all("  steps  " in text for text in run.texts))
        return run.reports

    def test_accumulated_gradients(self) -> None:
        small = ("--steps", "2", "--tokens", "16", "--width", "32", "--layers", "1")
        self.check_job("asv_transformer.py", *small, passes=16)

    def test_gradients_that_are_zeroed_and_kept(self) -> None:
        small = ("--steps", "3", "--tokens", "16", "--width", "32", "--layers", "1")
        few = ("--accumulation", "3", "--keep-gradients")
        self.check_job("asv_transformer.py", *small, *few, passes=3)

    @harness.thorough
    def test_training_and_validation_in_turn_on_two_ranks(self) -> None:
        few = ("--epochs", "2", "--batches", "3", "--validation-batches", "2", "--layers", "2")
        self.check_job("spectrum_finetune.py", *few, ranks=2)

    def test_an_optimizer_of_the_script_s_own(self) -> None:
        small = ("--layers", "1", "--width", "64", "--heads", "2", "--vocabulary", "500")
        few = ("--steps", "3", "--accumulation", "3", "--length", "64")
        self.check_job("lm512m.py", *small, *few, passes=3)

    def test_evaluation_now_and_then(self) -> None:
        small = ("--layers", "1", "--width", "64", "--vocabulary", "500", "--length", "32")
        few = ("--steps", "6", "--evaluate-every", "3", "--evaluation-factor", "4")
        self.check_job("moe.py", *small, *few)

    def test_an_optimizer_that_asks_for_no_memory(self) -> None:
        self.check_job("detector.py", "--steps", "6", "--size", "128")

    def test_two_optimizers(self) -> None:
        self.check_job("gan.py", "--steps", "6", "--levels", "3", "--batch", "8", passes=0)

    def test_checkpointing_autocast_and_clipping(self) -> None:
        small = ("--steps", "4", "--length", "64", "--width", "64", "--vocabulary", "500")
        self.check_job("gpt.py", *small, "--checkpoint", "--autocast", "--clip", "1", "--vary")


if __name__ == "__main__":
    unittest.main()
