# SPDX-License-Identifier: Apache-2.0
"""Memory that libraries register stays where it is; what they ask first is answered as the driver
does. registration_job makes each one's calls, inside of a block; sync_memops_job looks at what the
attribute promises that they set."""

from __future__ import annotations

import itertools
import unittest
from typing import Any

import attributes
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
        for library, device in itertools.product(LIBRARIES, ({}, attributes.CARD)):
            with self.subTest(library, device=device):
                plain = self.calls(False, library, **device)
                self.assertEqual(self.calls(True, library, **device), plain)
                self.assertIn("contents,0", plain)

    def test_what_was_registered_is_not_moved(self) -> None:
        short = {"MEMSHIM_LIMIT": "256MiB", "MEMSHIM_SPILL": "auto"}
        self.assertEqual(self.calls(True, "none", **short), ["more,0", "contents,0"])
        for library in LIBRARIES:
            with self.subTest(library):
                said = self.calls(True, library, **short)
                self.assertEqual(said[-2:], [OUT_OF_MEMORY, "contents,0"], said)

    def test_synchronous_operations(self) -> None:
        """With the attribute they are done when they return; without, the driver only queues."""
        plain = run([program("sync_memops_job")], shim=False).check().stdout
        self.assertEqual(self.run_under_shim(program("sync_memops_job")).check().stdout, plain)
        said = [line.split(",") for line in plain.splitlines()]
        self.assertGreater(len(said), 100)
        for block, call, state in said:
            waits = block in ("marked", "stream-ordered") and "names its stream" not in call
            self.assertEqual(state, "done" if waits else "queued", f"{block}: {call}")


if __name__ == "__main__":
    unittest.main()
