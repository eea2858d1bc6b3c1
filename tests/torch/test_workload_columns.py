"""The five workloads of the users' guides, small: what each one's report.json has to show.

A run is made once and looked at by several tests.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 400 * MIB

ASV = ("asv_transformer.py", "--steps", "1", "--accumulation", "1", "--layers", "1")
PEPTIDE = ("peptide_recurrent.py", "--supervisions", "1", "--latent-steps", "2")
SPECTRUM = (
    *("spectrum_finetune.py", "--batches", "2", "--validation-batches", "2", "--layers", "1"),
    *("--width", "96", "--heads", "4"),
)
LANGUAGE = ("lm512m.py", "--layers", "2", "--width", "256", "--heads", "4", "--vocabulary", "4000")
MIXTURE = ("moe.py", "--layers", "2", "--vocabulary", "4000")

Report = dict[str, Any]


@functools.cache
def job(
    *arguments: str, ranks: int = 1, memory: str = "24GiB", **settings: Any
) -> tuple[int, tuple[Report, ...], tuple[dict[str, Any], ...]]:
    """The exit status, every rank's report, and what each said of itself at the end."""
    with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
        start = harness.torchrun(ranks) if ranks > 1 else [sys.executable]
        script = harness.WORKLOADS / arguments[0]
        result = harness.run_command(
            [harness.CLI, "run", "--", *start, script, *arguments[1:]],
            MEMSHIM_OUTPUT=f"{folder}/out",
            SIMGPU_DEVICES=ranks,
            SIMGPU_CONTENTS="none",
            SIMGPU_MEMORY=memory,
            **settings,
        )
        reports, _ = harness.reports_in(Path(folder) / "out")
    reports.sort(key=lambda report: int(report["process"]["rank"] or 0))
    return result.status, tuple(reports), tuple(result.lines("end"))


def only(*arguments: str, **settings: Any) -> tuple[Report, dict[str, Any]]:
    status, (report,), (end,) = job(*arguments, **settings)
    assert status == 0
    return report, end


def failed(*arguments: str, memory: str) -> tuple[Report, dict[str, Any]]:
    """The report of a job that ran out, and its last out-of-memory."""
    status, (report,), _ = job(*arguments, memory=memory, MEMSHIM_BATCH=arguments[2])
    assert status == 1
    event = report["oom_events"][-1]
    assert not event["recovered"]
    return report, event


def at_line(report: Report, name: str) -> int:
    """Bytes of a line of code, by the end of its name, when live bytes peaked."""
    return sum(
        site["at_peak_bytes"]
        for site in report["call_sites"]
        if (site["line"] or "").endswith(name)
    )


def asked_at(report: Report, name: str) -> int:
    """All that a line of code ever asked for."""
    return sum(
        site["bytes"] for site in report["call_sites"] if (site["line"] or "").endswith(name)
    )


def kinds(report: Report) -> dict[str, int]:
    return {row["kind"]: row["at_peak_bytes"] for row in report["kinds"]}


@harness.needs_torch
class Sequences(unittest.TestCase):
    """1. ASV transformer."""

    def test_who_holds_most_at_the_peak(self) -> None:
        report, _ = only(*ASV, "--tokens", "64")
        # Explicit attention over the bases of every sequence: batch x tokens x heads x 150 x 150.
        scores = 2 * 64 * 4 * 150 * 150 * 4
        largest = report["call_sites"][0]
        self.assertIn("attention.py", largest["line"])
        self.assertEqual(largest["at_peak_bytes"] % scores, 0)

    def test_attention_over_bases_is_linear_in_the_tokens(self) -> None:
        whole, _ = only(*ASV, "--tokens", "64")
        half, _ = only(*ASV, "--tokens", "64", "--token-limit", "32")
        factors = set()
        for site in whole["call_sites"]:
            line = site["line"] or ""
            before = asked_at(half, line) if "attention.py" in line else 0
            if before:
                factors.add(round(asked_at(whole, line) / before, 1))
        self.assertTrue(any(1.8 <= factor <= 2.2 for factor in factors), factors)

    def test_overhead_beside_pytorchs(self) -> None:
        report, end = only(*ASV, "--tokens", "64")
        device = report["devices"][0]
        self.assertGreaterEqual(device["torch_reserved_bytes"], end["max_allocated_bytes"])
        self.assertLess(device["fragmentation_at_peak"], 1)


