# SPDX-License-Identifier: Apache-2.0
"""One cap for several processes on a device: MEMSHIM_CAP_OF=run and MEMSHIM_GROUP."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import struct
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    MIB,
    TIMEOUT_S,
    ProcessTest,
    environment,
    process_folders,
    program,
    report_of,
    run,
)

CONTEXT = 32
CAP = 512
REGION_BYTES, SLOT_BYTES, SPARE_AT = 64, 120, 64  # shim/group/layout.h
KILLS = 1000 if os.environ.get("MEMSHIM_TEST_ALL") else 50


class Member:
    """A group_job: one line to it, one line from it."""

    def __init__(self, job: tuple[str, ...], shim: bool, errors: Path, **settings: Any) -> None:
        self.errors = errors
        with errors.open("wb") as said:
            self.process = subprocess.Popen(
                [str(program("group_job")), *job],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=environment(shim, **settings),
            )
        self.read("ready")

    def read(self, wanted: str = "") -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line or (wanted and line != wanted):
            raise AssertionError(f"{line!r}, and it said:\n{self.said()}")
        return line

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        self.send(line)
        return self.read()

    def number(self, line: str) -> int:
        return int(self.ask(line))

    def free_and_total(self) -> tuple[int, int]:
        free, total = self.ask("info").split()
        return int(free), int(total)

    def said(self) -> str:
        return self.errors.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.communicate()


class Group(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.name = f"test-{os.getpid()}-{self._testMethodName}"[:60]
        self.members: list[Member] = []
        self.addCleanup(self.end_all)

    def end_all(self) -> None:
        for member in self.members:
            member.kill()
        for left in Path("/dev/shm").glob(f"memshim-*-{self.name}-*"):
            left.unlink(missing_ok=True)

    def start(self, *job: str, shim: bool = True, **settings: Any) -> Member:
        world = {
            "MEMSHIM_OUTPUT": self.output,
            "MEMSHIM_RUN_ID": self.name,
            "MEMSHIM_CAP_OF": "run",
            "MEMSHIM_LIMIT": f"{CAP}MiB",
            "MEMSHIM_REPORT_WAIT": 0,
            "SIMGPU_MEMORY": "2GiB",
            "SIMGPU_CONTEXT": CONTEXT * MIB,
            "SIMGPU_SHARED": self.folder / "device",
        }
        errors = self.folder / f"said-{len(self.members)}"
        member = Member(job, shim, errors, **{**world, **settings})
        self.members.append(member)
        return member

    def watch(self) -> Member:
        return self.start("watch", shim=False)


class Cap(Group):
    def test_two_fill_it_together(self) -> None:
        watcher, one, two = self.watch(), self.start(), self.start()
        got = 0
        for _ in range(CAP):
            for member in (one, two):
                got += 16 * (member.ask("alloc 16") != "refused")
        self.assertEqual(got, CAP - 2 * CONTEXT)
        self.assertLessEqual(watcher.number("peak"), CAP)
        self.assertEqual(one.number("used") + two.number("used"), CAP)

    def test_a_refusal_names_who_has_the_rest(self) -> None:
        one, two = self.start(RANK=0), self.start(RANK=1)
        two.ask("alloc 400")
        self.assertEqual(one.ask("alloc 100"), "refused")
        self.assertRegex(
            one.said(), r"of the cap of 512.0 MiB, which it shares, 43\d.0 MiB are held by rank 1"
        )
        self.assertRegex(
            one.said(),
            r"asked for 100.0 MiB, .* short of what others leave of the cap \(.* of 512.0 MiB\)",
        )

    def test_the_report_names_who_has_the_rest(self) -> None:
        one, two = self.start(RANK=0, MEMSHIM_REPORT_WAIT=120), self.start(RANK=1)
        two.ask("alloc 400")
        self.assertEqual(one.ask("alloc 100"), "refused")
        held = two.number("used")
        one.end()
        (report,) = [
            report_of(folder)
            for folder in process_folders(self.output)
            if (folder / "report.json").exists()
        ]
        self.assertTrue(
            any(
                f"its cap of {CAP}.0 MiB is that of run-{self.name}, of which" in note
                for note in report["notes"]
            ),
            report["notes"],
        )
        event = report["oom_events"][0]
        shared = event["shared_cap"]
        self.assertEqual((shared["bytes"], shared["others"]), (CAP * MIB, 1))
        self.assertGreaterEqual(shared["others_bytes"], held * MIB)
        self.assertEqual(shared["largest"]["pid"], two.process.pid)
        self.assertEqual(shared["largest"]["rank"], 1)
        self.assertEqual(shared["largest"]["bytes"], shared["others_bytes"])
        self.assertEqual(event["verdict"], "cap")
        self.assertRegex(
            event["sentence"],
            r"which the cap \(512.0 MiB\) allows, but other processes of its group hold .* of it "
            rf"\(1, the largest rank 1, group_job, pid {two.process.pid}: ",
        )

    def test_a_request_above_the_whole_cap_blames_nobody(self) -> None:
        one, two = self.start(), self.start()
        two.ask("alloc 100")
        self.assertEqual(one.ask("alloc 600"), "refused")
        self.assertIn("but the cap does not allow", one.said())

    def test_what_one_frees_the_other_gets(self) -> None:
        watcher, one, two = self.watch(), self.start(), self.start()
        block = one.ask("alloc 400")
        self.assertEqual(two.ask("alloc 300"), "refused")
        one.ask(f"free {block}")
        self.assertNotEqual(two.ask("alloc 300"), "refused")
        self.assertEqual(one.ask("alloc 200"), "refused")
        self.assertLessEqual(watcher.number("peak"), CAP)

    def test_process_is_the_default(self) -> None:
        one = self.start(MEMSHIM_CAP_OF="process")
        two = self.start(MEMSHIM_CAP_OF="process")
        self.assertNotEqual(one.ask("alloc 400"), "refused")
        self.assertNotEqual(two.ask("alloc 400"), "refused")

    def test_without_the_pool(self) -> None:
        one, two = self.start(MEMSHIM_POOL="off"), self.start(MEMSHIM_POOL="off")
        block = one.ask("alloc 400")
        self.assertEqual(two.ask("alloc 300"), "refused")
        one.ask(f"free {block}")
        self.assertNotEqual(two.ask("alloc 300"), "refused")

    def test_mem_get_info(self) -> None:
        one, two = self.start(), self.start()
        self.assertEqual(one.free_and_total(), (CAP - 2 * CONTEXT, CAP))
        two.ask("alloc 200")
        self.assertEqual(one.free_and_total(), (CAP - 2 * CONTEXT - 200, CAP))

    def test_what_others_cannot_give_is_not_called_free(self) -> None:
        one, two = self.start(), self.start()
        for block in [two.ask("alloc 1") for _ in range(64)][::2]:
            two.ask(f"free {block}")  # half of each granule
        self.assertEqual(one.ask(f"alloc {CAP - 2 * CONTEXT}"), "refused")  # the other was asked
        free, _ = one.free_and_total()
        self.assertEqual(2 * one.number("fill 2"), free)

    def test_two_runs_of_one_name(self) -> None:
        settings: dict[str, Any] = {"MEMSHIM_CAP_OF": "process", "MEMSHIM_GROUP": self.name}
        one = self.start(MEMSHIM_RUN_ID=self.name + "-a", **settings)
        two = self.start(MEMSHIM_RUN_ID=self.name + "-b", **settings)
        one.ask("alloc 400")
        self.assertEqual(two.ask("alloc 300"), "refused")

    def test_the_device_is_known_by_its_uuid(self) -> None:
        """Device 1 of one is another device than device 0 of the other."""
        one, two = self.start(SIMGPU_DEVICES=2), self.start(SIMGPU_DEVICES=2)
        files = list(Path("/dev/shm").glob(f"memshim-*-{self.name}-*"))
        self.assertEqual(len(files), 1, files)
        one.ask("alloc 400")
        self.assertEqual(two.ask("alloc 300"), "refused")

    def test_a_name_that_is_none(self) -> None:
        one = self.start(MEMSHIM_CAP_OF="process", MEMSHIM_GROUP="../etc")
        self.assertIn("MEMSHIM_GROUP=../etc is not usable", one.said())

    def test_a_strange_file_is_refused(self) -> None:
        strange = self.start()
        strange.kill()
        (path,) = Path("/dev/shm").glob(f"memshim-*-{self.name}-*")
        path.chmod(0o644)
        one = self.start()
        self.assertRegex(one.said(), r"its cap limits only this process, not run-.*: other users")
        self.assertNotEqual(one.ask("alloc 400"), "refused")
        self.assertEqual(one.ask("alloc 200"), "refused")


class Shown(Group):
    """memshim top, by what the group's file says now."""

    def top(self, *arguments: str) -> str:
        folder = self.output / self.name
        return run([CLI, "top", "--once", "--sites", "0", *arguments, folder]).check().stdout

    def devices(self) -> dict[int, dict[str, Any]]:
        """The device of each process, by its pid."""
        processes = json.loads(self.top("--json"))["processes"]
        return {process["pid"]: process["devices"][0] for process in processes}

    def test_a_shared_cap(self) -> None:
        one, two = self.start(RANK=0), self.start(RANK=1)
        one.ask("alloc 100")
        two.ask("alloc 200")
        devices = self.devices()
        for member, mine, others in ((one, 100, 200), (two, 200, 100)):
            device = devices[member.process.pid]
            self.assertEqual(device["cap_bytes"], CAP * MIB)
            self.assertEqual(device["used_bytes"], (CONTEXT + mine) * MIB)
            self.assertEqual(device["others_bytes"], (CONTEXT + others) * MIB)
            self.assertEqual(device["free_bytes"], (CAP - 2 * CONTEXT - 300) * MIB)
            self.assertEqual(device["cap_of"], {"group": f"run-{self.name}", "processes": 2})
        said = (
            f"The cap of 512.0 MiB on device 0 is that of run-{self.name}: 2 processes use "
            f"364.0 MiB of it."
        )
        self.assertEqual(self.top().count(said), 1, self.top())
        two.kill()
        device = self.devices()[one.process.pid]
        self.assertEqual((device["others_bytes"], device["cap_of"]["processes"]), (0, 1))

    def test_members_of_another_run(self) -> None:
        settings: dict[str, Any] = {"MEMSHIM_CAP_OF": "process", "MEMSHIM_GROUP": self.name}
        one = self.start(**settings)
        two = self.start(MEMSHIM_RUN_ID=self.name + "-b", **settings)
        two.ask("alloc 200")
        self.assertEqual(list(self.devices()), [one.process.pid])
        device = self.devices()[one.process.pid]
        self.assertEqual(device["others_bytes"], (CONTEXT + 200) * MIB)
        self.assertEqual(device["cap_of"], {"group": f"group-{self.name}", "processes": 2})

    def test_metrics(self) -> None:
        one, two = self.start(RANK=0), self.start(RANK=1)
        two.ask("alloc 200")
        file = self.folder / "memshim.prom"
        self.top("--prometheus", str(file))
        (sample,) = re.findall(
            rf'memshim_others_bytes{{[^}}]*pid="{one.process.pid}"[^}}]*}} (\d+)', file.read_text()
        )
        self.assertEqual(int(sample), (CONTEXT + 200) * MIB)

    def test_a_cap_of_its_own(self) -> None:
        one = self.start(MEMSHIM_CAP_OF="process")
        self.start(MEMSHIM_CAP_OF="process").ask("alloc 200")
        device = self.devices()[one.process.pid]
        self.assertEqual((device["others_bytes"], device["cap_of"]), (0, None))
        self.assertNotIn("The cap of", self.top())


