# SPDX-License-Identifier: Apache-2.0
"""What stands behind the hooks: charges, contexts, streams, pools, peers, captures, failures."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, only_report, program, run

CONTEXT = 64 * MIB


class Scenario(ProcessTest):
    """Each scenario of serve_job checks itself, against what the simulated GPU counts."""

    def hold(self, scenario: str, **settings: Any) -> str:
        result = run(
            [program("serve_job"), scenario],
            shim=True,
            **{"MEMSHIM_OUTPUT": self.output, "SIMGPU_CONTEXT": CONTEXT, **settings},
        ).check()
        self.assertEqual(result.stdout, f"{scenario} holds\n")
        return result.stderr


class Charges(Scenario):
    def test_chunks_of_the_application(self) -> None:
        self.hold("vmm")
        device = only_report(self.output)["devices"][0]
        self.assertEqual(device["peak_charged_bytes"], CONTEXT + 16 * MIB)

    def test_chunks_of_the_application_at_the_cap(self) -> None:
        stderr = self.hold("vmm_cap", MEMSHIM_LIMIT="256MiB", MEMSHIM_SPILL="off")
        self.assertIn("OUT OF MEMORY: asked for 150.0 MiB", stderr)

    def test_what_is_told_to_be_free(self) -> None:
        self.hold("told_free", MEMSHIM_LIMIT="256MiB", MEMSHIM_SPILL="off")

    def test_what_is_loaded_at_the_first_question(self) -> None:
        self.hold("loaded_late", SIMGPU_MODULE="16MiB", SIMGPU_MEMORY="512MiB")

    def test_memory_of_graphs(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.hold("graph_memory", MEMSHIM_POOL=pool, MEMSHIM_LIMIT="1GiB")

    def test_race_for_the_cap(self) -> None:
        self.hold("race", MEMSHIM_LIMIT="256MiB")

    def test_race_for_the_cap_without_the_pool(self) -> None:
        self.hold("race", MEMSHIM_LIMIT="256MiB", MEMSHIM_POOL="off")

    def test_every_driver_call_failing(self) -> None:
        self.hold("injected")


class Lives(Scenario):
    def test_reset(self) -> None:
        self.hold("reset")

    def test_destroyed_context(self) -> None:
        self.hold("destroyed_context")

    def test_a_context_for_every_request(self) -> None:
        self.hold("many_contexts")

    def test_contexts_at_once(self) -> None:
        self.hold("contexts_at_once")

    def test_a_primary_context_for_many_threads_at_once(self) -> None:
        self.hold("primary_at_once", MEMSHIM_LIMIT="160MiB", SIMGPU_CONTEXT_US=20000)

    def test_reused_stream_handle(self) -> None:
        self.hold("reused_handle")

    def test_capture(self) -> None:
        self.hold("capture")


class Pools(Scenario):
    def test_memory_pools(self) -> None:
        self.hold("pools")

    def test_what_the_drivers_pool_gave_back(self) -> None:
        self.hold("given_back", MEMSHIM_POOL="off")

    def test_a_memory_pool_that_goes_before_its_blocks(self) -> None:
        self.hold("pool_destroyed_first", MEMSHIM_POOL="off", MEMSHIM_LIMIT="1GiB")

    def test_a_memory_pool_for_every_step(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.hold("many_pools", MEMSHIM_POOL=pool)

    def test_memory_pools_at_once(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.hold("pools_at_once", MEMSHIM_POOL=pool)

    def test_reuse_flags(self) -> None:
        self.hold("reuse_flags", MEMSHIM_LIMIT="256MiB", MEMSHIM_WAIT_MS=0)


class Identity(Scenario):
    def test_addresses(self) -> None:
        self.hold("identity")

    def test_blocks_are_no_mappings_of_the_program(self) -> None:
        self.hold("not_mapped")

    def test_addresses_of_what_was_spilled(self) -> None:
        self.hold("spilled", MEMSHIM_LIMIT="192MiB", MEMSHIM_SPILL="auto")

    def test_arena(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.hold("arena", MEMSHIM_POOL=pool, MEMSHIM_OUTPUT=self.folder / pool)
                device = only_report(self.folder / pool)["devices"][0]
                self.assertEqual(device["peak_live_bytes"], 19 * MIB)

    def test_peers(self) -> None:
        self.hold("peers", SIMGPU_DEVICES=2)

    def test_peers_by_other_roads(self) -> None:
        for scenario in ("peers_stream", "peers_captured", "peers_refused"):
            for pool in ("on", "off"):
                with self.subTest(scenario, pool=pool):
                    self.hold(scenario, SIMGPU_DEVICES=2, MEMSHIM_POOL=pool)

    def test_a_stream_of_a_device_without_peer_access(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                self.hold("peers_stream", SIMGPU_DEVICES=2, SIMGPU_PEERS=0, MEMSHIM_POOL=pool)

    def test_gpudirect_flag(self) -> None:
        # The first call of each is of the test whether chunks can have the flag.
        for fail in ("", "cuMemCreate@1=2", "cuMemMap@1=2", "cuMemSetAccess@1=2"):
            with self.subTest(fail=fail):
                self.hold("gpudirect", SIMGPU_RDMA=1, SIMGPU_FAIL=fail)
        for fail in ("cuMemCreate@1=801", "cuMemSetAccess@1=999"):
            with self.subTest(fail=fail):
                self.hold("no_gpudirect", SIMGPU_RDMA=1, SIMGPU_FAIL=fail)


if __name__ == "__main__":
    unittest.main()
