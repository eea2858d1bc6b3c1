# SPDX-License-Identifier: Apache-2.0
"""Files of memshim that are replaced or removed while programs run under it, as package managers do
it (a new file, renamed over the old one), and versions beside each other."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from machine import (
    CLI,
    INSTALLED,
    MIB,
    SIMGPU,
    TIMEOUT_S,
    ProcessTest,
    environment,
    process_folders,
    program,
    report_of,
    run,
    run_folders,
)
from standing_job import Job, StandingTest

VERSION = run([CLI, "--version"]).stdout.split()[1]
NEWER = "9" + VERSION[1:]
OLDER = "0.0" + VERSION[3:]  # as long as the version: it is put in its place
STATUS = "7"  # what the job ends with
MINOR_AT = 14  # of the format's version, in a trace


class Installation:
    """A prefix with a library and a command that call themselves this version."""

    def __init__(self, prefix: Path, version: str = VERSION) -> None:
        (prefix / "bin").mkdir(parents=True)
        (prefix / "lib").mkdir()
        self.command = prefix / "bin" / "memshim"
        self.library = prefix / "lib" / "libmemshim.so"
        self.replace(version)

    def replace(self, version: str) -> None:
        for source, target in ((CLI, self.command), (INSTALLED, self.library)):
            contents = source.read_bytes()
            stored = VERSION.encode() + b"\0"
            assert stored in contents, f"{source} does not name its version"
            new = target.with_name(f"{target.name}.new")
            new.write_bytes(contents.replace(stored, version.encode() + b"\0"))
            shutil.copymode(source, new)
            new.rename(target)

    def remove(self) -> None:
        self.command.unlink()
        self.library.unlink()


class Replaced(StandingTest):
    def setUp(self) -> None:
        super().setUp()
        self.installed = Installation(self.folder / "prefix")

    def allocate(self, job: Job) -> None:
        before = job.known["held_bytes"]
        self.assertEqual(job.do(f"weights {4 * MIB}")["held_bytes"], before + 4 * MIB)

    def ended(self, job: Job) -> str:
        """What it said at its end, which is its own, with its trace left whole."""
        self.allocate(job)
        said = job.end()
        self.assertEqual(job.process.returncode, int(STATUS), said)
        (folder,) = process_folders(self.output)
        self.folder_of_trace = folder
        return said

    def completed_by_hand(self, said: str) -> None:
        self.assertFalse((self.folder_of_trace / "report.txt").exists())
        command = re.search(r"make it with: memshim (report .*)", said)
        assert command, said
        run([CLI, *command[1].split()]).check()
        self.expect_report()

    def expect_report(self) -> None:
        report = report_of(self.folder_of_trace)
        self.assertEqual(report["versions"]["memshim"], VERSION)
        self.assertEqual(report["process"]["exit"], int(STATUS))
        self.assertEqual(report["devices"][0]["peak_live_bytes"], 8 * MIB)

    def test_upgrade(self) -> None:
        """Later versions read what earlier ones recorded, so the report is there as ever."""
        with self.job(STATUS, LD_PRELOAD=self.installed.library) as job:
            self.allocate(job)
            self.installed.replace(NEWER)
            self.assertNotIn(NEWER, self.ended(job))
        self.expect_report()

    def test_downgrade(self) -> None:
        with self.job(STATUS, LD_PRELOAD=self.installed.library) as job:
            self.allocate(job)
            self.installed.replace(OLDER)
            said = self.ended(job)
        self.assertIn(f"is version {OLDER}, the library {VERSION}", said)
        self.completed_by_hand(said)

    def test_removal(self) -> None:
        with self.job(STATUS, LD_PRELOAD=self.installed.library) as job:
            self.allocate(job)
            self.installed.remove()
            said = self.ended(job)
        self.completed_by_hand(said)


class Run(ProcessTest):
    def test_upgrade(self) -> None:
        """The programs that it starts after that are under the new version, in the same run."""
        installed = Installation(self.folder / "prefix")
        script = f"{program('end_job')} plain; echo first; read line; {program('end_job')} plain"
        process = subprocess.Popen(
            [installed.command, "run", "--", "bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(False, MEMSHIM_OUTPUT=self.output, LD_LIBRARY_PATH=SIMGPU),
        )
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "first\n")
        installed.replace(NEWER)
        _, said = process.communicate("on\n", timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 5, said)
        (folder,) = run_folders(self.output)
        folders = process_folders(self.output)
        versions = sorted(report_of(each)["versions"]["memshim"] for each in folders)
        self.assertEqual(versions, [VERSION, NEWER])
        self.assertTrue((folder / "report.txt").exists())


class Hosts(StandingTest):
    """Two hosts, which are namespaces with names of their own, and an output folder of both."""

    def on(self, host: str, rank: int, library: Path) -> contextlib.AbstractContextManager[Job]:
        script = self.folder / host
        script.write_text(
            '#!/bin/sh\nexec unshare --uts sh -c \'hostname "$0"; exec "$@"\' '
            f'{host} {program("top_job")} "$@"\n'
        )
        script.chmod(0o755)
        settings = {"RANK": rank, "WORLD_SIZE": 2, "MEMSHIM_RUN_ID": "77"}
        return self.job(STATUS, executable=script, LD_PRELOAD=library, **settings)

    def setUp(self) -> None:
        super().setUp()
        tried = run(["unshare", "--uts", "true"])
        if tried.status != 0:
            self.skipTest(f"no namespaces here: {tried.stderr.strip()}")

    def test_one_is_upgraded(self) -> None:
        """Its library is replaced between two jobs; the other's was not yet."""
        first = Installation(self.folder / "first")
        second = Installation(self.folder / "second")
        second.replace(NEWER)
        with self.on("node1", 0, first.library) as old, self.on("node2", 1, second.library) as new:
            for job in (old, new):
                job.do(f"weights {4 * MIB}")
            for job in (old, new):
                said = job.end()
                self.assertEqual(job.process.returncode, int(STATUS), said)
        reports = [report_of(each) for each in process_folders(self.output)]
        found = {
            (report["process"]["host"], report["versions"]["memshim"], report["process"]["rank"])
            for report in reports
        }
        self.assertEqual(found, {("node1", VERSION, 0), ("node2", NEWER, 1)})
        # Either version's command makes the report of both.
        for command in (first.command, second.command):
            text = run([command, "report", self.output / "77"]).check().stdout
            self.assertIn("2 processes on 2 hosts", text)
            self.assertIn(
                f"Recorded by different versions of memshim: {VERSION} (1 process, such as "
                f"rank 0), {NEWER} (1 process, such as rank 1).",
                text,
            )

    def test_one_writes_a_newer_format(self) -> None:
        """The old command says so of that host's traces, and reports the others'."""
        installed = Installation(self.folder / "prefix")
        with (
            self.on("node1", 0, installed.library) as first,
            self.on("node2", 1, installed.library) as second,
        ):
            for job in (first, second):
                job.do(f"weights {4 * MIB}")
            for job in (first, second):
                job.end()
        (trace,) = (self.output / "77").glob("*-node2-*/trace.mshm")
        contents = bytearray(trace.read_bytes())
        contents[MINOR_AT : MINOR_AT + 2] = (999).to_bytes(2, "little")
        trace.write_bytes(contents)
        result = run([CLI, "report", self.output / "77"]).check(1)
        self.assertIn("use the memshim that wrote it", result.stderr)
        self.assertIn("rank 0", result.stdout)


