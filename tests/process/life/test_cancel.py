# SPDX-License-Identifier: Apache-2.0
"""No thread of the program's can be cancelled (pthread_cancel) inside memshim, where it may hold a
lock, or owe something back. cancel_watch.c says where one could be."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from machine import MIB, PROGRAMS, SHIM, ProcessTest, program, run

WATCH = PROGRAMS / "libcancel_watch.so"
GATE = PROGRAMS / "libgate_memshim.so"
SPILLING = {
    "MEMSHIM_LIMIT": 136 * MIB,
    "MEMSHIM_SPILL": "auto",
    "MEMSHIM_SPILL_LIMIT": "256MiB",
    "SIMGPU_DELAY_US": "0-20",
}


class Cancel(ProcessTest):
    def watch(self, *command: str, shim: Path = SHIM, **settings: Any) -> None:
        """The program itself may fail: what it shows is another test's."""
        result = run(
            [program(command[0]), *command[1:]],
            LD_PRELOAD=f"{shim}:{WATCH}",
            MEMSHIM_OUTPUT=self.output,
            **{"SIMGPU_MEMORY": "512MiB", "SIMGPU_CONTEXT": 8 * MIB, **settings},
        )
        self.assertNotIn("may be cancelled", result.describe())
        self.assertNotIn("cannot be preloaded", result.stderr)

    def order(self, *arguments: str, **settings: Any) -> None:
        self.watch("order_job", *arguments, shim=GATE, **settings)

    def test_while_a_context_or_a_stream_is_in_use(self) -> None:
        for name in ("going_contexts", "going_streams", "going_retains"):
            with self.subTest(name):
                self.order(name, "old")

    def test_while_a_destroyed_stream_works(self) -> None:
        self.order("destroyed_reuse", "old", SIMGPU_FAIL="cuStreamWaitEvent@*=CUDA_ERROR_UNKNOWN")

    def test_while_memory_moves(self) -> None:
        self.watch("spill_corners", "the_end", shim=GATE, **SPILLING)

    def test_while_memory_is_refused(self) -> None:
        self.watch("refusal_job")

    def test_while_memory_is_shared(self) -> None:
        self.watch("ipc_job", "plain", SIMGPU_CONTEXT=64 * MIB)

    def test_while_a_group_gives(self) -> None:
        """Of a group of one, and nothing left: all the others are asked."""
        self.watch("refusal_job", MEMSHIM_CAP_OF="run", MEMSHIM_RUN_ID=f"test-{self.folder.name}")

    def test_while_the_devices_are_asked_for_settings(self) -> None:
        self.watch("settings_fork_job")


if __name__ == "__main__":
    unittest.main()
