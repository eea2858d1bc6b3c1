# SPDX-License-Identifier: Apache-2.0
"""memshim replay: its answers, its options and what it says of bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import runpy
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, TIMEOUT_S, ProcessTest, only_report, program, run

TRACES = Path(__file__).resolve().parents[2] / "traces"
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
    return subprocess.run(
        [CLI, "replay", *arguments], input=given, capture_output=True, timeout=TIMEOUT_S
    )


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

    def test_no_run_needs_more_with_views(self) -> None:
        for name in ("unet-fixed-sites", "detector"):
            with self.subTest(trace=name):
                how = (TRACES / f"{name}.csv.gz", "--mode", "tensor", "--min-cap")
                without = self.answer(*how)["min_cap_bytes"]
                self.assertLessEqual(self.answer(*how, "--views")["min_cap_bytes"], without)

    def test_the_smallest_cap(self) -> None:
        answer = self.answer(self.write(OUTER), "--min-cap")
        self.assertEqual(answer["min_cap_bytes"], 3 * GRANULE)
        self.assertEqual(answer["overhead_ratio"], 1.0)

    def test_requests_that_the_run_did_not_get(self) -> None:
        """A granule more than the cap has: gone without, or what the run ended of."""
        path = self.write(f"{OUTER}60,refused,,{GRANULE},,train.py:9 more\n70,free,4,,,\n")
        answer = self.answer(path, "--cap", "6MiB")
        self.assertTrue(answer["completed"])
        self.assertEqual(answer["recording"]["refused"], 1)
        self.assertEqual((answer["refused_tried"], answer["refused_served"]), (1, 0))
        self.assertEqual(self.answer(path, "--min-cap")["min_cap_bytes"], 3 * GRANULE)

        path = self.write(f"{OUTER}60,fatal,,{GRANULE},,train.py:9 more\n70,free,4,,,\n")
        answer = self.answer(path, "--cap", "6MiB", status=1)
        self.assertEqual(answer["failure"]["operation"], 7)
        self.assertEqual(answer["failure"]["op"], "fatal")
        self.assertEqual(answer["failure"]["site"], "train.py:9 more")
        text = replay(path, "--cap=6MiB").stdout.decode()
        self.assertIn("FAILED with a cap of 6.0 MiB, as the run did, at operation 7", text)
        answer = self.answer(path, "--cap", "8MiB")
        self.assertEqual((answer["refused_tried"], answer["refused_served"]), (1, 1))
        self.assertEqual(answer["peak_wanted_bytes"], 4 * GRANULE)
        answer = self.answer(path, "--min-cap")
        self.assertEqual(answer["min_cap_bytes"], 4 * GRANULE)
        self.assertEqual(answer["overhead_ratio"], 1.0)

    def test_a_fraction(self) -> None:
        path = self.write(OUTER)
        self.answer(path, "--fraction", "0.75", "--device-memory", "8MiB")
        self.answer(path, "--fraction", "0.5", "--device-memory", "8MiB", status=1)

    def test_no_host_memory(self) -> None:
        """0 is a limit, and not what stands for none."""
        path = self.write(OUTER)
        self.assertEqual(self.answer(path, "--host-limit", "0")["host_limit_bytes"], 0)
        self.assertEqual(self.answer(path, "--host-limit", "1MiB")["host_limit_bytes"], 1 << 20)
        self.assertIsNone(self.answer(path)["host_limit_bytes"])

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
        for row, expected in (
            ("0,refused,,-1,,", "2: bytes: '-1' is no whole number"),
            ("0,fatal,,,,", "2: bytes is missing: 'fatal' needs one"),
            (f"0,fatal,,{1 << 60},,", "2: bytes is more than any device has"),
            ("0,refused,,4096", "2: stream is missing: the row ends before it"),
        ):
            path = self.write(f"{HEADER}\n{row}\n")
            result = replay(path)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertEqual(result.stderr.decode(), f"memshim replay: {path}:{expected}\n")
        missing = replay(self.folder / "none.csv")
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"none.csv: cannot be opened: No such file", missing.stderr)
        cut = self.folder / "cut.csv.gz"
        cut.write_bytes((TRACES / "gpt-fixed.csv.gz").read_bytes()[:2000])
        self.assertIn(b"it was cut", replay(cut).stderr)
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
            ((path, path), "is a second"),
            ((path, "--speed"), "there is no option '--speed'"),
            ((path, "--json=yes"), "there is no option '--json=yes'"),
            ((path, "--cap", "much"), "--cap is a size of 1 MiB or more as in 20GiB, not 'much'"),
            ((path, "--cap"), "--cap is a size of 1 MiB or more as in 20GiB; nothing follows"),
            ((path, "--fraction=1.5"), "--fraction is a fraction 0 < f <= 1, not '1.5'"),
            ((path, "--policy", "best"), "--policy is default, highest"),
            ((path, "--spill-policy", "best"), "--spill-policy is predict or lru, not 'best'"),
            ((path, "--mode", "fast"), "--mode is native or tensor, not 'fast'"),
            ((path, "--lag", "-1"), "--lag is a number"),
            ((path, "--device", "64"), "--device is a device's number"),
            ((path, "--cap", "1GiB", "--min-cap"), "give only one"),
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

    def test_spilling(self) -> None:
        """A training at 0.85 of what it needs: foresight moves little more than it must."""
        self.check_spilling("gpt-fixed.csv.gz")

    def test_spilling_what_nobody_tells_the_uses_of(self) -> None:
        self.check_spilling("gpt-fixed-sites.csv.gz", "--without-uses")

    def check_spilling(self, name: str, *options: str) -> None:
        trace = TRACES / name
        live_bytes = self.answer(trace)["peak_live_bytes"]
        cap = ("--without-charges", "--cap", str(live_bytes * 85 // 100), *options)
        self.assertFalse(self.answer(trace, *cap, status=1)["completed"])
        moved = {}
        for policy in ("predict", "lru"):
            answer = self.answer(trace, *cap, "--spill", "64GiB", "--spill-policy", policy)
            self.assertTrue(answer["completed"])
            self.assertIsNone(answer["violation"])
            spill = answer["spill"]
            self.assertEqual(spill["policy"], policy)
            self.assertGreater(spill["peak_spilled_bytes"], 0.1 * live_bytes)
            self.assertGreater(spill["warm"]["steps"], 3)
            moved[policy] = spill["warm"]["moved_bytes"]
        self.assertGreaterEqual(moved["predict"], spill["warm"]["least_bytes"])
        self.assertLessEqual(moved["predict"], 1.3 * spill["warm"]["least_bytes"])
        self.assertLessEqual(moved["predict"], 0.5 * moved["lru"])


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
        self.assertEqual(answer["recording"]["fatal"], 0)
        other = replay(self.output / "latest", "--device", "9")
        self.assertEqual(other.returncode, 1)
        self.assertIn(b"it has no event of device 9", other.stderr)

    def test_what_the_driver_served_counts_once(self) -> None:
        """A block of the driver's, and the charge for it."""
        for pool in ("on", "off"):
            with self.subTest(pool):
                self.output = self.folder / pool
                self.run_under_shim(
                    program("verdict_job"),
                    "ledger",
                    MEMSHIM_POOL=pool,
                    SIMGPU_MEMORY="1GiB",
                    SIMGPU_CONTEXT=64 << 20,
                )
                result = replay(self.output / "latest", "--json", "--cap", "1GiB")
                answer, device = json.loads(result.stdout), only_report(self.output)["devices"][0]
                self.assertEqual(answer["peak_live_bytes"], device["peak_live_bytes"])
                beside = answer["peak_charged_bytes"] - answer["peak_reserved_bytes"]
                self.assertEqual(beside, (64 + 16) << 20, "the context, and an array")

    def died(self, *arguments: str, fraction: str) -> Path:
        """On a device of 1 GiB, 64 MiB of which are the context's."""
        self.run_under_shim(
            program("verdict_job"),
            *arguments,
            MEMSHIM_SPILL="off",
            MEMSHIM_FRACTION=fraction,
            SIMGPU_MEMORY="1GiB",
            SIMGPU_CONTEXT=64 << 20,
        ).check(1)
        return self.output / "latest"

    def check_died(self, trace: Path, cap_mib: int, asked_mib: int, need_mib: int) -> None:
        """It fails at its own cap, as it did, and up to that with which it has what it asks for."""
        for too_small_mib in (cap_mib, need_mib + 64 - 2):
            result = replay(trace, "--json", "--cap", f"{too_small_mib}MiB")
            self.assertEqual(result.returncode, 1, result.stderr)
            failure = json.loads(result.stdout)["failure"]
            self.assertEqual((failure["op"], failure["bytes"]), ("fatal", asked_mib << 20))
        result = replay(trace, "--json", "--cap", f"{need_mib + 64}MiB")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual((answer["recording"]["fatal"], answer["failure"]), (1, None))
        result = replay(trace, "--json", "--min-cap")
        self.assertEqual(json.loads(result.stdout)["min_cap_bytes"], need_mib << 20)
        self.check_what_if(trace)

    def check_what_if(self, trace: Path) -> None:
        """What the report has tried is what a replay finds."""
        enough = only_report(self.output)["what_if"]["without_spill"]
        self.assertEqual(replay(trace, "--cap", str(enough["cap_bytes"])).returncode, 0)
        self.assertEqual(replay(trace, "--cap", str(enough["too_small_bytes"])).returncode, 1)

    def test_a_program_that_died(self) -> None:
        trace = self.died("ask", "300", "300", fraction="0.6")
        self.check_died(trace, cap_mib=614, asked_mib=300, need_mib=600)

    def test_a_program_that_went_on_before_it_died(self) -> None:
        """500 MiB and 600 are too much; 600 alone are not; with 601 more it ends."""
        trace = self.died("search", fraction="1")
        self.check_died(trace, cap_mib=1024, asked_mib=601, need_mib=1202)
        answer = json.loads(replay(trace, "--json").stdout)
        recovered = [event["recovered"] for event in only_report(self.output)["oom_events"]]
        self.assertEqual(recovered, [True, False])
        self.assertEqual((answer["recording"]["refused"], answer["refused_served"]), (1, 2))


