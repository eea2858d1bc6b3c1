"""memshim replay: its answers, its options and what it says of bad input."""

from __future__ import annotations

import gzip
import json
import subprocess
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, ProcessTest, only_report, program

HEADER = "time_us,op,id,bytes,stream,site"
GRANULE = 2 << 20

# Three blocks of a granule, the outer two freed, then one of two granules.
OUTER = f"""{HEADER}
0,alloc,1,{GRANULE},,
10,alloc,2,{GRANULE},,
20,alloc,3,{GRANULE},,train.py:7 forward
30,free,1,,,
40,free,3,,,
50,alloc,4,{2 * GRANULE},,
"""


def replay(
    *arguments: str | Path, given: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([CLI, "replay", *arguments], input=given, capture_output=True, timeout=60)


class Replay(ProcessTest):
    def write(self, text: str, name: str = "run.csv") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def answer(self, *arguments: str | Path, status: int = 0) -> dict[str, Any]:
        result = replay(*arguments, "--json")
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr, b"")
        answer: dict[str, Any] = json.loads(result.stdout)
        self.assertEqual(answer["schema"], "memshim-replay/1")
        return answer

    def test_a_run_that_fits(self) -> None:
        answer = self.answer(self.write(OUTER), "--cap", "6MiB")
        self.assertTrue(answer["completed"])
        self.assertIsNone(answer["failure"])
        self.assertEqual(answer["peak_live_bytes"], 3 * GRANULE)
        self.assertEqual(answer["peak_charged_bytes"], 3 * GRANULE)
        self.assertEqual(answer["chunk_moves"], 1)
        self.assertEqual(answer["driver_calls"]["create"], 3)

    def test_a_run_that_does_not(self) -> None:
        answer = self.answer(self.write(OUTER), "--cap", "4MiB", status=1)
        self.assertFalse(answer["completed"])
        self.assertEqual(answer["failure"]["operation"], 3)
        self.assertEqual(answer["failure"]["time_us"], 20)
        self.assertEqual(answer["failure"]["bytes"], GRANULE)
        self.assertEqual(answer["failure"]["site"], "train.py:7 forward")
        self.assertEqual(answer["failure"]["reason"], "out of memory")
        text = replay(self.write(OUTER), "--cap=4MiB").stdout.decode()
        self.assertIn("FAILED with a cap of 4.0 MiB at operation 3 (alloc of 2.0 MiB)", text)
        self.assertIn("train.py:7 forward", text)

    def test_the_smallest_cap(self) -> None:
        answer = self.answer(self.write(OUTER), "--min-cap")
        self.assertEqual(answer["min_cap_bytes"], 3 * GRANULE)
        self.assertEqual(answer["overhead_ratio"], 1.0)

    def test_a_fraction(self) -> None:
        path = self.write(OUTER)
        self.answer(path, "--fraction", "0.75", "--device-memory", "8MiB")
        self.answer(path, "--fraction", "0.5", "--device-memory", "8MiB", status=1)

    def test_packed_and_standard_input(self) -> None:
        packed = gzip.compress(OUTER.encode())
        path = self.folder / "run.csv.gz"
        path.write_bytes(packed)
        self.assertEqual(self.answer(path)["recording"]["operations"], 6)
        for given in (packed, OUTER.encode()):
            result = replay("-", "--json", given=given)
            self.assertEqual(json.loads(result.stdout)["recording"]["operations"], 6)
        result = replay(path, given=b"")
        self.assertEqual(result.returncode, 0)
        path.write_bytes(packed[: len(packed) // 2])
        result = replay(path)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"run.csv.gz", result.stderr)

    def test_csv_out_is_csv_in(self) -> None:
        first = replay(self.write(OUTER), "--to-csv", "-")
        self.assertEqual(first.returncode, 0, first.stderr)
        path = self.folder / "again.csv"
        second = replay("-", "--to-csv", path, given=first.stdout)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual(path.read_bytes(), first.stdout)

    def test_bad_input_is_named(self) -> None:
        path = self.write(f"{HEADER}\n0,alloc,1,many,,\n")
        result = replay(path)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(
            result.stderr.decode(),
            f"memshim replay: {path}:2: bytes: 'many' is no whole number\n",
        )
        missing = replay(self.folder / "none.csv")
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"none.csv: cannot be opened: No such file", missing.stderr)
        empty = replay(self.folder)
        self.assertEqual(empty.returncode, 1)
        self.assertIn(str(self.folder).encode(), empty.stderr)
        costs = self.write("call,bytes,median_ns,p99_ns\nmap,1,x,1\n", "costs.csv")
        result = replay(self.write(OUTER), "--costs", costs)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"costs.csv:2: median_ns", result.stderr)

    def test_wrong_calls(self) -> None:
        path = self.write(OUTER)
        for arguments, expected in (
            ((), "a trace is missing"),
            ((path, path), "one trace too many"),
            ((path, "--speed"), "there is no option '--speed'"),
            ((path, "--json=yes"), "there is no option '--json=yes'"),
            ((path, "--cap", "much"), "--cap is a size as in 20GiB, not 'much'"),
            ((path, "--cap"), "--cap is a size as in 20GiB, not ''"),
            ((path, "--fraction=1.5"), "--fraction is a fraction 0 < f <= 1, not '1.5'"),
            ((path, "--policy", "best"), "--policy is default, highest"),
            ((path, "--mode", "fast"), "--mode is native or tensor, not 'fast'"),
            ((path, "--lag", "-1"), "--lag is a number"),
            ((path, "--device", "64"), "--device is a device's number"),
            ((path, "--cap", "1GiB", "--min-cap"), "only one can be given"),
            ((path, "--fraction", "0.5"), "--fraction needs --device-memory"),
        ):
            with self.subTest(arguments=arguments):
                result = replay(*arguments)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(expected, result.stderr.decode())
                self.assertEqual(result.stdout, b"")

    def test_help(self) -> None:
        result = replay("--help")
        self.assertEqual(result.returncode, 0)
        for option in ("--cap", "--min-cap", "--mode", "--policy", "--costs", "--to-csv"):
            self.assertIn(option, result.stdout.decode())

    def test_every_policy(self) -> None:
        for policy in ("default", "highest", "oldest", "newest", "gap", "oracle"):
            answer = self.answer(self.write(OUTER), "--policy", policy, "--min-cap")
            self.assertEqual(answer["policy"], policy)


class ReplayOfATrace(ProcessTest):
    """The replay of a program's own trace says of the program what its report says."""

    def test_a_traced_program(self) -> None:
        self.run_under_shim(program("trainer")).check()
        device = only_report(self.output)["devices"][0]
        result = replay(self.output / "latest", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["peak_live_bytes"], device["peak_live_bytes"])
        self.assertEqual(answer["recording"]["left_out"], 0)
        self.assertGreater(answer["recording"]["allocations"], 0)
        other = replay(self.output / "latest", "--device", "9")
        self.assertEqual(other.returncode, 1)
        self.assertIn(b"it has no event of device 9", other.stderr)


if __name__ == "__main__":
    unittest.main()
