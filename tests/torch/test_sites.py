# SPDX-License-Identifier: Apache-2.0
"""Call sites in real PyTorch: the line that made each tensor."""

from __future__ import annotations

import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

import harness

sys.path.append(str(harness.ROOT / "tests" / "process"))  # it has files of the same names

import sites  # noqa: E402
from sites import TENSOR, Trace  # noqa: E402

TOOL = harness.BUILD / "tests" / "process" / "trace_sites"
MIB = 1 << 20

TWO_LINES = """
    import torch

    def first():
        return [torch.empty(1 << 20, device="cuda") for _ in range(3)]

    def second():
        held = torch.empty(
            2 << 20,
            device="cuda",
        )
        return held

    kept = [first(), second(), second()]
"""

BACKWARD = """
    import torch

    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    y = (x * 2).relu()
    y.backward(torch.ones(1 << 20, device="cuda"))
"""


@harness.needs_torch
class Sites(unittest.TestCase):
    """Traces of PyTorch jobs."""

    def trace_of(self, *command: str | Path, **settings: Any) -> Trace:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            harness.run_command(
                [harness.CLI, "run", "--", sys.executable, *command],
                MEMSHIM_OUTPUT=f"{folder}/out",
                SIMGPU_CONTENTS="none",
                **settings,
            ).check()
            (path,) = (Path(folder) / "out" / "latest").glob("*/trace.mshm")
            return sites.read_trace(TOOL, path)

    def run_source(self, source: str, **settings: Any) -> Trace:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            script = Path(folder) / "script.py"
            script.write_text(harness.script_text(source))
            return self.trace_of(script, **settings)

    def test_two_lines_are_two_sites(self) -> None:
        trace = self.run_source(TWO_LINES)
        found = Counter[tuple[str, int]]()
        for number, (count, size) in trace.sums(TENSOR).items():
            frame = trace.sites[number].python[0]
            if size >= 4 * MIB:
                self.assertTrue(frame.file.endswith("script.py"))
                found[frame.function.rpartition(".")[2], frame.line] += count
        # From 3.11 on the line of a call is that of its beginning, not of its last argument.
        self.assertEqual(found, {("<listcomp>", 5): 3, ("second", 8): 2})
        callers = {
            tuple(frame.function for frame in trace.sites[number].python)
            for number, (_, size) in trace.sums(TENSOR).items()
            if size >= 4 * MIB
        }
        self.assertEqual(
            callers, {("first.<locals>.<listcomp>", "first", "<module>"), ("second", "<module>")}
        )

    def test_backward_is_told(self) -> None:
        trace = self.run_source(BACKWARD)
        kinds = Counter[int]()
        for number, (_, size) in trace.sums(TENSOR).items():
            kinds[trace.sites[number].thread] += size
        self.assertGreaterEqual(kinds[sites.THREAD_BACKWARD], 4 * MIB)
        self.assertGreaterEqual(kinds[sites.THREAD_PYTHON], 12 * MIB)

    def check_attribution(self, script: str, *arguments: str, **settings: Any) -> None:
        trace = self.trace_of(harness.WORKLOADS / script, *arguments, **settings)
        at_peak = trace.peak_by_site()
        total = sum(at_peak.values())
        self.assertGreater(total, 100 * MIB)
        self.assertGreaterEqual(total - at_peak[0], 0.99 * total)
        outside = {
            number: size
            for number, size in at_peak.items()
            if number and trace.sites[number].thread != sites.THREAD_BACKWARD
        }
        with_line = sum(size for number, size in outside.items() if trace.sites[number].python)
        self.assertGreaterEqual(with_line, 0.95 * sum(outside.values()))
        self.assertFalse(any(site.flags & sites.PYTHON_LOST for site in trace.sites.values()))

    def test_attribution_in_a_gpt(self) -> None:
        self.check_attribution("gpt.py", "--steps", "3")

    def test_attribution_in_a_transformer(self) -> None:
        self.check_attribution(
            "asv_transformer.py", "--steps", "1", "--accumulation", "2", SIMGPU_MEMORY="24GiB"
        )


if __name__ == "__main__":
    unittest.main()