IMPORT = Path(__file__).resolve().parents[3] / "scripts" / "import_torch_snapshot.py"
PAGE = 20 << 20
LOW = 0x7F0000000000

FRAMES = [
    {"filename": "libtorch.so", "line": 1, "name": "at::empty"},
    {"filename": "train.py", "line": 12, "name": "forward"},
    {"filename": "main.py", "line": 3, "name": "<module>"},
]


def event(action: str, addr: int, size: int, time_us: int = 1000, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": time_us,
        "frames": FRAMES,
        **more,
    }


class Snapshot(ProcessTest):
    """import_torch_snapshot.py: snapshots whose history is known, and files that are none."""

    def convert(self, snapshot: object, *options: str, status: int = 0) -> str:
        path = self.folder / "job.pickle"
        data = snapshot if isinstance(snapshot, bytes) else pickle.dumps(snapshot, protocol=4)
        path.write_bytes(data)
        result = subprocess.run(
            [sys.executable, IMPORT, path, "-", *options],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self.assertEqual(result.returncode, status, result.stderr)
        if status == 0:
            self.assertEqual(result.stderr, "")
            return result.stdout
        self.assertTrue(result.stderr.startswith(f"import_torch_snapshot: {path}: "), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def replay_of(self, text: str, *options: str) -> dict[str, Any]:
        result = replay("-", "--json", *options, given=text.encode())
        self.assertIn(result.returncode, (0, 1), result.stderr)
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def test_without_a_csv(self) -> None:
        """memshim replay takes the snapshot itself, and says as much of one that is none."""
        path = self.folder / "job.pickle"
        trace = [event("alloc", LOW, 1000, 1005), event("free_completed", LOW, 1000, 1007)]
        segment = {"address": LOW, "total_size": PAGE, "device": 0, "stream": 0, "blocks": []}
        text = self.convert({"device_traces": [[], trace], "segments": [segment | {"device": 1}]})
        converted = replay("-", "--to-csv", "-", given=text.encode()).stdout
        self.assertIn(b",born,", converted)
        for options in ((), ("--device", "1")):
            self.assertEqual(replay(path, "--to-csv", "-", *options).stdout, converted)
        result = run([CLI, "replay", path, "--device", "0"])
        self.assertEqual((result.status, result.stdout), (1, ""))
        first, second = result.stderr.splitlines()
        self.assertIn("says nothing of device 0", first)
        self.assertEqual(second, f"memshim replay: {path} was not read (see above)")
        self.convert(b"\x80\x04cos\nsystem\n.", status=1)
        result = run([CLI, "replay", path])
        self.assertEqual((result.status, result.stdout), (1, ""))
        self.assertIn("os.system", result.stderr)
        result = run([CLI, "replay", path], PATH=self.folder)
        self.assertIn("to read it takes a python3 on PATH", result.stderr)

    def test_ended_while_a_snapshot_is_read(self) -> None:
        """Whoever ends memshim replay alone ends the Python that reads for it, too."""
        path, python = self.folder / "job.pickle", self.folder / "python3"
        path.write_bytes(pickle.dumps({}, protocol=4))
        started = self.folder / "started"
        os.mkfifo(started)
        python.write_text(f'#!/bin/sh\necho $$ >"{started}"\nexec /bin/sleep 600\n')
        python.chmod(0o755)
        running = subprocess.Popen(
            [CLI, "replay", path], env={**os.environ, "PATH": str(self.folder)}
        )
        reader = int(started.read_text())
        running.terminate()
        self.assertEqual(running.wait(timeout=TIMEOUT_S), -signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(reader, signal.SIGKILL)

    def test_segments(self) -> None:
        """One segment and one tensor from before the recording, which dies in it."""
        snapshot = {
            "device_traces": [
                [
                    event("segment_alloc", LOW + PAGE, PAGE),
                    event("alloc", LOW + PAGE, 1000, 1005),
                    event("free_requested", LOW, 5000, 1006),
                    event("free_completed", LOW, 5000, 1007),
                    event("alloc", LOW, 512, 1008),
                    event("oom", 0, 1 << 40, 1009),
                ]
            ],
            "segments": [
                {
                    "device": 0,
                    "address": LOW,
                    "total_size": PAGE,
                    "stream": 0,
                    "blocks": [
                        {"size": 512, "requested_size": 512, "state": "active_allocated"},
                        {"size": PAGE - 512, "state": "inactive"},
                    ],
                },
                {
                    "device": 0,
                    "address": LOW + PAGE,
                    "total_size": PAGE,
                    "stream": 0,
                    "blocks": [
                        {"size": 1024, "requested_size": 1000, "state": "active_allocated"},
                        {"size": PAGE - 1024, "state": "inactive"},
                    ],
                },
            ],
        }
        text = self.convert(snapshot)
        self.assertEqual(
            text,
            "time_us,op,id,bytes,stream,site,addr\n"
            f"0,segment,1,{PAGE},0,,{LOW}\n"
            f"0,born,2,5000,,train.py:12 forward,{LOW}\n"
            f"0,cached,,{PAGE - 5000},,,{LOW + 5000}\n"
            f"0,segment,3,{PAGE},0,,{LOW + PAGE}\n"
            f"5,born,4,1000,,train.py:12 forward,{LOW + PAGE}\n"
            "7,died,2,,,,\n"
            f"8,born,5,512,,train.py:12 forward,{LOW}\n"
            f"9,fatal,,{1 << 40},,train.py:12 forward,\n",
        )
        answer = self.replay_of(text, "--cap", "24GiB")
        self.assertEqual(answer["failure"]["op"], "fatal")
        self.assertEqual(answer["failure"]["bytes"], 1 << 40)
        self.assertEqual(answer["failure"]["site"], "train.py:12 forward")
        answer = self.replay_of(self.convert(snapshot, "--without-ooms"))
        self.assertTrue(answer["completed"])
        self.assertEqual(answer["peak_live_bytes"], 6000)

    def test_pages(self) -> None:
        """An expandable segment of three pages, the first mapped before, the last unmapped."""
        snapshot = {
            "device_traces": [
                [
                    event("segment_map", LOW + PAGE, 2 * PAGE),
                    event("alloc", LOW, 2 * PAGE),
                    event("free_completed", LOW, 2 * PAGE),
                    event("segment_unmap", LOW + 2 * PAGE, PAGE),
                ]
            ],
            "segments": [
                {
                    "device": 0,
                    "address": LOW,
                    "total_size": 2 * PAGE,
                    "stream": 0,
                    "is_expandable": True,
                    "blocks": [{"size": 2 * PAGE, "state": "inactive"}],
                }
            ],
        }
        text = self.convert(snapshot)
        self.assertEqual(
            text,
            "time_us,op,id,bytes,stream,site,addr\n"
            f"0,map,1,{PAGE},,,{LOW}\n"
            f"0,cached,,{PAGE},,,{LOW}\n"
            f"0,map,1,{PAGE},,,{LOW + PAGE}\n"
            f"0,map,1,{PAGE},,,{LOW + 2 * PAGE}\n"
            f"0,born,1,{2 * PAGE},,train.py:12 forward,{LOW}\n"
            "0,died,1,,,,\n"
            f"0,unmap,,{PAGE},,,{LOW + 2 * PAGE}\n",
        )
        answer = self.replay_of(text)
        self.assertTrue(answer["completed"])
        self.assertEqual(answer["peak_reserved_bytes"], 3 * PAGE)

    def test_a_start_in_mid_run(self) -> None:
        """What PyTorch has cached when the recording begins is free for what comes later. 40
        segments are cached, 2 of them with a tensor; then come 40 tensors in new segments."""
        low = [LOW + index * PAGE for index in range(40)]
        new = [LOW + (1 << 40) + index * 2 * PAGE for index in range(20)]
        small = 1 << 20

        def segment(address: int, size: int, tensor: int, live: int) -> dict[str, Any]:
            before, after = tensor - address, address + size - tensor - live
            return {
                "device": 0,
                "address": address,
                "total_size": size,
                "stream": 0,
                "blocks": [
                    {"size": before, "state": "inactive"},
                    {"size": live, "state": "active_allocated"} if live else None,
                    {"size": after, "state": "inactive"},
                ],
            }

        kept = {low[3]: 4 << 20, low[20]: PAGE - small}  # where in its segment a tensor lies
        segments = [
            segment(at, PAGE, at + kept.get(at, 0), small if at in kept else 0) for at in low
        ] + [segment(at, 2 * PAGE, at, 2 * PAGE) for at in new]
        for one in segments:
            one["blocks"] = [block for block in one["blocks"] if block and block["size"] > 0]
        trace = [
            each
            for at in new
            for each in (event("segment_alloc", at, 2 * PAGE), event("alloc", at, 2 * PAGE))
        ]
        text = self.convert({"device_traces": [trace], "segments": segments})
        self.assertEqual(text.count("cached"), 41)  # both sides of one tensor, one of the other
        for order in ("segment", "cached"):
            self.assertIn(f"0,{order},", text)
        answer = self.replay_of(text, "--min-cap")
        self.assertTrue(answer["completed"])
        self.assertEqual(answer["peak_live_bytes"], 20 * 2 * PAGE + 2 * small)
        self.assertLessEqual(answer["overhead_ratio"], 1.02)

    def test_what_a_job_ended_of(self) -> None:
        """The last request that it did not get, but where it got as much, or went on for long."""
        convert = runpy.run_path(str(IMPORT))["convert"]
        oom, freed = event("oom", 0, PAGE), event("free_completed", LOW, PAGE)
        got, less = event("alloc", LOW, PAGE), event("alloc", LOW, PAGE // 2)
        small = [event("alloc", LOW + PAGE * (i + 2), 512) for i in range(65)]
        for trace, expected in (
            ([got, oom], ["fatal"]),
            ([got, oom, freed], ["fatal"]),
            ([oom, less, oom, oom], ["refused", "refused", "fatal"]),
            ([oom, less], ["fatal"]),
            ([oom, got], ["refused"]),
            ([event("oom", 0, 2 * PAGE), oom, got], ["fatal", "refused"]),
            ([oom, *small[:64]], ["fatal"]),
            ([oom, *small], ["refused"]),
        ):
            out = io.StringIO()
            convert({"device_traces": [trace], "segments": []}, None, True, out)
            ops = [line.split(",")[1] for line in out.getvalue().splitlines()]
            self.assertEqual([op for op in ops if op in ("refused", "fatal")], expected)

    def test_the_device_with_most_events(self) -> None:
        two = [event("alloc", LOW, 1), event("free_completed", LOW, 1)]
        snapshot = {"device_traces": [[event("alloc", LOW, 100)], two, []], "segments": []}
        self.assertIn(",alloc,1,1,", self.convert(snapshot))
        self.assertIn(",alloc,1,100,", self.convert(snapshot, "--device", "0"))
        self.assertIn("says nothing of device 2", self.convert(snapshot, "--device", "2", status=1))
        self.assertIn("has 3 devices", self.convert(snapshot, "--device", "3", status=1))
        self.assertIn("no device of number -1", self.convert(snapshot, "--device=-1", status=1))

    def test_files_that_are_none(self) -> None:
        for snapshot, expected in (
            (b"", "is no pickle of a snapshot"),
            (b"not a pickle", "is no pickle of a snapshot"),
            ([1, 2], "has no 'device_traces'"),
            ({"device_traces": []}, "has no 'segments'"),
            ({"device_traces": [[]], "segments": []}, "says nothing of device 0"),
            (
                {"device_traces": [[event("alloc", LOW, "big")]], "segments": []},  # type: ignore[arg-type]
                "event 0 of device 0: 'size' is 'big', not a number",
            ),
            (
                {"device_traces": [[]], "segments": [{"address": LOW}]},
                "segment 0: 'total_size' is None, not a number",
            ),
        ):
            with self.subTest(expected=expected):
                self.assertIn(expected, self.convert(snapshot, status=1))

    def test_code_in_a_pickle_does_not_run(self) -> None:
        trap = self.folder / "trap"
        message = self.convert(
            b"cposix\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.", status=1
        )
        self.assertIn("holds posix.system", message)
        self.assertFalse(trap.exists())


if __name__ == "__main__":
    unittest.main()
