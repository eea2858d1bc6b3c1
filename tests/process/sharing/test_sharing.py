# SPDX-License-Identifier: Apache-2.0
"""Device memory between two processes: cuIpcGetMemHandle and what follows from it."""

from __future__ import annotations

import os
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, MIB, ProcessTest, program, run

FOLDER = Path("/dev/shm")
NOT_ALLOWED = 77


def left_behind() -> set[Path]:
    """Names that nobody listens at. Other programs are at work here, too: their names may come and
    go meanwhile."""
    names = list(FOLDER.glob("memshim-socket-*"))
    listening = Path("/proc/net/unix").read_text()
    return {path for path in names if str(path) not in listening and path.exists()}


class Pair(ProcessTest):
    """Each scenario of a program checks itself, on both sides."""

    job = "ipc_job"

    def hold(self, scenario: str, shim: bool = True, **settings: Any) -> None:
        # "gone" is ended by its own other half, which says that it holds.
        result = run(
            [program(self.job), scenario],
            shim=shim,
            **{"MEMSHIM_OUTPUT": self.output, "SIMGPU_CONTEXT": 64 * MIB, **settings},
        )
        if result.status == NOT_ALLOWED:
            self.skipTest("this process may not leave its network namespace")
        result.check(-9 if scenario == "gone" else 0)
        self.assertEqual(result.stdout, f"{scenario} holds\n", result.stderr)


class Shared(Pair):
    """Blocks of the pool."""

    def test_the_driver_itself(self) -> None:
        self.hold("plain", shim=False)

    def test_contents_on_both_sides(self) -> None:
        self.hold("plain")

    def test_without_the_pool(self) -> None:
        self.hold("plain", MEMSHIM_POOL="off")

    def test_no_network_in_common(self) -> None:
        before = left_behind()
        self.hold("apart")
        self.assertEqual(left_behind() - before, set())

    def test_names_of_the_killed_go(self) -> None:
        before = left_behind()
        self.hold("gone")
        (name,) = left_behind() - before
        clean: list[str | Path] = [CLI, "clean", "--keep", "30d", self.output]
        try:
            run(clean).check()
            self.assertTrue(name.exists(), "its process might be about to listen")
            os.utime(name, (1, 1))
            said = run(clean).check().stdout
            self.assertIn("of killed processes that shared memory removed", said)
            self.assertFalse(name.exists())
        finally:
            name.unlink(missing_ok=True)

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

    def test_sockets_that_the_program_closed(self) -> None:
        self.hold("closed")

    def test_opened_while_a_close_waits_for_work(self) -> None:
        self.hold("busy")

    def test_no_thread_before_the_first_export(self) -> None:
        self.hold("quiet")


class Pages(Pair):
    """Tensors in PyTorch's expandable segments, which memshim switched on."""

    job = "ipc_page_job"

    def test_contents_on_both_sides(self) -> None:
        self.hold("plain")

    def test_the_run_grows(self) -> None:
        self.hold("grown")

    def test_the_run_shrinks(self) -> None:
        self.hold("shrunk", MEMSHIM_LIMIT="512MiB")

    def test_unmapped_while_open(self) -> None:
        self.hold("kept", MEMSHIM_LIMIT="512MiB")

    def test_each_page_of_many_has_a_name(self) -> None:
        self.hold("long", IPC_OPENED=4)

    def test_while_pages_come_and_go(self) -> None:
        self.hold("changing")

    def test_while_both_spill(self) -> None:
        self.hold("moving", MEMSHIM_LIMIT="224MiB", MEMSHIM_SPILL="auto")

    def test_where_taking_descriptors_is_barred(self) -> None:
        """As in containers, and for all but ancestors under Yama."""
        self.hold("lent")

    def test_the_user_switched_them_on(self) -> None:
        self.hold("chosen", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")


if __name__ == "__main__":
    unittest.main()
