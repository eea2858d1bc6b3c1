# SPDX-License-Identifier: Apache-2.0
"""What a training loop asks memshim: the documents' example, beside what PyTorch itself says."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
import unittest
from pathlib import Path

import harness

JOB = """
    import json
    import torch

    assert memshim_stats() is None
    layer = torch.nn.Linear(1024, 1024).cuda()
    batch = torch.ones(64, 1024).cuda()
    for _ in range(3):
        layer(batch).sum().backward()
    hole = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    kept = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    del hole
    torch.cuda.synchronize()
    stats = memshim_stats(torch.cuda.current_device())
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({
        "event": "end",
        "stats": {name: getattr(stats, name) for name, _ in stats._fields_},
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "total": total,
        "elsewhere": memshim_stats(1) is not None,
    }))
"""


def documents_example() -> str:
    text = (harness.ROOT / "docs/top.md").read_text()
    found = re.search(r"<!-- ctypes -->\n```python\n(.*?)```\n<!-- end -->", text, re.DOTALL)
    assert found, "docs/top.md has no example"
    return found[1]


@harness.needs_torch
class Stats(unittest.TestCase):
    def test_native_mode(self) -> None:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            result = harness.run(
                documents_example() + textwrap.dedent(JOB),
                preload=harness.SHIM,
                MEMSHIM_OUTPUT=Path(folder) / "out",
                MEMSHIM_FRACTION="0.5",
                MEMSHIM_STATUS_EVERY="0.001s",
            ).check()
            (made,) = harness.folders_in(Path(folder) / "out")
            report = json.loads((made / "report.json").read_text())
        wanted = report["devices"][0]["fragmentation_at_peak"]
        self.assertRegex(result.stderr, r"status: device 0: normal, used [\d.]+ MiB of 12\.00 GiB")
        (end,) = result.lines("end")
        stats = end["stats"]
        self.assertEqual(stats["cap_bytes"], end["total"])
        self.assertEqual(stats["total_bytes"], 2 * end["total"])
        self.assertEqual(stats["live_bytes"], end["allocated"])
        self.assertGreaterEqual(stats["used_bytes"], stats["reserved_bytes"])
        self.assertEqual(stats["free_bytes"], stats["cap_bytes"] - stats["used_bytes"])
        self.assertAlmostEqual(stats["fragmentation"], wanted, places=6)
        self.assertEqual((stats["status"], stats["refusals"], stats["host_bytes"]), (0, 0, 0))
        self.assertFalse(end["elsewhere"])

    def test_an_emergency_that_is_over(self) -> None:
        """Said where charged bytes have fallen, not at once again where they rise and fall."""
        script = """
            import torch

            torch.ones(1, device="cuda")
            for _ in range(3):
                large = torch.empty(1600 << 20, dtype=torch.uint8, device="cuda")
                del large
                torch.cuda.empty_cache()
        """
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            result = harness.run(
                textwrap.dedent(script),
                preload=harness.SHIM,
                MEMSHIM_OUTPUT=Path(folder) / "out",
                SIMGPU_MEMORY="2GiB",
            ).check()
        said = [line.split(",")[0] for line in result.stderr.splitlines() if "emergency" in line]
        self.assertEqual(
            said,
            [
                "memshim: device 0: emergency",
                "memshim: device 0: the emergency is over",
                "memshim: device 0: emergency again",
            ],
            result.stderr,
        )

    def test_an_emergency_ends_though_pytorch_keeps_what_was_freed(self) -> None:
        """Of its cache as much is taken as is needed for that."""
        script = """
            import ctypes
            import json
            import torch

            def made():  # chunks
                return ctypes.CDLL(None).simgpu_calls(b"cuMemCreate")

            def fill():
                return [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for _ in range(19)]

            def small():
                torch.cuda.synchronize()
                for _ in range(6000):  # until it is seen; a busy machine takes its time
                    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
                    time.sleep(0.01)
                    stats = memshim_stats()
                    if stats.status == 0:
                        break
                print(json.dumps({"event": "seen", "status": stats.status,
                                  "reserved": stats.reserved_bytes >> 20}))

            tensors = fill()
            print(json.dumps({"event": "seen", "status": memshim_stats().status}))
            before = made()
            del tensors
            small()
            print(json.dumps({"event": "made", "chunks": made() - before}))
        """
        for mode in ("native", "tensor"):
            with self.subTest(mode), tempfile.TemporaryDirectory() as folder:
                result = harness.run(
                    "import time\n" + documents_example() + textwrap.dedent(script),
                    preload=harness.SHIM,
                    MEMSHIM_OUTPUT=Path(folder) / "out",
                    MEMSHIM_SPILL="off",
                    MEMSHIM_TORCH=mode,
                    SIMGPU_MEMORY="2080MiB",
                    SIMGPU_CONTEXT="128MiB",
                    SIMGPU_CONTENTS="none",
                ).check()
                full, freed = result.lines("seen")
                self.assertEqual(full["status"], 3)
                self.assertEqual(freed["status"], 0, result.stderr)
                self.assertGreater(freed["reserved"], 1000, "as little as that takes")
                # Nothing covers the holes but the budget that they left.
                self.assertLessEqual(result.lines("made")[0]["chunks"], 4)

    def test_what_each_step_needs_is_not_taken_between_steps(self) -> None:
        script = """
            import ctypes
            import json
            import time
            import torch

            def calls():
                count = ctypes.CDLL(None).simgpu_calls
                return count(b"cuMemCreate") + count(b"cuMemUnmap")

            def small():
                time.sleep(0.03)
                torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

            def step():
                tensors = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
                           for _ in range(19)]
                small()
                del tensors
                torch.cuda.synchronize()
                small()

            step()
            before = calls()
            for _ in range(60):
                step()
            print(json.dumps({"event": "end", "calls": calls() - before}))
        """
        with tempfile.TemporaryDirectory() as folder:
            result = harness.run(
                textwrap.dedent(script),
                preload=harness.SHIM,
                MEMSHIM_OUTPUT=Path(folder) / "out",
                MEMSHIM_SPILL="off",
                SIMGPU_MEMORY="2080MiB",
                SIMGPU_CONTEXT="128MiB",
                SIMGPU_CONTENTS="none",
            ).check()
        self.assertIn("emergency", result.stderr)
        self.assertLess(result.lines("end")[0]["calls"], 20)

    def test_without_memshim(self) -> None:
        script = documents_example() + "assert memshim_stats() is None\n"
        harness.run(script).check()


if __name__ == "__main__":
    unittest.main()
