# SPDX-License-Identifier: Apache-2.0
"""PyTorch's expandable segments under memshim: handles of its own, one consistent story."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, only_report, program, run

CONTEXT = 64 * MIB


class Pages(ProcessTest):
    """Each scenario of proxy_job checks itself, against what the simulated GPU counts."""

    def hold(self, scenario: str, **settings: Any) -> str:
        result = run(
            [program("proxy_job"), scenario],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "MEMSHIM_LIMIT": "8GiB",
                "MEMSHIM_SPILL": "off",  # what is live would go before holes are all there is
                "SIMGPU_CONTEXT": CONTEXT,
                **settings,
            },
        ).check()
        self.assertEqual(result.stdout, f"{scenario} holds\n")
        return result.stderr

    def test_one_consistent_story(self) -> None:
        self.hold("story")

    def test_the_same_story_of_split_pages(self) -> None:
        self.hold("split")
        device = only_report(self.output)["devices"][0]
        self.assertLessEqual(device["peak_charged_bytes"], 8192 * MIB)

    def test_births_in_holes_that_were_taken(self) -> None:
        self.assertNotIn("host memory", self.hold("reborn"))

    def test_births_that_only_host_memory_can_back(self) -> None:
        self.assertIn("they lie in host memory, and work on them is slow", self.hold("slow"))

    def test_what_strangers_were_shown_stays(self) -> None:
        self.hold("pinned")

    def test_what_is_called_free_can_be_had(self) -> None:
        self.hold("promised")

    def test_orders_of_unmap_and_release(self) -> None:
        self.hold("orders")

    def test_errors_are_the_drivers(self) -> None:
        self.hold("errors")

    def test_kinds_that_the_driver_refuses(self) -> None:
        self.hold("kinds")

    def test_a_chunk_of_the_kind_that_is_not_taken_back(self) -> None:
        self.hold("kept_kind", SIMGPU_FAIL="cuMemRelease@1=CUDA_ERROR_UNKNOWN")

    def test_out_of_memory_and_again(self) -> None:
        self.assertIn("asked for 860.0 MiB", self.hold("refused", MEMSHIM_LOG="info"))

    def test_a_sum_that_differs(self) -> None:
        self.assertIn("memshim takes no more memory out of its segments", self.hold("mismatch"))

    def test_peers_over_holes(self) -> None:
        self.hold("peers", SIMGPU_DEVICES=2)

    def test_copies_from_host_memory_to_another_device(self) -> None:
        stderr = self.hold("slow_across", SIMGPU_DEVICES=2)
        self.assertIn("they lie in host memory", stderr)

    def test_peers_at_work(self) -> None:
        self.hold("working_peers", SIMGPU_DEVICES=2)

    def test_every_driver_call_failing(self) -> None:
        self.hold("injected")

    def test_every_driver_call_failing_while_memory_is_short(self) -> None:
        self.hold("injected", MEMSHIM_LIMIT="300MiB")

    def test_fork(self) -> None:
        stderr = self.hold("forked", MEMSHIM_LOG="info")
        self.assertEqual(stderr.count("memshim: version"), 1, stderr)
        self.assertEqual(stderr.count("report.txt"), 1, stderr)

    def test_reset_of_the_device(self) -> None:
        self.hold("reset", MEMSHIM_WAIT_MS=0)
        refusal = only_report(self.output)["oom_events"][0]["sentence"]
        self.assertIn("910.0 MiB were freed, but queued work may still use them", refusal)

    def test_reset_of_the_device_while_it_spills(self) -> None:
        # What was freed is partly on the host: it serves only together with the budget.
        self.hold("reset", MEMSHIM_WAIT_MS=0, MEMSHIM_SPILL="auto")
        device = only_report(self.output)["devices"][0]
        self.assertGreater(device["spill"]["spilled_bytes"], 0)

    def test_pool_off(self) -> None:
        self.hold("forwarded", MEMSHIM_POOL="off", MEMSHIM_LIMIT="1GiB")

    def test_torch_off(self) -> None:
        self.hold("forwarded", MEMSHIM_TORCH="off", MEMSHIM_LIMIT="1GiB")


if __name__ == "__main__":
    unittest.main()
