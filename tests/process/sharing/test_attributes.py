# SPDX-License-Identifier: Apache-2.0
"""Memory of every road answers questions about itself as the driver's own does.

attributes_job asks, without memshim and with it; attributes.py has what differs, with its reason.
What the simulated GPU answers without it is what a card did.
"""

from __future__ import annotations

import unittest
from typing import Any

import attributes
from machine import MIB, ProcessTest, only_report, program, run


class Attributes(ProcessTest):
    def ask(self, shim: bool, *about: str, **settings: Any) -> attributes.Answers:
        result = run(
            [program("attributes_job"), *about],
            shim=shim,
            MEMSHIM_OUTPUT=self.output,
            SIMGPU_CONTEXT=64 * MIB,
            SIMGPU_MEMORY="2GiB",
            **settings,
        ).check()
        self.assertTrue(all(line.count(",") == 2 for line in result.stdout.splitlines()))
        return attributes.read(result.stdout)

    def same(self, device: dict[str, int], *about: str, **settings: Any) -> None:
        alone = self.ask(False, *about, **device)
        found = self.ask(True, *about, **device, **settings)
        self.assertEqual(attributes.differences(alone, found), [])

    def test_the_simulated_gpu_answers_as_the_card(self) -> None:
        card = attributes.read(attributes.TABLE.read_text())
        found = self.ask(shim=False, **attributes.CARD)
        self.assertEqual(attributes.differences(card, found, with_memshim=False), [])
        asked = {attributes.split(key) for key in card}
        for question, (roads, _) in attributes.DIFFERENCES.items():
            self.assertTrue(asked >= {(road, question) for road in roads}, question)

    def test_all_roads(self) -> None:
        self.same(attributes.CARD)

    def test_a_device_with_less(self) -> None:
        self.same({})

    def test_memory_that_another_process_shares(self) -> None:
        for device in ({}, attributes.CARD):
            with self.subTest(device=device):
                self.same(device, "opened")

    def test_memory_bound_to_textures(self) -> None:
        self.same(attributes.CARD, "textures")

    def test_what_a_chunk_cannot_be(self) -> None:
        """It is made without, and the answers are those of such memory."""
        asked = {"IS_GPU_DIRECT_RDMA_CAPABLE": 1, "IS_HW_DECOMPRESS_CAPABLE": 2}
        for question, number in asked.items():
            fail = f"cuMemCreate@{number}=801"
            found = self.ask(shim=True, **attributes.CARD, SIMGPU_FAIL=fail)
            capable = {
                attributes.split(key)[1]
                for key, answer in found.items()
                if key.startswith("alloc,") and answer == "0 1"
            }
            self.assertEqual(set(asked) - capable, {question})

    def test_without_the_pool(self) -> None:
        expected, found = self.ask(shim=False), self.ask(shim=True, MEMSHIM_POOL="off")
        self.assertEqual(found, expected)

    def test_contents_on_the_host(self) -> None:
        short = {"MEMSHIM_LIMIT": "256MiB", "MEMSHIM_SPILL": "auto", "ATTRIBUTES_WARM_MIB": 190}
        self.same(attributes.CARD, **short)
        self.assertGreater(only_report(self.output)["devices"][0]["spill"]["spilled_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
