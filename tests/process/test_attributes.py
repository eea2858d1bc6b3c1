# SPDX-License-Identifier: Apache-2.0
"""Memory of every road answers questions about itself as the driver's own does.

attributes_job asks, without memshim and with it; attributes.py has what differs, with its reason.
What the simulated GPU answers follows cuda.h where that says something. The other answers are
unproven until a card has given them.
"""

from __future__ import annotations

import unittest
from typing import Any

import attributes
from machine import MIB, ProcessTest, only_report, program, run


class Attributes(ProcessTest):
    def ask(self, shim: bool, **settings: Any) -> attributes.Answers:
        result = run(
            [program("attributes_job")],
            shim=shim,
            MEMSHIM_OUTPUT=self.output,
            SIMGPU_CONTEXT=64 * MIB,
            SIMGPU_MEMORY="2GiB",
            **settings,
        ).check()
        self.assertTrue(all(line.count(",") == 2 for line in result.stdout.splitlines()))
        return attributes.read(result.stdout)

    def same(self, **settings: Any) -> None:
        alone, found = self.ask(shim=False), self.ask(shim=True, **settings)
        self.assertTrue(alone.keys() >= attributes.KNOWN)
        self.assertEqual(attributes.differences(alone, found), [])

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