class Moved(Group):
    """Live memory moves to the host where it is cold, not where more is asked for."""

    SPILL: dict[str, Any] = {"MEMSHIM_SPILL": "auto", "MEMSHIM_SPILL_LIMIT": "2GiB"}

    def spare(self, member: Member) -> int:
        """What the member has told the group that it would give at once (shim/group/layout.h)."""
        (path,) = Path("/dev/shm").glob(f"memshim-*-{self.name}-*")
        region = path.read_bytes()
        for at in range(REGION_BYTES, len(region) - SLOT_BYTES + 1, SLOT_BYTES):
            if struct.unpack_from("<I", region, at) == (member.process.pid,):
                return int(struct.unpack_from("<Q", region, at + SPARE_AT)[0])
        raise AssertionError(f"no member {member.process.pid} in {path}")

    def let_it_be_noted(self, member: Member) -> None:
        """How much it had allocated by now: the member notes it twice a second, and then tells what
        it has spare."""
        self.assertEqual(self.spare(member), 0)
        member.ask(f"free {member.number('alloc 8')}")
        member.number("alloc 2")  # it looks then whether work still uses what was freed
        end = time.monotonic() + TIMEOUT_S
        while self.spare(member) == 0:
            self.assertLess(time.monotonic(), end, member.said())
            time.sleep(0.05)

    def test_the_cold_one_yields(self) -> None:
        watcher, cold = self.watch(), self.start(**self.SPILL)
        old = [cold.number("alloc 50") for _ in range(7)]
        for block in old:
            cold.ask(f"write {block}")
        self.let_it_be_noted(cold)
        hot = self.start(**self.SPILL)
        new = [hot.number("alloc 50") for _ in range(5)]
        for block in new:
            hot.ask(f"write {block}")
        self.assertGreaterEqual(hot.number("used"), 250 + CONTEXT)
        self.assertLessEqual(cold.number("used"), CAP - 250 - CONTEXT)
        for member, blocks in ((cold, old), (hot, new)):
            self.assertEqual(
                [member.ask(f"check {block}") for block in blocks], ["good"] * len(blocks)
            )
        self.assertLessEqual(watcher.number("peak"), CAP)

    def test_a_colder_one_asks(self) -> None:
        """Its own memory is the coldest: it moves that, and the other keeps what it has."""
        cold = self.start(**self.SPILL)
        old = [cold.number("alloc 50") for _ in range(4)]
        for block in old:
            cold.ask(f"write {block}")
        self.let_it_be_noted(cold)
        hot = self.start(**self.SPILL)
        new = [hot.number("alloc 50") for _ in range(4)]
        for block in new:
            hot.ask(f"write {block}")
        self.let_it_be_noted(hot)
        cold.ask(f"write {cold.number('alloc 100')}")
        self.assertGreaterEqual(hot.number("used"), 200 + CONTEXT)
        for member, blocks in ((cold, old), (hot, new)):
            self.assertEqual(
                [member.ask(f"check {block}") for block in blocks], ["good"] * len(blocks)
            )

    def test_both_ask_at_once(self) -> None:
        """Each needs what the other holds: nobody waits for ever, and every byte is right."""
        watcher = self.watch()
        members = [self.start(**self.SPILL) for _ in range(3)]
        for _ in range(6):
            for member in members:
                member.send("alloc 60")
            blocks = [member.read() for member in members]
            self.assertNotIn("refused", blocks)
            for member, block in zip(members, blocks, strict=True):
                member.send(f"write {block}")
            self.assertEqual([member.read() for member in members], ["done"] * 3)
        for number in range(6):
            for member in members:
                member.send(f"check {number}")
            self.assertEqual([member.read() for member in members], ["good"] * 3)
        self.assertLessEqual(watcher.number("peak"), CAP)


