# SPDX-License-Identifier: Apache-2.0
"""Memory of every road answers questions about itself as the driver's own does.

attributes_job asks, without memshim and with it; what differs is listed here, each with its reason.
What the simulated GPU answers follows cuda.h where that says something. The other answers are
unproven until a card has given them.
"""

from __future__ import annotations

import unittest
from fnmatch import fnmatchcase
from typing import Any

from machine import MIB, ProcessTest, only_report, program, run

Answers = dict[str, str]

# (road, question): why memshim answers otherwise. docs/coverage.md has a line for each.
SERVED = ("alloc", "pitch", "async", "pool", "cold")
DIFFERENCES = {
    "access": "cuda.h names no answer for memory that cuMemMap did not map; ours is mapped",
    "copy beyond its end": "what lies behind a block is mapped: other memory of the same process",
}


class Attributes(ProcessTest):
    def ask(self, shim: bool, **settings: Any) -> Answers:
        result = run(
            [program("attributes_job")],
            shim=shim,
            MEMSHIM_OUTPUT=self.output,
            SIMGPU_CONTEXT=64 * MIB,
            SIMGPU_MEMORY="2GiB",
            **settings,
        ).check()
        rows = [line.split(",") for line in result.stdout.splitlines()]
        self.assertTrue(all(len(row) == 3 for row in rows))
        return {f"{road},{question}": answer for road, question, answer in rows}

    def same(self, **settings: Any) -> None:
        expected, found = self.ask(shim=False), self.ask(shim=True, **settings)
        self.assertEqual(expected.keys(), found.keys())
        differing = {key for key in expected if expected[key] != found[key]}
        known = {
            f"{road},{question}" for road in SERVED for question in DIFFERENCES
        } & expected.keys()
        self.assertEqual(
            [f"{key}: {found[key]}, not {expected[key]}" for key in sorted(differing - known)], []
        )
        self.assertFalse({key for key in differing if fnmatchcase(key, "m*")}, "not ours")

    def test_all_roads(self) -> None:
        self.same()

    def test_without_the_pool(self) -> None:
        expected, found = self.ask(shim=False), self.ask(shim=True, MEMSHIM_POOL="off")
        self.assertEqual(found, expected)

    def test_contents_on_the_host(self) -> None:
        self.same(MEMSHIM_LIMIT="256MiB", MEMSHIM_SPILL="auto", ATTRIBUTES_WARM_MIB=190)
        self.assertGreater(only_report(self.output)["devices"][0]["spill"]["spilled_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
