# SPDX-License-Identifier: Apache-2.0
"""What the device is asked to touch is hot: what goes to the host is what nobody touched."""

from __future__ import annotations

import unittest
from typing import Any

from machine import BUILD, PROGRAMS, ProcessTest, program, run

SHIM = PROGRAMS / "libgate_memshim.so"
COLD = {11, 17}  # heat_job.c
OLDEST = 0


class Heat(ProcessTest):
    def spilled(self, *arguments: str, **settings: Any) -> set[int]:
        """The blocks of heat_job that have bytes on the host; it fills the device."""
        result = run(
            [program("heat_job"), *arguments],
            LD_PRELOAD=SHIM,
            MEMSHIM_OUTPUT=self.output,
            MEMSHIM_SPILL="auto",
            MEMSHIM_THRESHOLDS="0.5,0.998,0.999",
            SIMGPU_MEMORY="256MiB",
            SIMGPU_CONTEXT="28MiB",
            **settings,
        )
        found = {int(number) for number in result.check().stdout.split()}
        self.assertTrue(found, result.describe())
        return found

    def test_all_ways(self) -> None:
        listed = run(
            [program("heat_job"), "list"], LD_LIBRARY_PATH=f"{BUILD}/simgpu:{PROGRAMS}"
        ).check()
        ways = set(listed.stdout.split()) - {"undeclared", "untouched"}
        self.assertGreater(len(ways), 5)
        for way in sorted(ways):
            with self.subTest(way):
                self.assertLessEqual(self.spilled(way), COLD)

    def test_graphs(self) -> None:
        for way in ("parameter", "structure", "mixed"):
            with self.subTest(way):
                self.assertLessEqual(self.spilled(way, "graph"), COLD)

    def test_changed_graphs(self) -> None:
        """What a node is given later takes the place of what it touched before."""
        changes = (
            ("parameter", "kernel"),
            ("parameter", "kernel_v1"),
            ("parameter", "any"),
            ("parameter", "update"),
            ("parameter", "set_after_update"),
            ("parameter", "child"),
            ("mixed", "update"),
            ("mixed", "child"),
            ("mixed", "off"),
            ("mixed", "on"),
            ("copy_within", "copy"),
            ("set", "set"),
        )
        for way, change in changes:
            with self.subTest(way=way, change=change):
                self.assertLessEqual(self.spilled(way, change), COLD)

    def test_what_is_not_known_is_not_read(self) -> None:
        """Then the oldest goes: it is the heat that the tests above see."""
        for way in ("untouched", "undeclared"):
            with self.subTest(way):
                self.assertIn(OLDEST, self.spilled(way))

    def test_driver_that_tells_nothing(self) -> None:
        fail = "cuFuncGetParamInfo@*=CUDA_ERROR_NOT_SUPPORTED"
        self.assertIn(OLDEST, self.spilled("parameter", SIMGPU_FAIL=fail))
        self.assertLessEqual(self.spilled("kernel", SIMGPU_FAIL=fail), COLD)


if __name__ == "__main__":
    unittest.main()
