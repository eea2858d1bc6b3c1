# SPDX-License-Identifier: Apache-2.0
"""What running processes tell: memshim top in its forms, memshim_stats(), the status line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, MIB, TIMEOUT_S, Result, process_folders, program, run
from standing_job import JOB, LIMIT, Job, StandingTest

FORMAT_VERSION_OFFSET = 12  # of version_major in the header: behind the magic and the byte order


class TopTest(StandingTest):
    def top(self, *arguments: str | Path) -> Result:
        return run([CLI, "top", "--once", *arguments], MEMSHIM_OUTPUT=self.output)

    def seen(self, *arguments: str | Path) -> list[dict[str, Any]]:
        """The processes, as --json tells of them."""
        value = json.loads(self.top("--json", *arguments).check().stdout)
        self.assertEqual(value["schema"], "memshim-top/1")
        self.assertEqual(value["unreadable"], [])
        processes = value["processes"]
        assert isinstance(processes, list)
        return processes

    def only_device(self) -> dict[str, Any]:
        """The device of the only process."""
        (process,) = self.seen("--sites", "0")
        (device,) = process["devices"]
        assert isinstance(device, dict)
        return device

    def refused(self, *arguments: str | Path, status: int = 1) -> str:
        """What is said of a call that has to fail."""
        result = self.top(*arguments).check(status)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("memshim top: "), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr


class Figures(TopTest):
    """At known states, beside what the program, the device and memshim_stats() know."""

    def check_now(self, job: Job, live: int, status: str = "normal") -> dict[str, Any]:
        known, device = job.known, self.only_device()
        self.assertEqual(device["total_bytes"], 24 << 30)
        self.assertEqual(device["cap_bytes"], LIMIT)
        self.assertEqual(device["used_bytes"], known["device_bytes"])
        self.assertEqual(device["free_bytes"], LIMIT - known["device_bytes"])
        self.assertEqual(device["live_bytes"], live)
        self.assertEqual(device["status"], status)
        in_process = dict(known["stats"])
        names = ["normal", "warning", "critical", "emergency"]
        in_process["status"] = names[in_process["status"]]
        for name, value in in_process.items():
            self.assertEqual(device[name], value, name)
        return device

    def test_blocks_and_tensors(self) -> None:
        with self.job() as job:
            before = job.known["device_bytes"]  # what the context takes
            self.check_now(job, live=0)
            job.do(f"weights {10 * MIB}")
            device = self.check_now(job, live=10 * MIB)
            self.assertEqual(device["reserved_bytes"], device["used_bytes"] - before)
            job.do(f"activation {3 * MIB}")
            self.check_now(job, live=13 * MIB)
            # A block in which tensors are born counts by them from then on.
            job.do(f"born 0 {MIB}")
            job.do(f"born {2 * MIB} {MIB // 2}")
            self.check_now(job, live=11 * MIB + MIB // 2)
            job.do(f"died 0 {MIB}")
            self.check_now(job, live=10 * MIB + MIB // 2)
            peak = self.only_device()["peak_used_bytes"]
            job.do("free")
            device = self.check_now(job, live=10 * MIB)
            self.assertEqual(device["peak_used_bytes"], peak)
            self.assertGreaterEqual(device["reserved_bytes"], 12 * MIB)
            # Of 14 MiB at most 11.5 were live.
            self.assertAlmostEqual(device["fragmentation"], 2.5 / 14, places=5)

    def test_fragmentation_is_of_the_peak_of_reserved_bytes(self) -> None:
        with self.job() as job:
            job.do(f"weights {40 * MIB}")
            job.do(f"weights {20 * MIB}")
            job.do(f"born 0 {5 * MIB}")  # in the newest block: 45 of 60 MiB
            self.check_now(job, live=45 * MIB)
            job.do(f"died 0 {5 * MIB}")
            device = self.check_now(job, live=40 * MIB)
            self.assertEqual(device["fragmentation"], 0.25)

    def test_every_event_counts_at_once(self) -> None:
        # More than are told before any of them is in the sums, and one at a time.
        with self.job() as job:
            for count in range(1, 40):
                job.do(f"weights {count * 1024}")
                live = sum(range(1, count + 1)) * 1024
                self.assertEqual(self.only_device()["live_bytes"], live)
            job.do("rounds 500 0")
            self.assertEqual(self.only_device()["live_bytes"], live)

    def test_status_and_refusals(self) -> None:
        with self.job(MEMSHIM_THRESHOLDS="0.85,0.9,0.95") as job:
            used = job.known["device_bytes"]
            statuses = []
            for share in (0.86, 0.91, 0.96):
                step = int(LIMIT * share) // (2 * MIB) * (2 * MIB) - used
                used = job.do(f"weights {step}")["device_bytes"]
                statuses.append(
                    self.check_now(job, job.known["held_bytes"], self.status())["status"]
                )
            self.assertEqual(statuses, ["warning", "critical", "emergency"])
            self.assertEqual(self.only_device()["refusals"], 0)
            job.do(f"refuse {LIMIT}")
            self.assertEqual(self.only_device()["refusals"], 1)
            self.check_now(job, job.known["held_bytes"], "emergency")

    def status(self) -> str:
        return str(self.only_device()["status"])

    def test_spilled(self) -> None:
        with self.job(MEMSHIM_SPILL="auto", MEMSHIM_THRESHOLDS="0.92,0.95,0.97") as job:
            for _ in range(4):
                job.do(f"weights {40 * MIB}")
            held = job.known["held_bytes"]
            device = self.check_now(job, held, "emergency")
            # What is live and not on the device is on the host.
            self.assertGreater(held, device["reserved_bytes"])
            self.assertGreaterEqual(device["host_bytes"], held - device["reserved_bytes"])
            self.assertGreaterEqual(device["spilled_bytes"], device["host_bytes"])
            self.assertGreater(device["spill_wait_ns"], 0)
            self.assertEqual(device["promoted_bytes"], 0)

    def test_while_it_changes(self) -> None:
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            assert job.process.stdin is not None and job.process.stdout is not None
            job.process.stdin.write("rounds 15000 0\n")
            job.process.stdin.flush()
            events, looks = [0], 0
            while not select.select([job.process.stdout], [], [], 0)[0]:
                (process,) = self.seen("--sites", "0")
                (device,) = process["devices"]
                self.assertIn(device["live_bytes"], (10 * MIB, 11 * MIB))
                self.assertGreaterEqual(device["used_bytes"], device["reserved_bytes"])
                events.append(process["events"])
                looks += 1
            self.assertGreater(looks, 2)
            self.assertEqual(events, sorted(events))
            job.answer()
            self.assertEqual(self.only_device()["live_bytes"], 10 * MIB)

    def test_without_a_trace(self) -> None:
        with self.job(MEMSHIM_TRACE="off") as job:
            before = job.known["device_bytes"]
            known = job.do(f"weights {10 * MIB}")
            stats = known["stats"]
            self.assertEqual(stats["live_bytes"], 10 * MIB)
            self.assertEqual(stats["used_bytes"], known["device_bytes"])
            self.assertEqual(stats["reserved_bytes"], known["device_bytes"] - before)
            self.assertIn("MEMSHIM_TRACE is off", self.refused(str(job.process.pid)))

    def test_without_the_pool(self) -> None:
        with self.job(MEMSHIM_POOL="off") as job:
            job.do(f"weights {10 * MIB}")
            device = self.check_now(job, live=10 * MIB)
            self.assertEqual(device["reserved_bytes"], 0)  # by the pool, which there is not
            job.do(f"born 0 {MIB}")
            device = self.check_now(job, live=MIB)
            self.assertEqual(device["reserved_bytes"], 10 * MIB)

    def test_sites(self) -> None:
        with self.job() as job:
            for _ in range(3):
                job.do(f"weights {4 * MIB}")
            job.do(f"activation {MIB}")
            (process,) = self.seen()
            (device,) = process["devices"]
            lines = {site["line"]: site["live_bytes"] for site in device["sites"]}
            self.assertEqual(len(lines), len(device["sites"]))
            self.assertEqual(
                lines, {"hold_weights (top_job)": 12 * MIB, "hold_activation (top_job)": MIB}
            )
            self.assertEqual([site["live_bytes"] for site in device["sites"]], [12 * MIB, MIB])
            self.assertFalse(process["sites_sampled"])
            (process,) = self.seen("--sites", "1")
            self.assertEqual(len(process["devices"][0]["sites"]), 1)
            text = self.top().check().stdout
            self.assertRegex(text, r"12\.0 MiB +92\.3 % +hold_weights \(top_job\)")
            # The lines are of a moment of their own, and are parts of what was live then.
            self.assertIn(f"  live 13.0 MiB, pid {job.process.pid} device 0", text)
            (process,) = self.seen()
            self.assertEqual(process["devices"][0]["sites_live_bytes"], 13 * MIB)

    def test_report_of_a_running_process(self) -> None:
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            job.do(f"activation {3 * MIB}")
            job.do("free")
            (folder,) = process_folders(self.output)
            report = json.loads(run([CLI, "report", folder, "--format", "json"]).check().stdout)
            (device,) = report["devices"]
            self.assertEqual(device["peak_live_bytes"], 13 * MIB)
            self.assertEqual(sum(site["live_bytes"] for site in report["call_sites"]), 10 * MIB)
            self.assertEqual(report["process"]["state"], "running")
            self.assertIsNone(report["process"]["exit"])
            text = run([CLI, "report", folder]).check().stdout
            self.assertIn("still running", text)
            self.assertFalse((folder / "report.txt").exists(), "a report that would be out of date")


class Processes(TopTest):
    """Which there are, who they are, and how they ended."""

    def test_running_ended_and_killed(self) -> None:
        with self.job("3") as ends, self.job() as dies, self.job() as stays:
            for job in (ends, dies, stays):
                job.do(f"weights {6 * MIB}")
            ends.end()
            os.kill(dies.process.pid, signal.SIGKILL)
            dies.process.wait()
            # Each is a run of its own: neither torchrun nor anybody else named one.
            folders = {
                int(path.name.rsplit("-", 1)[1]): path for path in process_folders(self.output)
            }
            states = {}
            for job in (ends, dies, stays):
                pid = job.known["pid"]
                (process,) = self.seen(folders[pid])
                self.assertEqual(process["pid"], pid)
                self.assertEqual(process["devices"][0]["live_bytes"], 6 * MIB)
                states[job] = (
                    process["state"],
                    process["exit_status"],
                    process["running"],
                    process["killed"],
                )
            self.assertEqual(states[ends], ("ended", 3, 0, 0))
            self.assertEqual(states[dies], ("killed", None, 0, 1))
            self.assertEqual(states[stays], ("running", None, 1, 0))
            self.assertIn("ended, 3", self.top(folders[ends.known["pid"]]).check().stdout)
            self.assertIn("killed", self.top(folders[dies.known["pid"]]).check().stdout)
            self.assertIn("there is no process", self.refused(str(dies.known["pid"])))

    def test_exited(self) -> None:
        self.run_under_shim(program("life_job"), "quick").check(4)
        (process,) = self.seen()
        self.assertEqual(
            [process[name] for name in ("state", "exit_status", "running", "killed")],
            ["exited", 4, 0, 0],
        )
        self.assertIn("exited, 4", self.top().check().stdout)

    def test_the_lock_is_gone(self) -> None:
        with self.job() as job:
            job.do(f"weights {6 * MIB}")
            job.do("unlock")
            (process,) = self.seen()
            self.assertEqual((process["state"], process["killed"]), ("running", 0))
            os.kill(job.process.pid, signal.SIGKILL)
            job.process.wait()
            self.assertEqual(self.seen()[0]["state"], "killed")

    def test_ranks(self) -> None:
        def settings(rank: int) -> dict[str, Any]:
            return {
                "MEMSHIM_RUN_ID": "both",
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": 11,
            }

        with self.job(**settings(10)) as tenth, self.job(**settings(2)) as second:
            tenth.do(f"weights {6 * MIB}")
            second.do(f"weights {2 * MIB}")
            processes = self.seen()
            self.assertEqual([process["rank"] for process in processes], [2, 10])
            self.assertEqual([process["world_size"] for process in processes], [11, 11])
            self.assertEqual(
                [process["devices"][0]["live_bytes"] for process in processes], [2 * MIB, 6 * MIB]
            )
            self.assertEqual({process["run_id"] for process in processes}, {"both"})
            # The newest run, the run's own folder, and both one by one.
            for path in (self.output, self.output / "both"):
                self.assertEqual(len(self.seen(path)), 2)
            self.assertEqual([p["rank"] for p in self.seen(str(tenth.known["pid"]))], [10])
            # This test has started both.
            mine = [process["pid"] for process in self.seen(str(os.getpid()))]
            self.assertEqual(mine, [second.known["pid"], tenth.known["pid"]])
            text = self.top().check().stdout
            rows = [line.split()[:3] for line in text.splitlines() if line.endswith("top_job")]
            self.assertEqual(
                rows, [["2", str(second.known["pid"]), "0"], ["10", str(tenth.known["pid"]), "0"]]
            )

    def test_a_fork_child_says_nothing(self) -> None:
        with self.job(MEMSHIM_STATUS_EVERY="1") as job:
            job.do(f"weights {MIB}")
            before = self.only_device()
            job.do("child")
            self.assertEqual(self.only_device(), before)
            self.assertNotIn("status: step", job.end())


class Redrawn(TopTest):
    def read_until(self, terminal: int, wanted: bytes) -> bytes:
        """What comes, until that has."""
        seen = b""
        end = time.monotonic() + 60
        while wanted not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536)
        self.assertIn(wanted, seen)
        return seen

    def test_in_place(self) -> None:
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            pid, terminal = pty.fork()
            if pid == 0:
                command = [str(CLI), "top", str(self.output), "--interval", "0.1"]
                os.execv(command[0], command)
            try:
                drawn = self.read_until(terminal, b"hold_weights")
                self.assertIn(b"\033[?1049h", drawn)
                self.assertIn(b"10.0 MiB", drawn)
                job.do(f"weights {20 * MIB}")
                drawn = self.read_until(terminal, b"30.0 MiB")
                self.assertIn(b"\033[H", drawn)
                os.kill(pid, signal.SIGINT)
                drawn = self.read_until(terminal, b"\033[?1049l")
                self.assertNotIn(b"\033[?1049h", drawn)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.close(terminal)

    def on_a_terminal(self, columns: int, *arguments: str, **settings: str) -> tuple[int, int]:
        """The process and its terminal, of that width."""
        pid, terminal = pty.fork()
        if pid == 0:
            # Until the other side has set the size.
            os.read(0, 1)
            command = [str(CLI), "top", str(self.output), *arguments]
            os.execve(command[0], command, os.environ | settings)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        os.write(terminal, b"\n")
        self.addCleanup(os.close, terminal)
        return pid, terminal

    def rows(self, columns: int, **settings: str) -> list[str]:
        """The table as it stands on a terminal of that width: its head, and the only row."""
        pid, terminal = self.on_a_terminal(columns, "--once", **settings)
        seen = b""
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 65536):
                seen += part
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        lines = seen.decode().replace("\r", "").splitlines()
        first = next(i for i, line in enumerate(lines) if "RANK" in line)
        return lines[first : first + 2]

    def test_no_column_is_cut(self) -> None:
        whole = ["RANK", "PID", "DEV", "USED", "/", "CAP", "LIVE", "TREND", "RESERVED", "FRAG"]
        whole += ["HOST", "STATUS", "STEP", "TIME", "PROGRAM"]
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            for columns in (0, 200, 132, 100, 80):
                head, row = self.rows(columns)
                titles = head.split()
                self.assertEqual([title for title in whole if title in titles], titles)
                self.assertTrue({"RANK", "USED", "CAP", "STATUS", "PROGRAM"} <= set(titles))
                if columns:
                    self.assertLessEqual(len(head.rstrip()), columns)
                    self.assertLessEqual(len(row), columns)
                if columns in (0, 200):
                    self.assertEqual(titles, whole)
                if columns >= 100:
                    self.assertTrue({"LIVE", "TREND", "STEP"} <= set(titles))
                self.assertIn(f"{LIMIT // MIB}.0 MiB", row)
                self.assertIn(" normal ", row)
                self.assertTrue(row.endswith("top_job"), row)

    def test_live_bytes_are_drawn(self) -> None:
        with self.job() as job:
            job.do(f"weights {MIB}")
            job.do(f"weights {100 * MIB}")
            for settings, highest, ramp in (
                (
                    {"LC_ALL": "C.UTF-8"},
                    "\u2588",
                    "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588",
                ),
                ({"LC_ALL": "C"}, "#", "_.:-=+*#"),
            ):
                head, row = self.rows(200, **settings)
                at = head.index("TREND")
                drawn = row[at : at + 12]
                self.assertEqual(len(drawn), 12)
                self.assertTrue(set(drawn) <= set(ramp), drawn)
                levels = [ramp.index(character) for character in drawn]
                self.assertEqual(levels, sorted(levels))  # nothing was freed
                self.assertEqual(drawn[-1], highest)

    def test_keys_sort_and_end_it(self) -> None:
        one: dict[str, Any] = {"MEMSHIM_RUN_ID": "both", "WORLD_SIZE": 2}
        with self.job(**one, RANK=0) as small, self.job(**one, RANK=1) as large:
            small.do(f"weights {10 * MIB}")
            large.do(f"weights {20 * MIB}")
            pid, terminal = self.on_a_terminal(200, "--interval", "0.1", "--sites", "0")
            first = r"TIME +PROGRAM[^\n]*\n *%d "

            def wait_for(rank: int) -> None:
                seen = ""
                end = time.monotonic() + 60
                while not re.search(first % rank, seen) and time.monotonic() < end:
                    seen = seen[-20000:] + os.read(terminal, 65536).decode()
                self.assertRegex(seen, first % rank)

            wait_for(0)
            os.write(terminal, b"l")
            wait_for(1)
            os.write(terminal, b"r")
            wait_for(0)
            os.write(terminal, b"q")
            self.read_until(terminal, b"\033[?1049l")
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            text = self.top("--sort", "used").check().stdout
            self.assertEqual(
                [line.split()[0] for line in text.splitlines() if line.endswith("top_job")],
                ["1", "0"],
            )

    def test_plain_where_nobody_looks(self) -> None:
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            for form in ((), ("--json",)):
                watcher = subprocess.Popen(
                    [CLI, "top", self.output, "--interval=0.1", *form],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                assert watcher.stdout is not None
                looks = 0
                while looks < 3:
                    line = watcher.stdout.readline()
                    self.assertTrue(line, "it ended")
                    self.assertNotIn("\033", line)
                    looks += line.startswith(("memshim top", "{"))
                watcher.send_signal(signal.SIGTERM)
                watcher.communicate()
                self.assertEqual(watcher.returncode, 0)


SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\{(?P<labels>.*)\} (?P<value>-?[0-9]+(\.[0-9]+)?)"
)
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')


def parse_labels(text: str) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        assert found, f"no label: {text[at:]}"
        assert found[1] not in labels
        labels[found[1]] = re.sub(
            r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), found[2]
        )
        at = found.end()
    return labels


def parse_prometheus(
    text: str, suffix: str = ""
) -> dict[str, tuple[str, list[tuple[dict[str, str], float]]]]:
    """Families of the text format 0.0.4, by the name of their samples: the type, and samples.
    Strictly: HELP, TYPE and samples of a family stand together, no sample twice, the last line
    ends. In OpenMetrics a counter's family lacks its samples' ending."""
    assert text.endswith("\n")
    families: dict[str, tuple[str, list[tuple[dict[str, str], float]]]] = {}
    helped = current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, helped, meaning = line.split(" ", 3)
            assert (
                helped not in families
                and helped + suffix not in families
                and meaning
                and "\\" not in meaning
            )
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped and kind in ("gauge", "counter")
            current += suffix if kind == "counter" else ""
            assert (kind == "counter") == current.endswith("_total"), current
            families[current] = (kind, [])
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample and sample["name"] == current, line
            labels = parse_labels(sample["labels"])
            samples = families[current][1]
            assert labels not in [other for other, _ in samples]
            samples.append((labels, float(sample["value"])))
    return families


class Prometheus(TopTest):
    def families(self, *arguments: str | Path) -> dict[str, Any]:
        file = self.folder / "memshim.prom"
        self.assertEqual(self.top("--prometheus", file, *arguments).check().stdout, "")
        beside = [path.name for path in self.folder.iterdir() if path.name.startswith(file.name)]
        self.assertEqual(beside, [file.name])
        return parse_prometheus(file.read_text())

    def test_the_same_figures(self) -> None:
        with self.job(RANK=1, LOCAL_RANK=1, WORLD_SIZE=2, MEMSHIM_RUN_ID="metrics") as job:
            job.do(f"weights {10 * MIB}")
            job.do(f"refuse {LIMIT}")
            families = self.families()
            (process,) = self.seen("--sites", "0")
            (device,) = process["devices"]
            table = run([CLI, "statistics", "--markdown"]).check().stdout.splitlines()[2:]
            self.assertEqual(len(table), len(families))
            for row in table:
                name, of, _, metric, _ = (cell.strip(" `") for cell in row.strip("|").split("|"))
                _, samples = families[metric]
                ((labels, value),) = samples
                self.assertEqual(labels["pid"], str(job.known["pid"]))
                self.assertEqual((labels["rank"], labels["run"]), ("1", "metrics"))
                self.assertEqual("device" in labels, of == "device")
                if of == "device":
                    self.assertEqual((labels["device"], labels["uuid"]), ("0", device["uuid"]))
                wanted = (device if of == "device" else process)[name]
                if name == "status":
                    wanted = ["normal", "warning", "critical", "emergency"].index(wanted)
                if name.endswith("_ns"):
                    self.assertLess(abs(value - wanted / 1e9), 60)
                else:
                    self.assertAlmostEqual(value, wanted, places=6, msg=name)

    def test_open_metrics(self) -> None:
        """The same samples; a counter's head has another name, and the end is told."""
        file = self.folder / "memshim.txt"
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            self.assertEqual(self.top("--openmetrics", file).check().stdout, "")
            text = file.read_text()
            self.assertTrue(text.endswith("\n# EOF\n"))
            found = parse_prometheus(text.removesuffix("# EOF\n"), suffix="_total")
            families = self.families()
            self.assertEqual(found.keys(), families.keys())
            for name, (kind, samples) in families.items():
                self.assertEqual((found[name][0], len(found[name][1])), (kind, len(samples)))
            self.assertEqual(found["memshim_live_bytes"], families["memshim_live_bytes"])

    def test_what_ended_holds_nothing(self) -> None:
        with self.job() as job:
            job.do(f"weights {10 * MIB}")
            os.kill(job.process.pid, signal.SIGKILL)
            job.process.wait()
            families = self.families()
            self.assertEqual(families["memshim_used_bytes"][1], [])
            self.assertEqual([value for _, value in families["memshim_process_killed"][1]], [1])
            self.assertEqual([value for _, value in families["memshim_process_running"][1]], [0])

    def test_names_are_inert(self) -> None:
        name = 'tr"ain\\er\n<b>\udcff\u202e'
        executable = self.folder / name
        shutil.copy(JOB, executable)
        with self.job(executable=executable) as job:
            job.do(f"weights {MIB}")
            ((labels, _),) = self.families()["memshim_used_bytes"][1]
            self.assertNotIn("\n", labels["program"])
            self.assertTrue(labels["program"].startswith('tr"ain\\er'), labels)
            (process,) = self.seen()
            self.assertTrue(process["program"].startswith('tr"ain\\er'))
            text = self.top().check().stdout
            self.assertEqual(len([line for line in text.splitlines() if " normal " in line]), 1)
            self.assertNotIn("\u202e", text)

    def test_waits_for_the_first_run(self) -> None:
        file = self.folder / "memshim.prom"
        command = [str(CLI), "top", str(self.output), "--prometheus", str(file), "--interval=0.1"]
        watcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert watcher.stderr
        try:
            self.assertIn("waiting for one", watcher.stderr.readline())
            with self.job() as job:
                wanted = [(str(job.known["pid"]), job.known["device_bytes"])]
                samples: list[Any] = []
                end = time.monotonic() + TIMEOUT_S
                while samples != wanted and time.monotonic() < end:
                    time.sleep(0.05)
                    families = parse_prometheus(file.read_text()) if file.exists() else {}
                    found = families.get("memshim_used_bytes", ("", []))[1]
                    samples = [(labels["pid"], value) for labels, value in found]
                self.assertEqual(samples, wanted)
        finally:
            watcher.terminate()
            watcher.communicate()
        self.assertEqual(watcher.returncode, 0)

    def test_a_name_that_nobody_reads(self) -> None:
        with self.job():
            result = self.top("--prometheus", self.folder / "metrics").check()
            self.assertIn("end in .prom", result.stderr)
            self.assertEqual(self.top("--prometheus", self.folder / "a.prom").check().stderr, "")

    def test_cannot_be_written(self) -> None:
        with self.job():
            said = self.refused("--prometheus", self.folder / "no" / "such" / "a.prom")
            self.assertIn("cannot write", said)


