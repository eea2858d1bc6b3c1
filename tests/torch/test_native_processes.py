# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch under memshim: ranks, workers, children, signals, and a report while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

GIB = 1 << 30

# DDP for a few steps; the second argument says how it ends.
RANKS = """
    import os, sys, time, torch
    import torch.distributed as dist
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    model = torch.nn.Linear(512, 512).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        model(torch.randn(64, 512).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    if sys.argv[1] == "oom" and rank == 1:
        held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(40)]
    if sys.argv[1] == "oom":
        time.sleep(300)  # until torchrun ends this rank by SIGTERM, as one that waits for the other
    dist.destroy_process_group()
"""

# Processes beside the main one; all but the last touch no device of their own.
WORKERS = """
    import faulthandler, os, subprocess, sys, torch
    import torch.multiprocessing as mp
    from torch.utils.data import DataLoader, TensorDataset

    def on_host(index):
        torch.arange(10).sum()

    def on_device(index):
        torch.zeros(7 << 20, dtype=torch.uint8, device="cuda")

    if __name__ == "__main__":
        faulthandler.enable()
        data = TensorDataset(torch.arange(64.0))
        total = torch.zeros((), device="cuda")
        for context in ("fork", "spawn"):
            loader = DataLoader(data, 8, num_workers=1, multiprocessing_context=context)
            print(context, sum(batch[0].to("cuda").cpu().sum().item() for batch in loader))
        child = os.fork()
        if child == 0:
            torch.arange(10).sum()
            sys.exit(3)
        print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print("subprocess", subprocess.check_output(["echo", "out"], text=True).strip())
        try:
            torch.zeros(2, 3) @ torch.zeros(2, 3)
        except RuntimeError as error:
            print("caught", "cannot be multiplied" in str(error))
        try:
            torch.zeros(2, device="cuda") + torch.zeros(3, device="cuda")
        except RuntimeError as error:
            print("caught", "must match" in str(error))
        import triton
        for backend in ("eager", "aot_eager"):
            compiled = torch.compile(lambda t: t * 2 + 1, backend=backend)
            print("compiled", backend, tuple(compiled(torch.ones(4, device="cuda")).shape))
        mp.spawn(on_host, nprocs=1)
        mp.spawn(on_device, nprocs=1)
        print("done", flush=True)
"""

LOOP = """
    import time
    import torch
    live = torch.empty(6 << 20, dtype=torch.uint8, device="cuda")
    print("ready", flush=True)
    steps = 0
    try:
        while True:
            torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
            steps += 1
            if steps == 2000:
                print("many", flush=True)
            if steps >= 2000:
                time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


def ranks_of(job: harness.Job) -> dict[int, dict[str, Any]]:
    return {report["process"]["rank"]: report for report in job.reports}


@harness.needs_torch
class Ranks(unittest.TestCase):
    def test_two_ranks_train(self) -> None:
        job = harness.run_memshim(RANKS, "end", ranks=2, SIMGPU_DEVICES=2, MEMSHIM_FRACTION="0.95")
        job.result.check()
        ranks = ranks_of(job)
        self.assertEqual((len(job.reports), sorted(ranks)), (2, [0, 1]))
        for rank, report in ranks.items():
            used = [d for d in report["devices"] if d["tensors"]["births"] > 0]
            self.assertEqual([d["index"] for d in used], [rank])
            self.assertLess(used[0]["peak_charged_bytes"], 0.95 * 24 * GIB)
            self.assertEqual(report["process"]["world_size"], 2)
            self.assertEqual(report["process"]["exit"], 0)
        self.assertEqual(len({r["process"]["run_id"] for r in job.reports}), 1)
        self.assertIn("2 processes traced", job.result.stderr)

    def test_one_rank_runs_out_and_torchrun_ends_the_other(self) -> None:
        alone = harness.run(RANKS, "oom", ranks=2, SIMGPU_DEVICES=2, SIMGPU_MEMORY="3GiB")
        job = harness.run_memshim(RANKS, "oom", ranks=2, SIMGPU_DEVICES=2, MEMSHIM_FRACTION="0.125")
        self.assertEqual(job.result.status, alone.status)
        self.assertNotEqual(alone.status, 0)
        self.assertIn("torch.OutOfMemoryError", job.result.stderr)
        ranks = ranks_of(job)
        self.assertEqual(sorted(ranks), [0, 1])
        last = ranks[1]["oom_events"][-1]
        self.assertEqual((last["verdict"], last["recovered"]), ("cap", False))
        self.assertEqual(last["requested_bytes"], GIB)
        self.assertEqual(ranks[0]["oom_events"], [])
        self.assertGreater(ranks[0]["devices"][0]["tensors"]["births"], 10)


@harness.needs_torch
class Children(unittest.TestCase):
    @harness.thorough
    def test_only_those_that_use_a_device_leave_something(self) -> None:
        alone = harness.run(WORKERS).check()
        job = harness.run_memshim(WORKERS)
        self.assertEqual(job.result.check().stdout, alone.stdout)
        self.assertEqual(alone.stdout.splitlines()[-1], "done")
        peaks = sorted(r["devices"][0]["peak_live_bytes"] for r in job.reports)
        self.assertEqual(len(peaks), 2)
        self.assertEqual(peaks[1], 7 << 20)
        self.assertEqual(job.result.stderr.count("memshim: version"), 2)


@harness.needs_torch
class Signals(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "script.py").write_text(harness.script_text(LOOP))

    def job(self) -> list[str | Path]:
        return [harness.CLI, "run", "--", "python", self.folder / "script.py"]

    def test_report_while_it_runs_then_an_interrupt(self) -> None:
        output = self.folder / "out"
        with harness.started(self.job(), MEMSHIM_OUTPUT=output) as process:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "ready\n")
            trace = next((output / "latest").glob("*/trace.mshm"))
            asked = subprocess.run(
                [harness.CLI, "report", trace, "--format", "json"],
                capture_output=True,
                text=True,
                timeout=harness.TIMEOUT_S,
                check=True,
            )
            report = json.loads(asked.stdout)
            self.assertIsNone(report["process"]["exit"])
            self.assertGreaterEqual(report["devices"][0]["tensors"]["peak_live_bytes"], 6 << 20)
            self.assertEqual(process.stdout.readline(), "many\n")  # it goes on
            script = report["process"]["pid"]
            os.kill(script, signal.SIGINT)
            stdout, _ = process.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(stdout, "interrupted\n")
        reports, _ = harness.reports_in(output)
        self.assertEqual(reports[0]["devices"][0]["tensors"]["peak_live_bytes"], 7 << 20)

    def test_memshim_run_completes_the_report_of_a_killed_one(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            output = self.folder / f"out{number}"
            with (
                self.subTest(number),
                harness.started(self.job(), MEMSHIM_OUTPUT=output) as process,
            ):
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), "ready\n")
                self.assertEqual(process.stdout.readline(), "many\n")
                trace = next((output / "latest").glob("*/trace.mshm"))
                os.kill(int(trace.parent.name.rsplit("-", 1)[1]), number)
                process.communicate(timeout=harness.TIMEOUT_S)
                reports, texts = harness.reports_in(output)
                tensors = reports[0]["devices"][0]["tensors"]
                self.assertEqual(tensors["peak_live_bytes"], 7 << 20)
                self.assertGreaterEqual(tensors["births"], 2001)
                self.assertIn(tensors["births"] - tensors["deaths"], (1, 2))
                self.assertIn("Peak", texts[0])


if __name__ == "__main__":
    unittest.main()
