# SPDX-License-Identifier: Apache-2.0
"""What memory on the host must not take from a program: access, addresses, children, its end."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, PROGRAMS, ProcessTest, Result, only_report, program, run

SHIM = PROGRAMS / "libgate_memshim.so"
CAP_BYTES = 136 * MIB
END_STATUS = 7  # spill_corners.c


class SpillCorners(ProcessTest):
    def case(self, name: str, job: str = "spill_corners", **settings: Any) -> Result:
        """40 blocks of 4 MiB, 128 MiB for them."""
        settings = {"MEMSHIM_LIMIT": CAP_BYTES, **settings}
        return run(
            [program(job), name],
            LD_PRELOAD=SHIM,
            MEMSHIM_OUTPUT=self.output,
            MEMSHIM_SPILL="auto",
            MEMSHIM_SPILL_LIMIT="256MiB",
            SIMGPU_MEMORY="512MiB",
            SIMGPU_CONTEXT="8MiB",
            **settings,
        )

    def test_ahead_of_need(self) -> None:
        self.case("ahead", MEMSHIM_THRESHOLDS="0.4,0.5,0.6").check()

    def test_ahead_of_need_beside_another_process(self) -> None:
        """What the device has free counts like what the cap has free."""
        result = self.case(
            "ahead",
            MEMSHIM_THRESHOLDS="0.4,0.5,0.6",
            MEMSHIM_LIMIT=512 * MIB,
            SIMGPU_OTHER=f"cuInit@1={512 * MIB - CAP_BYTES}",
        ).check()
        self.assertIn(": emergency, ", result.stderr)
        self.assertIn("other processes leave of the device", result.stderr)

    def test_peers_reach_what_lies_on_the_host(self) -> None:
        self.case("peers", SIMGPU_DEVICES=2).check()

    def test_graphs_of_before_it_moved(self) -> None:
        self.case("graphs").check()

    def test_children_while_memory_moves(self) -> None:
        self.case("children", SIMGPU_DELAY_US="0-20").check(END_STATUS)
        device = only_report(self.output)["devices"][0]
        self.assertGreater(device["spill"]["spills"], 0)
        self.assertLessEqual(device["peak_charged_bytes"], CAP_BYTES)

    def test_an_end_while_memory_moves(self) -> None:
        for _ in range(3):
            self.case("the_end", SIMGPU_DELAY_US="0-20").check(END_STATUS)

    def test_a_thread_cancelled_while_memory_moves(self) -> None:
        self.case("cancelled", SIMGPU_DELAY_US="1000-2000").check()
        self.assertGreater(only_report(self.output)["devices"][0]["spill"]["spills"], 0)

    def test_what_is_shown_is_what_stands_there(self) -> None:
        for name in ("each", "refused", "handle"):
            with self.subTest(name):
                self.case(name, "spill_identity").check()


if __name__ == "__main__":
    unittest.main()