@harness.needs_torch
class Peptides(unittest.TestCase):
    """2. A recurrent model with a loss that renders spectra."""

    BATCH_96 = ("peptide_recurrent.py", "--batch", "96", *PEPTIDE[1:], "--steps", "2")

    def batch(self, samples: int) -> tuple[Report, dict[str, Any]]:
        few = (*PEPTIDE, "--batch", str(samples), "--steps", "3")
        return only(*few, MEMSHIM_BATCH=str(samples))

    def test_out_of_memory_by_the_loss(self) -> None:
        report, event = failed(*self.BATCH_96, memory="2GiB")
        self.assertEqual(event["verdict"], "demand")
        self.assertIn("in render", event["line"])
        self.assertGreater(event["short_bytes"], 0)
        self.assertGreater(report["what_if"]["without_spill"]["cap_bytes"], 2 * GIB)
        self.assertIsNone(report["what_if"]["without_spill"]["fraction"])
        # An upper bound in the first step: a batch so large does not fit, and smaller ones may.
        self.assertGreater(event["estimated_factor_that_fits"], 0.3)
        self.assertLess(event["estimated_factor_that_fits"], 0.9)

    def test_headroom_of_a_small_batch_foretells_a_larger_one(self) -> None:
        small, _ = self.batch(32)
        large, _ = self.batch(64)
        headroom = small["devices"][0]["headroom"]
        self.assertEqual(headroom["batch"], 32)
        told = next(f for f in headroom["factors"] if f["batch"] == 64)
        self.assertAlmostEqual(
            told["estimated_peak_live_bytes"] / large["devices"][0]["peak_live_bytes"], 1, delta=0.1
        )
        self.assertGreater(headroom["estimated_largest_batch"], 64)

    def test_breakdown_by_kind(self) -> None:
        report, end = self.batch(32)
        shares = kinds(report)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.05)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.05)
        # The moving average is a copy of the model.
        self.assertGreaterEqual(shares["other persistent"], end["parameter_bytes"])
        self.assertGreater(shares["activations"], shares["parameters"])


@harness.needs_torch
class Spectra(unittest.TestCase):
    """3. Two ranks that train and validate; a list of results that grows."""

    def ranks(self, *more: str) -> tuple[Report, ...]:
        status, reports, _ = job(
            *SPECTRUM, "--epochs", "12", *more, ranks=2, MEMSHIM_FRACTION="0.95"
        )
        self.assertEqual(status, 0)
        self.assertEqual(len(reports), 2)
        return reports

    def test_the_cap_holds_on_either_rank(self) -> None:
        for rank, report in enumerate(self.ranks("--grow")):
            device = report["devices"][0]
            self.assertEqual(report["process"]["rank"], rank)
            self.assertEqual(device["cap_bytes"], int(0.95 * 24 * GIB))
            self.assertLessEqual(device["peak_charged_bytes"], device["cap_bytes"])

    def test_what_grows_is_named_long_before_the_end(self) -> None:
        for report in self.ranks("--grow"):
            device = report["devices"][0]
            self.assertTrue(device["growth"], device["slope"])
            site = device["growth"][0]
            self.assertIn("spectrum_finetune.py", site["line"])
            self.assertGreater(site["bytes_per_step"], 0)
            self.assertGreater(site["cap_at_step"], report["steps"]["count"])
            self.assertEqual(report["oom_events"], [])

    def test_without_it_nothing_grows(self) -> None:
        for report in self.ranks():
            device = report["devices"][0]
            self.assertEqual(device["growth"], [])
            self.assertIsNotNone(device["fragmentation_at_peak"])


