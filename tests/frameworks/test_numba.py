# SPDX-License-Identifier: Apache-2.0
"""Numba, cuda.core and cuda.bindings: each block they ask the driver for is seen at its line."""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

from ordinary import Ordinary, Program  # noqa: E402

MIB = 1 << 20

# Numba keeps no figure. The arrays that are bound anew are freed at once, without its queue of
# ten; while a new one is made the old one is there.
NUMBA = """\
import json, os
os.environ["NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT"] = "0"
import numpy
from numba import cuda

def main():
    kept = []
    for _ in range(12):
        x = cuda.to_device(numpy.zeros(1 << 20, numpy.float32))
        y = cuda.device_array(1 << 20, numpy.float64)
        kept.append(cuda.device_array(1 << 20, numpy.float64))  # 8 MiB
    peak = x.nbytes + y.nbytes + sum(array.nbytes for array in kept)
    print(json.dumps({"event": "end", "peak_bytes": peak, "kept": len(kept)}))

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
    peak = device.memory_resource.attributes.used_mem_high
    print(json.dumps({"event": "end", "peak_bytes": peak, "kept": len(kept)}))

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
    # The driver counts no bytes of these.
    print(json.dumps({"event": "end", "peak_bytes": 4 + 8 * len(kept) << 20, "kept": len(kept)}))

main()
"""


def has(name: str) -> bool:
    """In this Python."""
    inside = importlib.util.find_spec(name.split(".")[0])
    return inside is not None and importlib.util.find_spec(name) is not None


class Bindings(Ordinary):
    def check(self, source: str) -> None:
        """Twelve steps, each of which keeps 8 MiB at the line that says so."""
        self.check_script(
            Program(source),
            steps=12,
            line="kept.append",
            each=8 * MIB,
            refused="CUDA_ERROR_OUT_OF_MEMORY",
        )

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
