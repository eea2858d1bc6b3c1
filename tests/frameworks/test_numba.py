# SPDX-License-Identifier: Apache-2.0
"""Numba, cuda.core and cuda.bindings: each block they ask the driver for is seen at its line."""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness  # noqa: E402

MIB = 1 << 20

NUMBA = """\
import json
import numpy
from numba import cuda

def main():
    kept = []
    for _ in range(12):
        x = cuda.to_device(numpy.zeros(1 << 20, numpy.float32))
        y = cuda.device_array(1 << 20, numpy.float64)
        kept.append(cuda.device_array(1 << 20, numpy.float64))  # 8 MiB
    print(json.dumps({"event": "end"}))

main()
"""

CORE = """\
import json
from cuda.core import Device

def main():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    kept = []
    for _ in range(12):
        passing = device.allocate(4 << 20, stream=stream)
        kept.append(device.allocate(8 << 20, stream=stream))  # 8 MiB
        passing.close()
    print(json.dumps({"event": "end"}))

main()
"""

BINDINGS = """\
import json
from cuda.bindings import driver

def must(result):
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) > 1 else None

def main():
    must(driver.cuInit(0))
    context = must(driver.cuDevicePrimaryCtxRetain(must(driver.cuDeviceGet(0))))
    must(driver.cuCtxSetCurrent(context))
    kept = []
    for _ in range(12):
        passing = must(driver.cuMemAlloc(4 << 20))
        kept.append(must(driver.cuMemAlloc(8 << 20)))  # 8 MiB
        must(driver.cuMemFree(passing))
    print(json.dumps({"event": "end"}))

main()
"""


def has(name: str) -> bool:
    """In this Python."""
    inside = importlib.util.find_spec(name.split(".")[0])
    return inside is not None and importlib.util.find_spec(name) is not None


class Bindings(unittest.TestCase):
    def check(self, source: str) -> None:
        """Twelve steps, each of which keeps 8 MiB at the line that says so."""
        job = harness.run_memshim(source)
        job.result.check().lines("end")
        report = job.only()
        self.assertEqual(report["steps"]["count"], 12, report["steps"])
        (leak,) = report["devices"][0]["leaks"]
        line = 1 + source[: source.index("kept.append")].count("\n")
        self.assertEqual((leak["common_frame"]["line"], leak["by"]), (line, "step"))
        self.assertEqual(leak["bytes_per_round"], 8 * MIB)
        self.assertGreaterEqual(report["devices"][0]["peak_live_bytes"], 12 * 8 * MIB)

    @unittest.skipUnless(has("numba_cuda"), "it is not installed in this Python")
    def test_numba(self) -> None:
        self.check(NUMBA)

    @unittest.skipUnless(has("cuda.core"), "it is not installed in this Python")
    def test_cuda_core(self) -> None:
        self.check(CORE)

    @unittest.skipUnless(has("cuda.bindings"), "it is not installed in this Python")
    def test_cuda_bindings(self) -> None:
        self.check(BINDINGS)


if __name__ == "__main__":
    unittest.main()