@harness.needs_torch
class Language(unittest.TestCase):
    """4. A language model with master copies of its weights."""

    def test_peak_by_kind(self) -> None:
        report, end = only(*LANGUAGE, "--steps", "2", "--accumulation", "2", "--length", "256")
        device = report["devices"][0]
        shares = kinds(report)
        self.assertEqual(sum(shares.values()), device["peak_live_bytes"])
        self.assertAlmostEqual(
            device["peak_live_bytes"] / end["max_allocated_bytes"], 1, delta=0.02
        )
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.15)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.15)
        self.assertTrue(device["headroom"]["estimated_largest_factor"] > 1)

    def test_a_batch_that_is_too_large_is_demand_not_fragmentation(self) -> None:
        large = ("lm512m.py", "--micro-batch", "8", *LANGUAGE[1:], "--steps", "1")
        report, event = failed(*large, "--accumulation", "1", "--length", "2048", memory="1GiB")
        self.assertEqual(event["verdict"], "demand")
        self.assertLess(event["estimated_factor_that_fits"], 1)
        enough = report["what_if"]["without_spill"]
        self.assertGreater(enough["cap_bytes"], GIB)


@harness.needs_torch
class Mixture(unittest.TestCase):
    """5. Experts, whose sizes change every step; an evaluation with a larger batch."""

    def test_the_evaluation_that_ran_out(self) -> None:
        large = ("moe.py", "--evaluation-factor", "16", *MIXTURE[1:], "--steps", "4")
        report, event = failed(*large, "--evaluate-every", "2", memory="1200MiB")
        self.assertEqual(event["verdict"], "demand")
        self.assertIn("moe.py", event["line"])
        self.assertEqual(event["source"], "torch")
        states = [row["state"] for row in report["thresholds"]]
        self.assertIn("warning", states)

    def test_every_row_of_the_ledger(self) -> None:
        """At the out-of-memory, and at the peak: rows add up to the device."""
        large = ("moe.py", "--evaluation-factor", "16", *MIXTURE[1:], "--steps", "4")
        report, event = failed(*large, "--evaluate-every", "2", memory="1200MiB")
        for ledger in (event["ledger"], report["devices"][0]["peak"]["ledger"]):
            self.assertEqual(sum(row["bytes"] for row in ledger), 1200 * MIB)
            (left,) = [row["bytes"] for row in ledger if row["name"] == "unexplained"]
            self.assertLess(abs(left), 1200 * MIB // 100)
            (context,) = [row["bytes"] for row in ledger if row["name"] == "context"]
            self.assertEqual(context, CONTEXT)

    def test_mixed_sizes_run_on(self) -> None:
        report, end = only(*MIXTURE, "--steps", "4", "--vary", "--evaluate-every", "0")
        self.assertEqual(report["oom_events"], [])
        device = report["devices"][0]
        self.assertGreaterEqual(device["torch_reserved_bytes"], end["max_allocated_bytes"])


# Four of every five blocks die again; each segment of 20 MiB keeps the fifth.
OFF = """
    import torch

    blocks = [torch.empty(4 << 20, dtype=torch.uint8, device="cuda") for _ in range(5 * 25)]
    kept = blocks[::5]
    del blocks
    torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
"""


@harness.needs_torch
class Off(unittest.TestCase):
    def test_fragmentation_that_nobody_repairs(self) -> None:
        """MEMSHIM_TORCH=off: every segment keeps 4 MiB, so that PyTorch cannot give it back."""
        job = harness.run_memshim(
            OFF,
            MEMSHIM_TORCH="off",
            SIMGPU_MEMORY="1GiB",
            SIMGPU_CONTENTS="none",
            PYTORCH_ALLOC_CONF="expandable_segments:False",
        )
        event = job.only()["oom_events"][-1]
        self.assertEqual(event["verdict"], "fragmentation", job.result.describe())
        self.assertEqual(event["source"], "torch")
        self.assertIn("MEMSHIM_TORCH=off", event["sentence"])


if __name__ == "__main__":
    unittest.main()