class Wrong(TopTest):
    def test_calls(self) -> None:
        for words in (
            ["--no-such"],
            ["--interval", "0"],
            ["--interval", "1e3"],
            ["--interval"],
            ["--interval="],
            ["--sites", "51"],
            ["--sites", "x"],
            ["--prometheus"],
            ["--json", "--prometheus", "x.prom"],
            ["--json", "--openmetrics", "x.txt"],
            ["--openmetrics"],
            [".", "."],
        ):
            with self.subTest(words):
                self.assertIn("--help", self.refused(*words, status=2))
        self.assertIn("Usage: memshim top", self.top("--help").check().stdout)

    def test_nothing_there(self) -> None:
        self.assertIn("no run is found in", self.refused())
        self.assertIn("No such file", self.refused(self.folder / "none"))
        self.output.mkdir()
        self.assertIn("holds no trace", self.refused(self.output))
        self.assertIn("no run is found in", self.refused())
        self.assertIn("there is no process with the id", self.refused("0"))
        self.assertIn("there is no process with the id", self.refused("99999999999999999999"))
        self.assertIn("there is no process", self.refused(str(2**31 - 1)))
        # One that memshim is not in.
        self.assertIn("writes a trace", self.refused(str(os.getpid())))

    def test_traces_that_cannot_be_read(self) -> None:
        with self.job(MEMSHIM_RUN_ID="mixed") as job:
            job.do(f"weights {MIB}")
            (folder,) = process_folders(self.output)
            trace = (folder / "trace.mshm").read_bytes()
            other = bytearray(trace)
            other[FORMAT_VERSION_OFFSET : FORMAT_VERSION_OFFSET + 2] = b"\x63\x00"
            broken = {
                "version": (bytes(other), "has format version 99"),
                "short": (trace[:1000], "too short"),
                "empty": (b"", "too short"),
                "text": (b"not a trace at all" * 10000, "is not a memshim trace"),
                "zeros": (bytes(1 << 20), "is empty"),
            }
            run_folder = folder.parent
            for name, (content, _) in broken.items():
                (run_folder / name).mkdir()
                (run_folder / name / "trace.mshm").write_bytes(content)
            # One that is just being made, and a folder of something else.
            (run_folder / "being-made").mkdir()
            (run_folder / "being-made" / "trace.mshm.new").write_bytes(b"")
            result = self.top("--json", run_folder).check(1)
            value = json.loads(result.stdout)
            self.assertEqual([p["pid"] for p in value["processes"]], [job.known["pid"]])
            whys = {Path(bad["path"]).name: bad["why"] for bad in value["unreadable"]}
            self.assertEqual(set(whys), set(broken))
            for name, (_, why) in broken.items():
                self.assertIn(why, whys[name])
                self.assertIn(str(run_folder / name), whys[name])
            text = self.top(run_folder).check(1).stdout
            self.assertEqual(text.count("not read: "), len(broken))
            # What is there and cut is read as far as it goes.
            (run_folder / "short" / "trace.mshm").write_bytes(trace[: 300 * 1024])
            self.assertEqual(self.top(run_folder / "short").check().stderr, "")


