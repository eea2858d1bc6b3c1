# SPDX-License-Identifier: Apache-2.0
"""What is waited for before memory moves or is handed out again: work of other devices, of streams
that were destroyed, and work that takes long."""

from __future__ import annotations

import unittest
from typing import Any

from machine import PROGRAMS, ProcessTest, Result, program, run

SHIM = PROGRAMS / "libgate_memshim.so"
DRIVERS = ("old", "new")  # without and with cuCtxRecordEvent


class Order(ProcessTest):
    def case(self, *arguments: str, job: str = "order_job", **settings: Any) -> Result:
        return run(
            [program(job), *arguments],
            LD_PRELOAD=SHIM,
            MEMSHIM_OUTPUT=self.output,
            SIMGPU_MEMORY="512MiB",
            SIMGPU_CONTEXT="8MiB",
            **settings,
        )

    def test_a_peer_copy_without_peer_access(self) -> None:
        for name in ("peer_copy_halts", "peer_copy_reuse"):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver, SIMGPU_DEVICES=2).check()

    def test_a_stream_of_a_device_without_peer_access(self) -> None:
        for name in ("stream_set_halts", "stream_set_reuse"):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver, SIMGPU_DEVICES=2, SIMGPU_PEERS=0).check()

    def test_work_of_a_destroyed_stream(self) -> None:
        for name in ("destroyed_halts", "destroyed_reuse"):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver).check()

    def test_work_of_a_stream_that_was_destroyed_while_it_captured(self) -> None:
        for name in (
            "capturing_destroyed_halts",
            "capturing_destroyed_reuse",
            "capturing_fork_destroyed_halts",
            "capturing_fork_destroyed_reuse",
        ):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver).check()

    def test_work_of_a_thread_that_ended(self) -> None:
        for name in ("ended_thread_halts", "ended_thread_reuse", "ended_thread_freed"):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver).check()

    def test_work_that_takes_longer_than_a_standstill_may(self) -> None:
        self.case(
            "long_work", MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="256MiB", MEMSHIM_LIMIT="48MiB"
        ).check()

    def test_work_that_does_not_end(self) -> None:
        self.case(
            "endless_work",
            MEMSHIM_SPILL="auto",
            MEMSHIM_SPILL_LIMIT="256MiB",
            MEMSHIM_LIMIT="48MiB",
            MEMSHIM_WAIT_MS=0,
        ).check()

    def test_handles_that_are_destroyed_meanwhile(self) -> None:
        for name in ("going_streams", "going_contexts", "going_retains"):
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(
                        name, driver, MEMSHIM_LIMIT="256MiB", SIMGPU_DELAY_US="0-2000"
                    ).check()

    def test_refusals_beside_contexts_that_come_and_go(self) -> None:
        """Room that is set aside for one in the making is not free."""
        said = self.case("refused_beside_contexts", MEMSHIM_LIMIT="64MiB", MEMSHIM_LOG="info")
        self.assertNotIn("not_device", said.check().stderr)

    def test_the_current_memory_pool_is_destroyed_meanwhile(self) -> None:
        self.case("going_currents", MEMSHIM_LIMIT="256MiB").check()

    def test_contexts_of_a_copy_are_destroyed_meanwhile(self) -> None:
        self.case("going_routes", SIMGPU_DEVICES=2, SIMGPU_DESTROY_US="200").check()

    def test_two_devices_are_given_access_at_once(self) -> None:
        self.case("peers_at_once", SIMGPU_DEVICES=3).check()

    def test_a_copy_between_devices_while_a_stream_captures(self) -> None:
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                self.case("routed_beside_capture", driver, SIMGPU_DEVICES=2).check()

    def test_copies_on_a_stream_of_another_device_while_memory_moves(self) -> None:
        self.case(
            "detours_beside_moves",
            SIMGPU_DEVICES=2,
            SIMGPU_PEERS=0,
            MEMSHIM_SPILL="auto",
            MEMSHIM_SPILL_LIMIT="256MiB",
            MEMSHIM_LIMIT="48MiB",
            MEMSHIM_WAIT_MS=1000,
        ).check()

    def test_threads_that_capture_at_once(self) -> None:
        self.case("captures_at_once").check()

    def test_threads_that_launch_graphs_at_once(self) -> None:
        for settings in ({}, self.without_nvml()):
            self.case(
                "graphs_at_once", SIMGPU_DELAY_US="0-100", MEMSHIM_SPILL="off", **settings
            ).check()

    def test_streams_without_host_memory(self) -> None:
        """The list of a context's streams cannot be made for once, where each has its event."""
        self.case("many_streams", "old").check()

    def test_streams_of_contexts_that_come_and_go(self) -> None:
        self.case("streams_of_gone_contexts").check()

    def test_a_context_that_cannot_be_made_current_for_once(self) -> None:
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                self.case("push_is_refused_once", driver, SIMGPU_DEVICES=2).check()

    @unittest.skipUnless(program("green_job").exists(), "headers older than CUDA 12.5")
    def test_green_contexts(self) -> None:
        listed = run([program("green_job"), "list"], LD_PRELOAD=SHIM).check()
        for name in listed.stdout.split():
            for driver in DRIVERS:
                with self.subTest(name, driver=driver):
                    self.case(name, driver, job="green_job", MEMSHIM_SPILL="off").check()


if __name__ == "__main__":
    unittest.main()
