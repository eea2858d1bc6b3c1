# SPDX-License-Identifier: Apache-2.0
"""Traces that were cut, damaged, joined or written by another version: every command that reads one
says so, or gives what is left of it."""

from __future__ import annotations

import json
import random
import struct
import unittest
from pathlib import Path

from machine import CLI, ProcessTest, Result, process_folders, program, run, run_of_three

EXTENT = 262144
MAJOR_AT, MINOR_AT = 12, 14  # of the version, behind the magic and the byte order


def with_version(trace: bytes, major: int, minor: int) -> bytes:
    return trace[:MAJOR_AT] + struct.pack("<HH", major, minor) + trace[MINOR_AT + 2 :]


def corrupted(trace: bytes, seed: int) -> bytes:
    """Thirty bytes of those that say something, behind the header."""
    chance = random.Random(seed)
    told = [at for at in range(EXTENT, len(trace)) if trace[at] != 0]
    changed = bytearray(trace)
    for at in chance.sample(told, 30):
        changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


class AnyBytes(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.run_under_shim(program("serve_job"), "arena").check()
        (self.good,) = process_folders(self.output)
        self.trace = (self.good / "trace.mshm").read_bytes()
        self.major, self.minor = struct.unpack_from("<HH", self.trace, MAJOR_AT)

    def put(self, name: str, content: bytes) -> Path:
        folder = self.folder / name
        folder.mkdir()
        (folder / "trace.mshm").write_bytes(content)
        return folder

    def ask(self, *command: str | Path) -> Result:
        """It ends by itself, and where it fails it names the trace that it could not read."""
        result = run([CLI, *command])
        self.assertIn(result.status, (0, 1), result.describe())
        if result.status == 1:
            said = result.stderr or result.stdout  # `top --json` has it in its JSON
            self.assertIn(str(self.folder), said, result.describe())
        return result

    def ask_all(self, folder: Path) -> Result:
        """All of them; returns what `report` did."""
        for command in (
            ("diff", folder, self.good),
            ("diff", self.good, folder),
            ("diff", folder, folder, "--format", "json"),
            ("replay", folder, "--json"),
            ("top", "--once", "--json", folder),
            ("report", folder, "--format", "text"),
        ):
            self.ask(*command)
        return self.ask("report", folder, "--format", "json")

    def refused(self, name: str, content: bytes, part: str) -> None:
        folder = self.put(name, content)
        self.assertIn(part, self.ask_all(folder).check(1).stderr)
        for command in (("diff", self.good, folder), ("replay", folder)):
            self.assertIn(part, self.ask(*command).check(1).stderr)

    def partial(self, name: str, content: bytes) -> int:
        """It tells what is there, and that something is not. Returns the events that it has."""
        folder = self.put(name, content)
        report = json.loads(self.ask_all(folder).check().stdout)
        self.assertTrue(report["trace"]["warnings"], name)
        compared = self.ask("diff", self.good, folder).check()
        self.assertEqual(compared.stdout.count("     it is damaged: "), 1)
        for warning in report["trace"]["warnings"]:
            self.assertIn(f"memshim diff: {folder}/trace.mshm: {warning}\n", compared.stderr)
        sides = json.loads(self.ask("diff", self.good, folder, "--format", "json").stdout)
        self.assertEqual((sides["a"]["complete"], sides["b"]["complete"]), (True, False))
        return int(report["trace"]["events_in_detail"])

    def test_another_version(self) -> None:
        self.refused("newer", with_version(self.trace, self.major, self.minor + 1), "version")
        self.refused("other", with_version(self.trace, self.major + 1, 0), "version")

    def test_no_trace(self) -> None:
        self.refused("short", self.trace[:100], "too short")
        self.refused("nothing", b"", "too short")
        self.refused("text", b"What is this?\n" * 5000, "is not a memshim trace")

    def test_truncated(self) -> None:
        whole = self.partial("byte", self.trace[:-1])
        self.assertGreater(whole, 0)
        self.assertLessEqual(self.partial("half", self.trace[: len(self.trace) // 2 + 1]), whole)
        self.assertLessEqual(self.partial("header", self.trace[:EXTENT]), whole)

    def test_nothing_of_a_device_is_left(self) -> None:
        """Its events were many: the first extent has not even the last of them."""
        (trace, *_) = run_of_three().glob("train.py-r0-*/trace.mshm")
        folder = self.put("header", trace.read_bytes()[:EXTENT])
        text = self.ask("report", folder).check().stdout
        self.assertIn("\nNothing that the trace says of a device could be read", text)
        self.assertIn("\nExact: not known, because the trace is damaged", text)

    def test_concatenated(self) -> None:
        """The first one is told, and that there is something else."""
        first = json.loads((self.good / "report.json").read_text())["trace"]["events"]
        self.run_under_shim(program("serve_job"), "pools").check()
        other = next(folder for folder in process_folders(self.output) if folder != self.good)
        joined = self.trace + (other / "trace.mshm").read_bytes()
        self.assertEqual(self.partial("joined", joined), first)

    def test_corrupted(self) -> None:
        for seed in range(4):
            with self.subTest(seed=seed):
                self.partial(f"corrupted-{seed}", corrupted(self.trace, seed))


if __name__ == "__main__":
    unittest.main()