class Killed(Group):
    """What a killed member had comes back, and never too early."""

    def test_one(self) -> None:
        one, two = self.start(), self.start()
        one.ask("alloc 400")
        self.assertEqual(two.ask("alloc 300"), "refused")
        one.kill()
        self.assertNotEqual(two.ask("alloc 300"), "refused")

    def test_it_is_free_at_once(self) -> None:
        one, two = self.start(), self.start()
        one.ask("alloc 400")
        one.kill()
        self.assertEqual(two.free_and_total(), (CAP - CONTEXT, CAP))

    def test_one_that_is_stopped_keeps_what_it_has(self) -> None:
        one, two = self.start(), self.start()
        one.ask("alloc 400")
        one.process.send_signal(signal.SIGSTOP)
        self.assertEqual(two.ask("alloc 300"), "refused")

    def test_many(self) -> None:
        """Members that come, allocate at random, and are killed at random: the device never counts
        more than the cap for all of them, and in the end nobody's bytes are missing."""
        draw = random.Random(20)
        watcher = self.watch()
        churning: list[Member] = []
        for kill in range(KILLS):
            while len(churning) < 3:
                member = self.start(MEMSHIM_TRACE="off", MEMSHIM_LOG="off", MEMSHIM_WAIT_MS=50)
                member.send(f"churn {kill * 3 + len(churning)}")
                churning.append(member)
            time.sleep(draw.random() * 0.05)
            victim = churning.pop(draw.randrange(len(churning)))
            self.assertIsNone(victim.process.poll(), victim.said())
            victim.kill()
        for member in churning:
            member.kill()
        self.assertLessEqual(watcher.number("peak"), CAP)
        last = self.start()
        self.assertEqual(last.number("fill 16"), (CAP - CONTEXT) // 16)


if __name__ == "__main__":
    unittest.main()
