# SPDX-License-Identifier: Apache-2.0
"""The five workloads of the users' guides: what each one's report.json has to show, and what
memshim diff has to say of two runs.

A run is made once and looked at by several tests. Shapes are small; MEMSHIM_FULL_SIZE=1 runs the
guides' own where a test knows them.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import forked
import harness

MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 400 * MIB
FULL = os.environ.get("MEMSHIM_FULL_SIZE") == "1"

Report = dict[str, Any]


@functools.cache
def job(*arguments: str, ranks: int = 1, **settings: Any) -> forked.Run:
    return forked.run(*arguments, ranks=ranks, **{"SIMGPU_MEMORY": "24GiB", **settings})


def only(*arguments: str, **settings: Any) -> tuple[Report, dict[str, Any]]:
    """The report of a job that went well, and what it said of itself at the end."""
    run = job(*arguments, **settings)
    (end,) = run.result.check().lines("end")
    (report,) = run.reports
    return report, end


def failed(*arguments: str, **settings: Any) -> tuple[Report, dict[str, Any]]:
    """The report of a job that ran out, and its last out-of-memory."""
    run = job(*arguments, **settings)
    (report,) = run.reports
    assert run.result.status == 1, run.result.describe()
    event = report["oom_events"][-1]
    assert not event["recovered"]
    return report, event


def diff(before: forked.Run, after: forked.Run, *more: str) -> dict[str, Any]:
    said = subprocess.run(
        [harness.CLI, "diff", before.folder, after.folder, "--format", "json", *more],
        capture_output=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


def line_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """The line of code with that end of its name that holds most."""
    found = [line for line in answer["lines"] if line["line"].endswith(name)]
    largest: dict[str, Any] = max(found, key=lambda line: max(line["a_bytes"], line["b_bytes"]))
    return largest


def passes(site: dict[str, Any], function: str) -> bool:
    return any(frame["function"].endswith(function) for frame in site["frames"])


def most_of(report: Report, line: str, function: str, key: str) -> int:
    """The largest site of a line of code that was called by way of a function."""
    return max(
        (
            site[key]
            for site in report["call_sites"]
            if (site["line"] or "").endswith(line) and passes(site, function)
        ),
        default=0,
    )


def kinds(report: Report) -> dict[str, int]:
    return {row["kind"]: row["at_peak_bytes"] for row in report["kinds"]}


def states(report: Report) -> list[str]:
    return [row["state"] for row in report["thresholds"]]


@harness.needs_torch
class Sequences(unittest.TestCase):
    """1. ASV transformer."""

    TOKENS = 1024 if FULL else 64
    JOB = ("asv_transformer.py", "--steps", "1", "--accumulation", "1") + (
        () if FULL else ("--layers", "1", "--tokens", "64")
    )

    def chunked(self, parts: int, *more: str) -> dict[str, Any]:
        size = str(2 * self.TOKENS // parts)
        return diff(job(*self.JOB), job(*self.JOB, "--asv-chunk-size", size, *more))

    def test_the_three_sites(self) -> None:
        report, _ = only(*self.JOB)
        # Explicit attention over the bases of every sequence, and over the sequences.
        base_scores = 2 * self.TOKENS * 4 * 150 * 150 * 4
        sample_scores = 2 * 4 * self.TOKENS * self.TOKENS * 4
        embeddings = 2 * self.TOKENS * 150 * 128 * 4
        forward = "in ExplicitAttention.forward"
        layers = 4 if FULL else 1
        self.assertEqual(
            most_of(report, forward, "AsvTransformer.embed", "at_peak_bytes"),
            base_scores * layers,
        )
        self.assertEqual(
            most_of(report, "in AsvTransformer.embed", "embed_all", "at_peak_bytes"), embeddings
        )
        # Over when live bytes peak: of the sample stage there is the most that it ever held.
        samples = {
            site["peak_bytes"]
            for site in report["call_sites"]
            if (site["line"] or "").endswith(forward) and not passes(site, "AsvTransformer.embed")
        }
        self.assertIn(sample_scores * layers, samples)

    def test_chunks_that_are_computed_again_hold_their_part(self) -> None:
        for parts in (4, 8):
            answer = self.chunked(parts, "--checkpoint-chunks")
            line = line_of(answer, "in ExplicitAttention.forward")
            self.assertAlmostEqual(line["factor"] * parts, 1, delta=0.02)

    def test_chunks_that_autograd_keeps_hold_it_all(self) -> None:
        line = line_of(self.chunked(4), "in ExplicitAttention.forward")
        self.assertAlmostEqual(line["factor"], 1, delta=0.1)

    def test_one_site_is_linear_in_the_tokens_and_one_quadratic(self) -> None:
        half = str(self.TOKENS // 2)
        answer = diff(
            job(*self.JOB, "--token-limit", half), job(*self.JOB), "--predict", "tokens=1,2"
        )
        scores = [
            site
            for site in answer["sites"]
            if site["line"].endswith("in ExplicitAttention.forward")
        ]
        base = [site for site in scores if passes(site, "AsvTransformer.embed")]
        sample = [site for site in scores if not passes(site, "AsvTransformer.embed")]
        largest = max(base, key=lambda site: int(site["b_bytes"]))
        self.assertEqual(largest["shape"], "linear")
        self.assertEqual(largest["b_bytes"], 2 * largest["a_bytes"])
        squares = [site for site in sample if site["shape"] == "quadratic"]
        self.assertTrue(squares)
        for site in squares:
            self.assertEqual(site["b_most_bytes"], 4 * site["a_most_bytes"])

    @unittest.skipIf(FULL, "too many events to be replayed at the end of a run")
    def test_overhead_beside_pytorchs(self) -> None:
        steps = ("--steps", "2", "--vary")
        report, end = only(*self.JOB, *steps)
        overhead = report["devices"][0]["overhead"]
        self.assertIsNone(overhead["why"])
        self.assertGreaterEqual(overhead["ratio"], 1)
        self.assertLess(overhead["ratio"], 1.1)
        self.assertGreater(overhead["torch_ratio"], overhead["ratio"])
        held = overhead["torch_ratio"] * end["max_allocated_bytes"]
        self.assertLess(held, 1.001 * end["max_reserved_bytes"])
        # As much as that is enough, and no more was asked of the replays.
        enough = overhead["min_cap_bytes"] + CONTEXT
        again, _ = only(*self.JOB, *steps, MEMSHIM_LIMIT=enough)
        self.assertEqual(again["oom_events"], [])
        self.assertLessEqual(again["devices"][0]["peak_charged_bytes"], enough)


@harness.needs_torch
class Peptides(unittest.TestCase):
    """2. A recurrent model with a loss that renders spectra."""

    SHORT = () if FULL else ("--supervisions", "1", "--latent-steps", "2", "--layers", "1")
    JOB = ("peptide_recurrent.py", "--steps", "3", *SHORT)

    def batch(self, samples: int, *more: str) -> forked.Run:
        few = (*self.JOB, "--batch", str(samples), *more)
        return job(*few, MEMSHIM_BATCH=str(samples))

    def test_out_of_memory_by_the_loss(self) -> None:
        report, event = failed(
            *(*self.JOB, "--batch", "96"),
            MEMSHIM_BATCH="96",
            SIMGPU_MEMORY="24GiB" if FULL else "2GiB",
        )
        self.assertEqual(event["verdict"], "demand")
        self.assertIn("in render", event["line"])
        self.assertGreater(event["short_bytes"], 0)
        # No step has ended: what the model and the loss made is known by where it was made.
        shares = {row["kind"]: row["bytes"] for row in event["kinds"]}
        live = sum(shares.values())
        self.assertGreater(shares["activations"], 0.8 * live)
        self.assertGreater(shares["parameters"], 0)
        enough = report["what_if"]["without_spill"]
        self.assertGreater(enough["cap_bytes"], 2 * GIB)
        self.assertIsNone(enough["fraction"])
        # The first step had not asked for all it needs: nobody knows what would have fitted.
        self.assertIsNone(event["estimated_factor_that_fits"])

    def test_headroom_of_a_small_batch_foretells_larger_ones(self) -> None:
        (small,) = self.batch(32).reports
        headroom = small["devices"][0]["headroom"]
        self.assertEqual(headroom["batch"], 32)
        for samples in (48, 64):
            (larger,) = self.batch(samples).reports
            peak = larger["devices"][0]["peak_live_bytes"]
            told = next(f for f in headroom["factors"] if f["batch"] == samples)
            self.assertAlmostEqual(told["estimated_peak_live_bytes"] / peak, 1, delta=0.1)
        self.assertGreaterEqual(headroom["estimated_largest_batch"], 64)

    def test_fewer_bins_by_site(self) -> None:
        for option, value, factor in (("--bin-width", "0.2", 0.5), ("--range", "1500", 0.75)):
            answer = diff(self.batch(32), self.batch(32, option, value))
            changed = line_of(answer, "in render")
            self.assertAlmostEqual(changed["factor"], factor, delta=0.01)
            first = next(line for line in answer["lines"] if ".py:" in line["line"])
            self.assertTrue(first["line"].endswith("in render"), first)
            layers = line_of(answer, "in Layer.forward")
            self.assertAlmostEqual(layers["factor"], 1, delta=0.01)

    def test_breakdown_by_kind(self) -> None:
        run = self.batch(32)
        (report,), (end,) = run.reports, run.result.lines("end")
        shares = kinds(report)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.05)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.05)
        # The moving average is a copy of the model.
        self.assertGreaterEqual(shares["other persistent"], end["parameter_bytes"])
        self.assertGreater(shares["activations"], shares["parameters"])

    def test_graph_pools_apart(self) -> None:
        few = ("--supervisions", "1", "--latent-steps", "1", "--layers", "1", "--batch", "8")
        report, end = only(
            *("peptide_recurrent.py", "--steps", "4", *few, "--no-spectrum-loss"),
            *("--compile", "cudagraphs"),
        )
        shares = kinds(report)
        self.assertGreater(shares["CUDA-graph pools"], 0)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.05)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.05)
        self.assertEqual(sum(shares.values()), report["devices"][0]["peak_live_bytes"])


@harness.needs_torch
class Spectra(unittest.TestCase):
    """3. Two ranks that train and validate; a list of results that grows."""

    JOB = ("spectrum_finetune.py", "--batches", "2", "--validation-batches", "2") + (
        () if FULL else ("--layers", "1", "--width", "96", "--heads", "4")
    )

    def ranks(self, *more: str) -> forked.Run:
        run = job(*self.JOB, "--epochs", "12", *more, ranks=2, MEMSHIM_FRACTION="0.95")
        run.result.check()
        self.assertEqual(len(run.reports), 2)
        return run

    def test_the_cap_holds_on_either_rank(self) -> None:
        for rank, report in enumerate(self.ranks("--grow").reports):
            device = report["devices"][0]
            self.assertEqual(report["process"]["rank"], rank)
            self.assertEqual(device["cap_bytes"], int(0.95 * 24 * GIB))
            self.assertLessEqual(device["peak_charged_bytes"], device["cap_bytes"])

    def test_what_grows_is_named_long_before_the_end(self) -> None:
        run = self.ranks("--grow")
        kept = {end["rank"]: end for end in run.result.lines("step") if end["epoch"] == 12}
        for rank, report in enumerate(run.reports):
            device = report["devices"][0]
            self.assertTrue(device["growth"], device["slope"])
            site = device["growth"][0]
            self.assertIn("spectrum_finetune.py", site["line"])
            told = sum(growing["bytes_per_step"] for growing in device["growth"])
            true = kept[rank]["metrics_bytes"] / report["steps"]["count"]
            self.assertAlmostEqual(told / true, 1, delta=0.35)
            self.assertGreater(site["cap_at_step"], report["steps"]["count"])
            self.assertEqual(report["oom_events"], [])

    def test_without_it_nothing_grows(self) -> None:
        for report in self.ranks().reports:
            device = report["devices"][0]
            self.assertEqual(device["growth"], [])
            self.assertIsNotNone(device["fragmentation_at_peak"])

    def test_one_report_of_both(self) -> None:
        said = merged(self.ranks("--grow"))
        self.assertEqual([rank["rank"] for rank in said["ranks"]], [0, 1])
        self.assertIsNone(said["first_dead"])


def merged(run: forked.Run) -> dict[str, Any]:
    """memshim report of the whole run."""
    with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
        out = Path(folder) / "run.json"
        with out.open("wb") as to:
            subprocess.run(
                [harness.CLI, "report", run.folder, "--format", "json"], check=True, stdout=to
            )
        answer: dict[str, Any] = json.loads(out.read_bytes())
        return answer


@harness.needs_torch
class Language(unittest.TestCase):
    """4. A language model with master copies of its weights."""

    MODEL = ("lm512m.py",) + (
        () if FULL else ("--layers", "2", "--width", "256", "--heads", "4", "--vocabulary", "4000")
    )
    JOB = (*MODEL, "--length", "1024" if FULL else "256")
    MEMORY = "44GiB" if FULL else "24GiB"

    def test_peak_by_kind(self) -> None:
        report, end = only(
            *self.JOB, "--steps", "2", "--accumulation", "2", SIMGPU_MEMORY=self.MEMORY
        )
        device = report["devices"][0]
        shares = kinds(report)
        self.assertEqual(sum(shares.values()), device["peak_live_bytes"])
        self.assertAlmostEqual(
            device["peak_live_bytes"] / end["max_allocated_bytes"], 1, delta=0.02
        )
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.15)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.15)
        # The master copies.
        self.assertAlmostEqual(shares["other persistent"] / end["master_bytes"], 1, delta=0.15)
        self.assertTrue(device["headroom"]["estimated_largest_factor"] > 1)

    def test_a_batch_that_is_too_large_is_demand_not_fragmentation(self) -> None:
        report, event = failed(
            *(*self.MODEL, "--micro-batch", "8", "--length", "2048", "--steps", "1"),
            *("--accumulation", "1"),
            SIMGPU_MEMORY="24GiB" if FULL else "1GiB",
        )
        self.assertEqual(event["verdict"], "demand")
        self.assertIsNone(event["estimated_factor_that_fits"])
        enough = report["what_if"]["without_spill"]
        self.assertGreater(enough["cap_bytes"], GIB)

    def test_the_rank_that_stands_out_is_named(self) -> None:
        run = job(
            *(*self.JOB, "--steps", "1", "--accumulation", "1", "--average-on", "2"),
            ranks=4,
            SIMGPU_MEMORY=self.MEMORY,
        )
        run.result.check()
        said = merged(run)
        self.assertEqual([rank["rank"] for rank in said["ranks"]], [0, 1, 2, 3])
        self.assertEqual(said["outlier"], said["ranks"][2]["folder"])
        self.assertIn("lm512m.py", said["outlier_site"]["line"])
        self.assertEqual(said["outlier_site"]["median_bytes"], 0)
        for rank in said["ranks"]:
            self.assertGreater(rank["peak_charged_bytes"], rank["peak_live_bytes"])
        self.check_dashboard(run)

    def check_dashboard(self, run: forked.Run) -> None:
        """Used of the cap, status and fragmentation of each rank, as memshim top has them."""
        top = subprocess.run(
            [harness.CLI, "top", run.folder, "--once", "--json"], capture_output=True, check=True
        )
        processes = json.loads(top.stdout)["processes"]
        self.assertEqual(sorted(process["rank"] for process in processes), [0, 1, 2, 3])
        for process in processes:
            (device,) = process["devices"]
            report = run.reports[process["rank"]]["devices"][0]
            self.assertEqual(device["peak_used_bytes"], report["peak_charged_bytes"])
            self.assertEqual(device["cap_bytes"], report["cap_bytes"])
            self.assertEqual(device["status"], "normal")
            self.assertIsNotNone(device["fragmentation"])

    def test_loading_is_told_apart_from_training(self) -> None:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            steps = ("--steps", "1", "--accumulation", "1")
            saved = f"{folder}/checkpoint"
            only(*self.JOB, *steps, "--save", saved, SIMGPU_MEMORY=self.MEMORY)
            run = job(*self.JOB, *steps, "--resume", saved, SIMGPU_MEMORY=self.MEMORY)
        (report,), (end,) = run.reports, run.result.check().lines("end")
        (resumed,) = run.result.lines("resumed")
        device = report["devices"][0]
        self.assertEqual(device["peak_before_steps_bytes"], resumed["max_allocated_bytes"])
        # The job counts anew once it is loaded.
        self.assertEqual(device["peak_in_steps_bytes"], end["max_allocated_bytes"])


@harness.needs_torch
class Mixture(unittest.TestCase):
    """5. Experts, whose sizes change every step; an evaluation with a larger batch."""

    JOB = ("moe.py", *(() if FULL else ("--layers", "2", "--vocabulary", "4000")))
    LARGE = (*JOB, "--evaluation-factor", "16", "--steps", "2", "--evaluate-every", "2")
    TOO_SMALL = "5GiB" if FULL else "1240MiB"

    def test_the_evaluation_that_ran_out(self) -> None:
        report, event = failed(*self.LARGE, SIMGPU_MEMORY=self.TOO_SMALL)
        self.assertEqual(event["verdict"], "demand")
        self.assertIn("moe.py", event["line"])
        self.assertEqual(event["source"], "torch")
        asked = next(s for s in report["call_sites"] if s["line"] == event["line"])
        self.assertTrue(passes(asked, "loss_of"))
        # The line is training's, too: who called it is said.
        (text,) = job(*self.LARGE, SIMGPU_MEMORY=self.TOO_SMALL).texts
        self.assertRegex(text, r"\n         from moe\.py:\d+ in train, ")
        self.assertIn("warning", states(report))

    def test_every_row_of_the_ledger(self) -> None:
        """At the out-of-memory, and at the peak: rows add up to the device."""
        report, event = failed(*self.LARGE, SIMGPU_MEMORY=self.TOO_SMALL)
        total = report["devices"][0]["total_bytes"]
        for ledger in (event["ledger"], report["devices"][0]["peak"]["ledger"]):
            self.assertEqual(sum(row["bytes"] for row in ledger), total)
            (left,) = [row["bytes"] for row in ledger if row["name"] == "unexplained"]
            self.assertLess(abs(left), total // 100)
            (context,) = [row["bytes"] for row in ledger if row["name"] == "context"]
            self.assertEqual(context, CONTEXT)

    @unittest.skipIf(FULL, "too many events to be replayed at the end of a run")
    def test_mixed_sizes_run_on(self) -> None:
        mixed = ("--steps", "4", "--vary", "--evaluate-every", "0")
        report, end = only(*self.JOB, *mixed)
        self.assertEqual(report["oom_events"], [])
        device = report["devices"][0]
        self.assertGreaterEqual(device["torch_reserved_bytes"], end["max_allocated_bytes"])
        overhead = device["overhead"]
        self.assertLess(overhead["ratio"], 1.1)
        self.assertGreater(overhead["torch_ratio"], overhead["ratio"])

    def test_long_sequences_by_site(self) -> None:
        few = ("--steps", "1", "--evaluate-every", "0")
        short, long = (job(*self.JOB, *few, "--length", length) for length in ("512", "1024"))
        answer = diff(short, long, "--predict", "length=512,1024")
        grown = [line for line in answer["lines"] if line["b_bytes"] > line["a_bytes"]]
        self.assertTrue(grown)
        # Attention is fused here: what grows most grows with the length, and no line with its
        # square.
        self.assertIn("in loss_of", grown[0]["line"])
        self.assertAlmostEqual(grown[0]["factor"], 2, delta=0.02)
        self.assertEqual(grown[0]["shape"], "linear")
        attention = [
            site["shape"]
            for site in answer["sites"]
            if site["line"].endswith("in FusedAttention.forward") and site["b_most_bytes"] > MIB
        ]
        self.assertIn("linear", attention)
        self.assertNotIn("quadratic", attention)

    def sharded(self, how: str) -> tuple[Report, dict[str, Any]]:
        run = job(*(*self.JOB, "--steps", "2", "--evaluate-every", "0", "--sharding", how), ranks=2)
        ends = run.result.check().lines("end")
        self.assertEqual(len(run.reports), 2)
        return run.reports[0], next(end for end in ends if end["rank"] == 0)

    def test_kinds_of_replicas(self) -> None:
        report, end = self.sharded("ddp")
        shares = kinds(report)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.01)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.01)
        # The flat buckets in which gradients are averaged.
        self.assertAlmostEqual(shares["communication"] / end["parameter_bytes"], 1, delta=0.01)

    def test_kinds_of_a_sharded_optimizer(self) -> None:
        report, end = self.sharded("zero1")
        shares = kinds(report)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.01)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.01)
        self.assertLess(end["optimizer_bytes"], 1.3 * end["parameter_bytes"])

    def test_kinds_of_sharded_parameters(self) -> None:
        report, end = self.sharded("fsdp2")
        shares = kinds(report)
        self.assertAlmostEqual(shares["parameters"] / end["parameter_bytes"], 1, delta=0.02)
        self.assertAlmostEqual(shares["optimizer state"] / end["optimizer_bytes"], 1, delta=0.02)
        gathered = [
            site
            for site in report["call_sites"]
            if site["kind_reason"] == "FSDP or ZeRO gathered parameters into it"
        ]
        self.assertTrue(gathered)
        self.assertEqual({site["kind"] for site in gathered}, {"communication"})
        self.assertGreater(shares["communication"], 0)

    def test_thresholds_trim_and_spill(self) -> None:
        """The states in their order, each said once on stderr and told on the timeline."""
        run = job(
            *(*self.JOB, "--steps", "4", "--evaluate-every", "0"),
            SIMGPU_MEMORY="2600MiB" if FULL else "680MiB",
            MEMSHIM_SPILL="auto",
        )
        (report,) = run.reports
        run.result.check()
        said = [line for line in run.result.stderr.splitlines() if "memshim: device 0: " in line]
        reached = [s for s in ("warning", "critical", "emergency") if any(s in x for x in said)]
        self.assertEqual(reached[-1], "emergency", said)
        for state in reached:
            self.assertEqual(sum(f": {state}, " in line for line in said), 1, said)
            self.assertIn(state, states(report))
        times = [row["time_ns"] for row in report["thresholds"]]
        self.assertEqual(times, sorted(times))
        spill = report["devices"][0]["spill"]
        self.assertGreater(spill["spilled_bytes"], 0)
        cap = report["devices"][0]["cap_bytes"]
        self.assertGreater(spill["estimated_cap_without_bytes"], cap)
        # More than the device has is no fraction of it.
        self.assertIsNone(spill["estimated_fraction_without"])
        self.assertEqual(report["oom_events"], [])
        timeline = json.loads((run.folders[0] / "timeline.json").read_text())
        names = json.dumps(timeline)
        for state in reached:
            self.assertIn(state, names)


# Enough events that a trace of 1 MiB drops the first of them.
LONG = """
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    kept = [torch.empty(1 << 20, device="cuda")]
    for step in range(20):
        loss = model(torch.ones(8 if step == 7 else 4, 64, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.empty(1 << 18, device="cuda"))
        for i in range(6000):
            torch.empty(i * 64, device="cuda")
    del kept[1:]
    model(torch.ones(4, 64, device="cuda")).sum().backward()
"""


@harness.needs_torch
class Bounded(unittest.TestCase):
    """A trace that holds the last events alone, beside one that holds all."""

    def runs(self) -> tuple[forked.Run, forked.Run]:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            script = Path(folder) / "long.py"
            script.write_text(harness.script_text(LONG))
            whole = forked.run(script)
            bounded = forked.run(script, MEMSHIM_TRACE_LIMIT="1MiB")
        whole.result.check()
        bounded.result.check()
        return whole, bounded

    def test_the_same_sums_and_the_same_diff(self) -> None:
        whole, bounded = self.runs()
        (all_events,), (last_events,) = whole.reports, bounded.reports
        self.assertGreater(last_events["trace"]["detail_since_ns"], 0)
        self.assertEqual(all_events["trace"]["detail_since_ns"], 0)
        # What dies on which side of a backward pass's end, two threads decide anew in every run.
        for row, again in zip(all_events["kinds"], last_events["kinds"], strict=True):
            self.assertEqual(row["kind"], again["kind"])
            self.assertAlmostEqual(row["bytes"], again["bytes"], delta=row["bytes"] // 50)
            self.assertAlmostEqual(
                row["at_peak_bytes"], again["at_peak_bytes"], delta=row["at_peak_bytes"] // 50
            )
        device, same = all_events["devices"][0], last_events["devices"][0]
        for key in ("peak_live_bytes", "peak_reserved_bytes", "peak_charged_bytes", "tensors"):
            self.assertEqual(device[key], same[key], key)
        self.assertEqual(all_events["steps"]["count"], last_events["steps"]["count"])
        keys = ("line", "allocations", "bytes", "peak_bytes", "at_peak_bytes")
        self.assertEqual(
            sorted([str(site[key]) for key in keys] for site in all_events["call_sites"]),
            sorted([str(site[key]) for key in keys] for site in last_events["call_sites"]),
        )
        for site in diff(whole, bounded)["sites"]:
            self.assertEqual(site["change_bytes"], 0)
            self.assertEqual(site["a_most_bytes"], site["b_most_bytes"])

        since_s = last_events["trace"]["detail_since_ns"] / 2e9
        early = f"{bounded.folders[0]}@{since_s:.6f}s"
        said = subprocess.run(
            [harness.CLI, "diff", early, bounded.folders[0]], capture_output=True, text=True
        )
        self.assertEqual(said.returncode, 1, said.stdout)
        self.assertIn("the records of that moment were overwritten", said.stderr)


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
