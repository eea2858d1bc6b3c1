# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's own wheel: its arena's blocks are seen and capped, and nothing else changes.

What the device computes is zeros here; which blocks there are is ONNX Runtime's own doing.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness  # noqa: E402
from ordinary import Ordinary, Program  # noqa: E402

MIB = 1 << 20
PACKAGE = Path(__file__).resolve().parents[2] / "scripts" / "package"
NOTE = "ONNX Runtime's arena"

# Four layers of 4 MiB; a batch of 2 MiB for each 512 rows.
MODEL = """\
import json, sys
import numpy, onnxruntime
from onnx import TensorProto, helper, numpy_helper

def model():
    weights = [numpy_helper.from_array(numpy.zeros((1024, 1024), numpy.float32), f"w{i}")
               for i in range(4)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(4)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1024])
              for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    return made.SerializeToString()

"""

INFERENCE = f"""\
{MODEL}
def main():
    rows = int(sys.argv[1])
    if "arena" in sys.argv:
        options = {{"arena_extend_strategy": "kSameAsRequested"}}
    else:
        import memshim.onnxruntime
        options = memshim.onnxruntime.options()
    session = onnxruntime.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", options)])
    assert "CUDAExecutionProvider" in session.get_providers(), "ONNX Runtime found no GPU"
    said, shape = None, None
    try:
        for _ in range(10):
            (y,) = session.run(None, {{"x0": numpy.zeros((rows, 1024), numpy.float32)}})
            shape = y.shape
    except Exception as error:
        said = f"{{type(error).__name__}}: {{error}}"
    print(json.dumps({{"event": "end", "shape": shape, "said": said}}))

main()
"""

# A service: batches of three sizes, or of one, whose results are kept. Two of them are too large.
SERVICE = f"""\
{MODEL}
def main():
    import memshim.onnxruntime
    options = {{"arena_extend_strategy": "kSameAsRequested"}}
    if "arena" not in sys.argv:
        options = memshim.onnxruntime.options()
    session = onnxruntime.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", options)])
    kept, said = [], []
    for step in range(20):
        if "told" in sys.argv:
            memshim.step()
        batches = 1 if "even" in sys.argv else step % 3 + 1
        rows = numpy.zeros((512 * batches, 1024), numpy.float32)
        x = onnxruntime.OrtValue.ortvalue_from_numpy(rows, "cuda", 0)
        y = onnxruntime.OrtValue.ortvalue_from_shape_and_type(rows.shape, rows.dtype, "cuda", 0)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x0", x)
        binding.bind_ortvalue_output("x4", y)
        session.run_with_iobinding(binding)
        kept.append(y)
        try:
            if "large" in sys.argv and step in (7, 13):
                session.run(None, {{"x0": numpy.zeros((1 << 19, 1024), numpy.float32)}})
        except Exception as error:
            said.append(str(error))
    # ONNX Runtime tells no figure.
    print(json.dumps({{"event": "end", "peak_bytes": None, "kept": len(kept), "said": said}}))

main()
"""

needs_onnxruntime = unittest.skipUnless(
    importlib.util.find_spec("onnxruntime"), "ONNX Runtime is not installed in this Python"
)


def in_script(report: dict[str, Any]) -> int:
    """Bytes at the peak that the program's own lines asked for."""
    return sum(
        site["at_peak_bytes"]
        for site in report["call_sites"]
        if any(str(f.get("file", "")).endswith("script.py") for f in site["frames"])
    )


