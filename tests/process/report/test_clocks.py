# SPDX-License-Identifier: Apache-2.0
"""Hosts whose clocks differ share an output folder: times are compared by that one's clock."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import unittest
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    MIB,
    PROGRAMS,
    SHIM,
    ProcessTest,
    process_folders,
    program,
    report_of,
    run,
    start,
)

CLOCK = PROGRAMS / "libclock_ahead.so"
TOO_LITTLE = 80 * MIB


def began(report: dict[str, Any]) -> float:
    return datetime.fromisoformat(report["process"]["start_time"]).timestamp()


@contextlib.contextmanager
def serve(server: str, folder: Path, mounted: Path) -> Iterator[str]:
    """Serves a folder by SFTP and mounts that. Yields why it could not, or nothing."""
    ours, its = socket.socketpair()
    with ours, its:
        serving = subprocess.Popen([server], stdin=its.fileno(), stdout=its.fileno())
        mount = ["sshfs", f":{folder}", str(mounted), "-f", "-o", "passive"]
        mounting = subprocess.Popen(
            mount, stdin=ours.fileno(), stdout=ours.fileno(), stderr=subprocess.PIPE
        )
        try:
            while mounting.poll() is None and not mounted.is_mount():
                time.sleep(0.05)
            assert mounting.stderr is not None
            yield "" if mounting.poll() is None else mounting.stderr.read().decode().strip()
        finally:
            subprocess.run(["umount", "-l", mounted], capture_output=True)
            for process in (mounting, serving):
                process.terminate()
                process.communicate()


class Clocks(ProcessTest):
    """Two hosts are namespaces with names of their own; each rank runs out of memory."""

    def setUp(self) -> None:
        super().setUp()
        tried = run(["unshare", "--uts", "true"])
        if tried.status != 0:
            self.skipTest(f"no namespaces here: {tried.stderr.strip()}")

    def on(self, host: str, rank: int, ahead_s: int, output: Path | None = None) -> None:
        command = 'hostname "$0"; exec env "LD_PRELOAD=$1" "$2"'
        settings: dict[str, Any] = {
            "MEMSHIM_OUTPUT": output or self.output,
            "MEMSHIM_LIMIT": TOO_LITTLE,
            "SIMGPU_CONTEXT": 16 * MIB,
            "MEMSHIM_RUN_ID": "77",
            "RANK": rank,
            "WORLD_SIZE": 2,
            "CLOCK_AHEAD_S": ahead_s,
        }
        done = run(
            ["unshare", "--uts", "sh", "-c", command, host, f"{SHIM}:{CLOCK}", program("trainer")],
            **settings,
        )
        self.assertEqual(done.status, 3, done.describe())

    def report_of_all(self) -> str:
        return run([CLI, "report", self.output / "77"]).check().stdout

    def test_who_died_first_is_asked_of_one_clock(self) -> None:
        self.on("node1", 0, 100)
        self.on("node2", 1, 0)
        text = self.report_of_all()
        self.assertIn("2 processes on 2 hosts", text)
        self.assertIn("rank 0 died first, by the output folder's clock:", text)
        self.assertRegex(text, r"node1's clock was 1 m \d\d s ahead of the output folder's\.")
        self.assertNotIn("node2's clock", text)
        first, second = (report_of(folder) for folder in self.folders())
        self.assertAlmostEqual(first["process"]["clock_ahead_ns"] / 1e9, 100, delta=10)
        self.assertEqual(second["process"]["clock_ahead_ns"], 0)
        # Each process's own report keeps the time that its host showed.
        self.assertGreater(began(first), began(second))

    def test_a_clock_that_is_behind(self) -> None:
        self.on("node1", 0, 0)
        self.on("node2", 1, -3600)
        text = self.report_of_all()
        self.assertIn("rank 0 died first", text)
        self.assertRegex(text, r"node2's clock was .* behind the output folder's\.")

    def test_clocks_that_agree(self) -> None:
        self.on("node1", 0, 0)
        self.on("node2", 1, 0)
        text = self.report_of_all()
        self.assertIn("rank 0 died first, by the hosts' own clocks:", text)
        self.assertNotIn("'s clock was", text)

    def test_over_a_network_file_system(self) -> None:
        """SFTP, whose dates are whole seconds: the server's, and who is killed leaves its trace."""
        server = "/usr/lib/openssh/sftp-server"
        if shutil.which("sshfs") is None or not Path(server).exists():
            self.skipTest("sshfs is not installed")
        mounted = self.folder / "mounted"
        self.output.mkdir()
        mounted.mkdir()
        with serve(server, self.output, mounted) as problem:
            if problem:
                self.skipTest(f"nothing can be mounted here: {problem}")
            self.on("node1", 0, 100, mounted)
            self.on("node2", 1, 0, mounted)
            killed = start(
                [program("trainer"), "--steps", "100000"],
                shim=True,
                MEMSHIM_OUTPUT=mounted,
                MEMSHIM_RUN_ID="killed",
            )
            assert killed.stdout is not None
            self.assertIn("step", killed.stdout.readline())
            killed.kill()
            killed.communicate()
            said = run([CLI, "report", mounted / "killed"]).check().stdout
        self.assertIn("was killed", said)
        text = self.report_of_all()
        self.assertIn("rank 0 died first, by the output folder's clock:", text)
        self.assertRegex(text, r"node1's clock was 1 m \d\d s ahead of the output folder's\.")

    def test_one_timeline(self) -> None:
        self.on("node1", 0, 100)
        self.on("node2", 1, 0)
        made = self.folder / "timeline.json"
        run([CLI, "report", "--format", "timeline", "-o", made, self.output / "77"]).check()
        first: dict[int, float] = {}
        for event in json.loads(made.read_text())["traceEvents"]:
            if "ts" in event:
                at = float(event["ts"]) / 1e6
                first[event["pid"]] = min(first.get(event["pid"], at), at)
        self.assertEqual(len(first), 2)
        self.assertLess(abs(first[2] - first[1]), 60)

    def folders(self) -> list[Path]:
        """By rank."""
        return sorted(
            process_folders(self.output), key=lambda each: int(report_of(each)["process"]["rank"])
        )


if __name__ == "__main__":
    unittest.main()
