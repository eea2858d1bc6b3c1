# SPDX-License-Identifier: Apache-2.0
"""Views: chunks mapped at two addresses, with contents on and random delays."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, program

WORLD: dict[str, Any] = {"SIMGPU_MEMORY": "1GiB", "SIMGPU_CONTEXT": 0, "MEMSHIM_SPILL": "off"}


class Views(ProcessTest):
    def job(self, *arguments: str, **settings: Any) -> str:
        result = self.run_under_shim(
            program("views_job"), *arguments, **{**WORLD, **settings}
        ).check()
        return result.stdout.strip()

    def test_a_view_serves_what_nothing_else_does(self) -> None:
        self.assertEqual(self.job("row", MEMSHIM_LIMIT=12 * MIB, MEMSHIM_VIEWS="on"), "served")

    def test_off_unless_asked_for(self) -> None:
        self.assertEqual(self.job("row", MEMSHIM_LIMIT=12 * MIB), "refused")

    def test_bytes_change_hands_when_their_last_use_is_over(self) -> None:
        told = self.job(
            "handover", MEMSHIM_LIMIT=12 * MIB, MEMSHIM_VIEWS="on", SIMGPU_DELAY_US=50000
        )
        self.assertEqual(told, "kept")

    def test_every_byte_is_kept(self) -> None:
        for seed in ("1", "2"):
            with self.subTest(seed=seed):
                told = self.job(
                    "random",
                    seed,
                    "200",
                    MEMSHIM_LIMIT=64 * MIB,
                    MEMSHIM_VIEWS="on",
                    SIMGPU_DELAY_US=1000,
                )
                self.assertIn("every byte as it was written", told)


if __name__ == "__main__":
    unittest.main()