class StatusLine(TopTest):
    def lines(self, stderr: str) -> list[str]:
        return [line for line in stderr.splitlines() if "status: " in line]

    def test_by_steps(self) -> None:
        with self.job(MEMSHIM_STATUS_EVERY="2") as job:
            for step in range(1, 6):
                job.do(f"weights {2 * MIB}")
                job.do("step")
                if step == 4:
                    used, cap = self.only_device()["used_bytes"] / MIB, LIMIT / MIB
            lines = self.lines(job.end())
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[0].startswith("memshim: status: step 2, device 0: normal, used "))
        self.assertEqual(
            lines[1],
            f"memshim: status: step 4, device 0: normal, used {used:.1f} MiB of {cap:.1f} MiB "
            f"({used / cap * 100:.1f} %), live 8.0 MiB, reserved 8.0 MiB, fragmentation 0.0 %, "
            "on the host 0 B",
        )

    def test_by_time(self) -> None:
        with self.job(MEMSHIM_STATUS_EVERY="0.05s", RANK=3) as job:
            job.do("rounds 20 20")
            lines = self.lines(job.end())
        self.assertGreaterEqual(len(lines), 2)
        self.assertLessEqual(len(lines), 20)
        self.assertIn("status: rank 3, device 0: normal, used", lines[0])

    def test_by_time_until_a_step_is_told(self) -> None:
        with self.job(MEMSHIM_STATUS_EVERY="1") as job:
            job.do("rounds 15 100")
            job.do("step")
            stderr = job.end()
        first, *_, last = self.lines(stderr)
        self.assertIn("status: device 0: normal, used", first)
        self.assertIn("status: step 1, device 0: normal, used", last)
        self.assertEqual(stderr.count("MEMSHIM_STATUS_EVERY=1 counts training steps"), 1, stderr)

    def test_a_cache_is_no_fragmentation(self) -> None:
        with self.job(MEMSHIM_STATUS_EVERY="1") as job:
            job.do(f"weights {20 * MIB}")
            job.do(f"born 0 {3 * MIB}")
            job.do(f"born {10 * MIB} {6 * MIB}")
            job.do(f"died {10 * MIB} {6 * MIB}")
            job.do("step")
            line = self.lines(job.end())[-1]
        # Of the 17 MiB that are free, one lies beside the tensor in its granule. When reserved
        # bytes peaked, 9 MiB of tensors were live at most.
        self.assertIn(
            "live 3.0 MiB, reserved 20.0 MiB, in PyTorch's cache 16.0 MiB, fragmentation 55.0 %,",
            line,
        )

    def test_only_where_it_is_asked_for(self) -> None:
        quiet: dict[str, Any] = {"MEMSHIM_STATUS_EVERY": "1", "MEMSHIM_LOG": "off"}
        nothing: dict[str, Any] = {}
        for settings in (nothing, quiet):
            with self.subTest(settings), self.job(**settings) as job:
                job.do("step")
                job.do("rounds 3 1")
                self.assertEqual(self.lines(job.end()), [])

    def test_bad_values(self) -> None:
        for value in ("0", "0s", "-1", "1.5", "s", "5m", "1 s", "9999999", "often"):
            with self.subTest(value), self.job(MEMSHIM_STATUS_EVERY=value) as job:
                job.do("step")
                said = job.end()
                self.assertEqual(self.lines(said), [])
                self.assertIn("MEMSHIM_STATUS_EVERY", said)


if __name__ == "__main__":
    unittest.main()
