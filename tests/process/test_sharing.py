# SPDX-License-Identifier: Apache-2.0
"""Device memory between two processes: cuIpcGetMemHandle and what follows from it."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, program, run


class Shared(ProcessTest):
    """Each scenario of ipc_job checks itself, on both sides."""

    def hold(self, scenario: str, shim: bool = True, **settings: Any) -> None:
        # "gone" is ended by its own other half, which says that it holds.
        result = run(
            [program("ipc_job"), scenario],
            shim=shim,
            **{"MEMSHIM_OUTPUT": self.output, "SIMGPU_CONTEXT": 64 * MIB, **settings},
        ).check(-9 if scenario == "gone" else 0)
        self.assertEqual(result.stdout, f"{scenario} holds\n", result.stderr)

    def test_the_driver_itself(self) -> None:
        self.hold("plain", shim=False)

    def test_contents_on_both_sides(self) -> None:
        self.hold("plain")

    def test_without_the_pool(self) -> None:
        self.hold("plain", MEMSHIM_POOL="off")

    def test_freed_while_open(self) -> None:
        self.hold("freed", MEMSHIM_LIMIT="256MiB")

    def test_opener_killed(self) -> None:
        self.hold("killed")

    def test_owner_stopped_and_killed(self) -> None:
        self.hold("gone")

    def test_more_chunks_than_files(self) -> None:
        self.hold("many", MEMSHIM_LIMIT="1100MiB")

    def test_while_both_spill(self) -> None:
        self.hold("moving", MEMSHIM_LIMIT="192MiB", MEMSHIM_SPILL="auto")

    def test_no_thread_before_the_first_export(self) -> None:
        self.hold("quiet")


if __name__ == "__main__":
    unittest.main()