@needs_onnxruntime
class OnnxRuntime(unittest.TestCase):
    def run_one(
        self,
        rows: int,
        arena: str = "arena",
        **settings: Any,  # noqa: ANN401
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        job = harness.run_memshim(INFERENCE, str(rows), arena, PYTHONPATH=PACKAGE, **settings)
        (end,) = job.result.check().lines("end")
        return end, job.only()

    def test_its_blocks_are_live_at_the_programs_lines(self) -> None:
        alone = harness.run(INFERENCE, "512", "arena").check().lines("end")
        end, report = self.run_one(512)
        self.assertEqual([end], alone)
        self.assertEqual(end["shape"], [512, 1024])
        device = report["devices"][0]
        # Four weights, two batches between layers.
        self.assertGreaterEqual(device["peak_live_bytes"], 20 * MIB)
        self.assertGreaterEqual(in_script(report), 0.9 * device["peak_live_bytes"])

    def test_without_its_arena_each_tensor_is_seen(self) -> None:
        """By options that the Python package makes."""
        _, kept = self.run_one(512)
        end, report = self.run_one(512, "no arena")
        self.assertEqual(end["shape"], [512, 1024])
        device = report["devices"][0]
        # Four weights, a batch, and one that comes of it, or another batch.
        self.assertGreaterEqual(device["peak_live_bytes"], 20 * MIB)
        self.assertLessEqual(device["peak_live_bytes"], 24 * MIB)
        blocks = [sum(each["allocations"] for each in of["call_sites"]) for of in (kept, report)]
        self.assertGreater(blocks[1], blocks[0] + 10, "two or three in each of ten runs")
        self.assertGreaterEqual(in_script(report), 0.9 * device["peak_live_bytes"])

    def test_without_its_arena_the_cap_is_kept(self) -> None:
        end, report = self.run_one(128 << 10, "no arena", MEMSHIM_LIMIT="1000MiB")
        self.assertTrue(end["said"])
        self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], 1000 * MIB)

    def test_the_report_says_that_its_arena_is_seen_as_blocks(self) -> None:
        for arena, words in (("arena", "is in use"), ("no arena", "is not in use")):
            with self.subTest(arena):
                _, report = self.run_one(512, arena)
                (note,) = [text for text in report["notes"] if NOTE in text]
                self.assertIn(words, note)

    def test_the_cap_is_kept_with_its_own_error(self) -> None:
        end, report = self.run_one(128 << 10, MEMSHIM_LIMIT="1000MiB")  # batches of 512 MiB
        self.assertIn("Failed to allocate memory", str(end["said"]))
        self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], 1000 * MIB)
        self.assertGreaterEqual(len(report["oom_events"]), 1)

    def test_spill_lets_it_finish(self) -> None:
        end, _ = self.run_one(128 << 10, MEMSHIM_LIMIT="1000MiB", MEMSHIM_SPILL="auto")
        self.assertEqual(end["shape"], [128 << 10, 1024], end["said"])

    def run_service(
        self,
        *arguments: str,
        **settings: Any,  # noqa: ANN401
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        job = harness.run_memshim(SERVICE, *arguments, PYTHONPATH=PACKAGE, **settings)
        (end,) = job.result.check().lines("end")
        return end, job.only()

    def test_a_service_without_the_arena(self) -> None:
        (alone,) = harness.run(SERVICE, PYTHONPATH=PACKAGE).check().lines("end")
        end, report = self.run_service()
        self.assertEqual(end, alone)
        self.assertEqual(report["steps"]["count"], 20, report["steps"])
        self.assert_kept_line(report)

    def test_steps_that_are_told_with_the_arena(self) -> None:
        """In most of them it asks for nothing, and where it grows says nothing of who kept what."""
        _, report = self.run_service("arena", "told")
        self.assertEqual(report["steps"]["count"], 20, report["steps"])

    def assert_kept_line(self, report: dict[str, Any]) -> None:
        (leak,) = report["devices"][0]["leaks"]
        line = 1 + SERVICE[: SERVICE.index("y = onnxruntime.OrtValue")].count("\n")
        self.assertEqual(leak["common_frame"]["line"], line)

    def test_what_the_arena_is_refused_is_one_event(self) -> None:
        """It asks for nine tenths of it, again and again; between the two it asks for nothing."""
        end, report = self.run_service("arena", "large", MEMSHIM_LIMIT="1500MiB")
        self.assertEqual(len(end["said"]), 2)
        self.assertIn("Failed to allocate memory", end["said"][0])
        self.assertLessEqual(len(report["oom_events"]), 2, report["oom_events"])


@needs_onnxruntime
class Scripts(Ordinary):
    def test_a_service_without_the_arena(self) -> None:
        self.check_script(
            Program(SERVICE, ("even",), settings={"PYTHONPATH": PACKAGE}),
            steps=20,
            line="y = onnxruntime.OrtValue",
            each=2 * MIB,
            refused="CUDAExternalAllocator::Alloc",
        )


if __name__ == "__main__":
    unittest.main()