class SideBySide(StandingTest):
    def test_each_makes_its_own_report(self) -> None:
        old = Installation(self.folder / "old", OLDER)
        new = Installation(self.folder / "new", NEWER)
        with (
            self.job(STATUS, LD_PRELOAD=old.library) as first,
            self.job(STATUS, LD_PRELOAD=new.library) as second,
        ):
            for job in (first, second):
                job.do(f"weights {4 * MIB}")
            for job in (first, second):
                job.end()
                self.assertEqual(job.process.returncode, int(STATUS))
        reports = [report_of(each) for each in process_folders(self.output)]
        versions = sorted(report["versions"]["memshim"] for report in reports)
        self.assertEqual(versions, [OLDER, NEWER])

    def test_one_inside_the_other(self) -> None:
        """What is preloaded twice is a mistake of the environment: one of them works."""
        old = Installation(self.folder / "old", OLDER)
        new = Installation(self.folder / "new", NEWER)
        both = f"{new.library}{os.pathsep}{old.library}"
        with self.job(STATUS, LD_PRELOAD=both) as job:
            known = job.do(f"weights {4 * MIB}")
            said = job.end()
            self.assertEqual(job.process.returncode, int(STATUS), said)
        self.assertEqual(known["stats"]["live_bytes"], 4 * MIB)
        self.assertIn(f"{old.library} is preloaded as well, after this memshim", said)
        (folder,) = process_folders(self.output)
        self.assertEqual(report_of(folder)["versions"]["memshim"], NEWER)


if __name__ == "__main__":
    unittest.main()
