# SPDX-License-Identifier: Apache-2.0
"""Phases that a PyTorch program marks with NVTX, seen without a tool."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import harness

TRACE_TAGS = harness.BUILD / "tests" / "process" / "trace_tags"

JOB = """
    import torch
    from torch.cuda import nvtx
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
    batch = torch.ones(64, 64).cuda()
    for _ in range(3):
        with nvtx.range("step"):
            nvtx.range_push("forward")
            loss = layer(batch).sum()
            nvtx.range_pop()
            with nvtx.range("backward"):
                loss.backward()
            with torch.autograd.profiler.emit_nvtx(), nvtx.range("profiled"):
                layer(batch)
    started = nvtx.range_start("whole")
    torch.cuda.synchronize()
    nvtx.range_end(started)
    assert nvtx.range_push("level 0") == 0
    assert nvtx.range_push("level 1") == 1
    assert nvtx.range_pop() == 1
    assert nvtx.range_pop() == 0
"""


@harness.needs_torch
class Tags(unittest.TestCase):
    def test_ranges_of_a_training_loop(self) -> None:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            output = Path(folder) / "out"
            harness.run(JOB, preload=harness.SHIM, MEMSHIM_OUTPUT=output).check()
            (trace,) = output.glob("latest/*/trace.mshm")
            lines = harness.run_command([TRACE_TAGS, trace]).check()
        names: dict[str, str] = {"0": ""}
        by_tag: dict[str, int] = {}
        spans, steps = [], []
        for line in lines.stdout.splitlines():
            match line.split(" "):
                case ["tag", number, outer, _, name]:
                    names[number] = f"{names[outer]}/{bytes.fromhex(name).decode()}"
                case [("begin" | "end") as what, thread, tag]:
                    spans.append((what, thread, names[tag]))
                case ["step", number, source]:
                    steps.append((number, source))
                case ["alloc", _, tag]:
                    by_tag[names[tag]] = by_tag.get(names[tag], 0) + 1
        self.assertEqual(steps, [("1", "1"), ("2", "1"), ("3", "1")])
        for tag in ("/step/forward", "/step/backward"):
            # The gradients are allocated by a worker thread of PyTorch's, which has no tag itself.
            self.assertGreater(by_tag.get(tag, 0), 0, f"{tag} of {by_tag}")
            self.assertEqual(sum(span[2] == tag for span in spans), 6)
        self.assertGreater(by_tag.get("", 0), 0, "what comes before the first step has no tag")
        self.assertTrue(any(tag.startswith("/step/profiled/aten::") for tag in names.values()))
        self.assertIn(("begin", "0", "/whole"), spans)
        self.assertIn(("end", "0", "/whole"), spans)


if __name__ == "__main__":
    unittest.main()
