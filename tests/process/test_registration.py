# SPDX-License-Identifier: Apache-2.0
"""Memory that libraries register stays where it is; what they ask first is answered as the driver
does. registration_job makes each one's calls, inside of a block."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, program, run

LIBRARIES = ("ucx", "nixl", "gdrcopy", "peermem", "nvshmem", "mooncake")
OUT_OF_MEMORY = "more,2"


class Registration(ProcessTest):
    def calls(self, shim: bool, *arguments: str, **settings: Any) -> list[str]:
        return (
            run(
                [program("registration_job"), *arguments],
                shim=shim,
                MEMSHIM_OUTPUT=self.output,
                SIMGPU_CONTEXT=64 * MIB,
                **settings,
            )
            .check()
            .stdout.splitlines()
        )

    def test_answers_are_the_drivers(self) -> None:
        for library in LIBRARIES:
            with self.subTest(library):
                plain = self.calls(False, library)
                self.assertEqual(self.calls(True, library), plain)
                self.assertIn("contents,0", plain)

    def test_what_was_registered_is_not_moved(self) -> None:
        short = {"MEMSHIM_LIMIT": "256MiB", "MEMSHIM_SPILL": "auto"}
        self.assertEqual(self.calls(True, "none", **short), ["more,0", "contents,0"])
        for library in LIBRARIES:
            with self.subTest(library):
                said = self.calls(True, library, **short)
                self.assertEqual(said[-2:], [OUT_OF_MEMORY, "contents,0"], said)


if __name__ == "__main__":
    unittest.main()
