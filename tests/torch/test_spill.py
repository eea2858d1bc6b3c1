# SPDX-License-Identifier: Apache-2.0
"""Jobs that need more than there is complete when what is cold may lie in host memory."""

from __future__ import annotations

import functools
import unittest
from typing import Any

import forked
import harness

CONTEXT_BYTES = 400 << 20
PART = 0.85  # of what the job needs

# Workloads 2 and 5 with the shapes that decide, and less of what only repeats.
PEPTIDE = (
    *("peptide_recurrent.py", "--batch", "96", "--supervisions", "2"),
    *("--latent-steps", "3", "--steps", "2"),
)
MIXTURE = ("moe.py", "--batch", "12", "--evaluate-every", "2", "--evaluation-factor", "4")

# Parameters of 64 MiB, state of 128 MiB, activations of 160 MiB. The simulated GPU changes none of
# it in a kernel, and its driver says of no kernel of PyTorch's what it uses.
ADAM = """
    import json
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(4)))
    given = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.cuda().parameters())
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(4096, 2048, device="cuda")).sum().backward()
        optimizer.step()
        states = [optimizer.state[parameter] for parameter in model.parameters()]
        if step == 0:
            for state, weights in zip(states, given):
                state["exp_avg"].copy_(2 * weights)
                state["exp_avg_sq"].copy_(3 * weights)
    for parameter, state, weights in zip(model.parameters(), states, given):
        kept = parameter, state["exp_avg"], state["exp_avg_sq"]
        for times, tensor in enumerate(kept, start=1):
            assert torch.equal(tensor.cpu(), times * weights), (times, tensor.shape)
    peak_bytes = torch.cuda.max_memory_allocated()
    print(json.dumps({"event": "end", "peak_bytes": peak_bytes}))
"""


def spilled_by_optimizers(report: dict[str, Any]) -> tuple[int, int]:
    """Bytes that moved to the host of what an optimizer asked for, and of all else."""
    optimizers = others = 0
    for row in report["call_sites"]:
        files = {str(frame["file"]) for frame in row["frames"]}
        if any("/torch/optim/" in file for file in files):
            optimizers += row["spilled_bytes"]
        else:
            others += row["spilled_bytes"]
    return optimizers, others


def run_job(
    *job: str, cap_bytes: int | None = None, **settings: Any
) -> tuple[harness.Result, dict[str, Any]]:
    """What the job said, and memshim's report."""
    if cap_bytes is not None:
        settings["MEMSHIM_LIMIT"] = cap_bytes
    run = forked.run(*job, **{"SIMGPU_MEMORY": "64GiB", "MEMSHIM_SPILL": "auto", **settings})
    (report,) = run.reports
    return run.result, report


@functools.cache
def need_bytes(*job: str) -> int:
    """The least device memory with which it could complete: what is live at its worst."""
    result, report = run_job(*job)
    (end,) = result.check().lines("end")
    if report["devices"][0]["spill"]["spills"] != 0:
        raise AssertionError(result.describe())
    return int(end["max_allocated_bytes"]) + CONTEXT_BYTES


@harness.needs_torch
class Spill(unittest.TestCase):
    def check_completes(self, cap_bytes: int, *job: str) -> None:
        result, report = run_job(*job, cap_bytes=cap_bytes)
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
        cap_bytes = int(need_bytes(*PEPTIDE) * PART)
        result, report = run_job(*PEPTIDE, cap_bytes=cap_bytes, MEMSHIM_SPILL="off")
        self.assertEqual(result.status, 1, result.describe())
        self.assertTrue(report["oom_events"])
        self.assertEqual(report["devices"][0]["spill"]["spills"], 0)
        self.check_completes(cap_bytes, *PEPTIDE)

    def test_evaluation_of_the_mixture(self) -> None:
        job = (*MIXTURE, "--steps", "3", "--layers", "2")
        cap_bytes = int(need_bytes(*job) * PART)
        # Without host memory: what PyTorch keeps of the training step would lie there otherwise.
        result, report = run_job(*job, cap_bytes=cap_bytes, SIMGPU_HOST_NUMA=0)
        self.assertEqual(result.status, 1, result.describe())
        self.assertTrue(report["oom_events"])
        self.check_completes(cap_bytes, *job)

    def test_an_optimizers_state_goes_first(self) -> None:
        cap_bytes = CONTEXT_BYTES + (380 << 20)  # enough for the first step, which makes it
        job = harness.run_memshim(
            ADAM, MEMSHIM_SPILL="auto", MEMSHIM_LIMIT=cap_bytes, SIMGPU_MEMORY="64GiB"
        )
        (end,) = job.result.check().lines("end")
        self.assertGreater(end["peak_bytes"] + CONTEXT_BYTES, cap_bytes)
        optimizers, others = spilled_by_optimizers(job.only())
        self.assertEqual(others, 0, job.result.describe())
        self.assertGreater(optimizers, 0)

    def test_the_limit_of_spilling(self) -> None:
        cap_bytes = int(need_bytes(*PEPTIDE) * 0.7)
        result, report = run_job(*PEPTIDE, cap_bytes=cap_bytes, MEMSHIM_SPILL_LIMIT="64MiB")
        self.assertEqual(result.status, 1, result.describe())
        self.assertEqual(report["oom_events"][-1]["verdict"], "spill_limit")
        self.assertIn("MEMSHIM_SPILL_LIMIT", report["oom_events"][-1]["sentence"])


if __name__ == "__main__":
    unittest.main()
