# SPDX-License-Identifier: Apache-2.0
"""What is left to the driver as plain memory: NCCL's own, and what MEMSHIM_FORWARD names.

NCCL is known by what its code is, not by the name of a file.
"""

from __future__ import annotations

import sys
import unittest
from typing import Any

from machine import MIB, ProcessTest, only_report, program, run

OWN = 8 * MIB + 16 * MIB
COMM = 4 * MIB

SCRIPT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

def allocate(mib):
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20)) == 0

allocate(8)
allocate(4)
"""


class Forwarded(ProcessTest):
    def rows(self, *command: Any, **settings: Any) -> dict[str, int]:
        run(
            command,
            shim=True,
            **{"MEMSHIM_OUTPUT": self.output, "SIMGPU_CONTEXT": 64 * MIB, **settings},
        ).check()
        peak = only_report(self.output)["devices"][0]["peak"]
        rows = {row["name"]: row["bytes"] for row in peak["ledger"]}
        return {
            "nccl": rows.get("nccl", 0),
            "forwarded": rows.get("forwarded", 0),
            "pool": peak["reserved_bytes"],
        }

    def test_nccl_by_what_it_exports(self) -> None:
        for kind in ("driver", "runtime"):
            with self.subTest(kind):
                self.setUp()
                rows = self.rows(program(f"forward_{kind}_job"))
                self.assertEqual(rows, {"nccl": COMM, "forwarded": 0, "pool": OWN})

    def test_nccl_linked_into_a_program(self) -> None:
        rows = self.rows(program("forward_static_job"))
        self.assertEqual(rows, {"nccl": COMM, "forwarded": 0, "pool": OWN})

    def test_no_nccl_under_its_name(self) -> None:
        rows = self.rows(program("forward_misnamed_job"))
        self.assertEqual(rows, {"nccl": 0, "forwarded": 0, "pool": OWN + COMM})

    def test_a_library_that_was_named(self) -> None:
        rows = self.rows(program("forward_misnamed_job"), MEMSHIM_FORWARD="libother.so,libnccl")
        self.assertEqual(rows, {"nccl": 0, "forwarded": COMM, "pool": OWN})

    def test_a_line_that_was_named(self) -> None:
        script = self.folder / "train.py"
        script.write_text(SCRIPT)
        line = SCRIPT.splitlines().index("allocate(4)") + 1
        rows = self.rows(sys.executable, script, MEMSHIM_FORWARD=f"train.py:{line}")
        self.assertEqual(rows, {"nccl": 0, "forwarded": 4 * MIB, "pool": 8 * MIB})

    def test_what_is_no_list(self) -> None:
        for value in ("a,,b", "train.py:", "a b", ","):
            with self.subTest(value):
                result = run(
                    [program("forward_static_job")],
                    shim=True,
                    MEMSHIM_OUTPUT=self.output,
                    MEMSHIM_FORWARD=value,
                ).check()
                self.assertIn("MEMSHIM_FORWARD", result.stderr)


if __name__ == "__main__":
    unittest.main()
