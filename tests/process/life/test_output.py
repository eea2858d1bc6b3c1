# SPDX-License-Identifier: Apache-2.0
"""Where the output cannot be written, or the process may not do much: the run goes on, and what
was done instead is said."""

from __future__ import annotations

import os
import resource
import shutil
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    MIB,
    SHIM,
    ProcessTest,
    Result,
    only_report,
    process_folders,
    program,
    run,
)

NOBODY = 65534


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def skip_unless_nobody_can_run_it(test: unittest.TestCase) -> None:
    if os.getuid() != 0:
        test.skipTest("needs root, to be somebody else")
    if run(["test", "-r", SHIM], preexec=as_nobody).status != 0:
        test.skipTest("the build folder is closed to others")


def limited(what: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (value, value))


class Elsewhere(ProcessTest):
    """MEMSHIM_OUTPUT cannot be written: a local folder is used, and named."""

    def setUp(self) -> None:
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(mode=0o777)
        self.temporary.chmod(0o777)
        self.folder.chmod(0o755)
        self.fallback = self.temporary / f"memshim-out-{os.getuid()}"

    def trainer(self, output: Path, **settings: Any) -> Result:
        return run(
            [program("trainer")],
            shim=True,
            MEMSHIM_OUTPUT=output,
            TMPDIR=self.temporary,
            SIMGPU_CONTENTS="none",
            **settings,
        ).check()

    def check_fallback(self, result: Result, fallback: Path) -> None:
        self.assertEqual(len(process_folders(fallback)), 1, result.describe())
        told = [line for line in result.stderr.splitlines() if str(fallback) in line]
        self.assertTrue(told, result.describe())
        self.assertGreater(only_report(fallback)["devices"][0]["allocations"], 0)

    def test_a_file_is_in_the_way(self) -> None:
        self.output.write_text("not a folder")
        self.check_fallback(self.trainer(self.output), self.fallback)
        self.assertEqual(self.output.read_text(), "not a folder")

    def test_no_such_file_system(self) -> None:
        self.check_fallback(self.trainer(Path("/proc/memshim-out")), self.fallback)

    def test_read_only(self) -> None:
        skip_unless_nobody_can_run_it(self)
        self.output.mkdir(mode=0o755)
        result = self.trainer(self.output, preexec=as_nobody)
        self.check_fallback(result, self.temporary / f"memshim-out-{NOBODY}")

    def test_nowhere_at_all(self) -> None:
        self.temporary = Path("/proc")
        result = self.trainer(Path("/proc/memshim-out"))
        self.assertIn("memshim: ", result.stderr)
        alone = run([program("trainer")]).check()
        self.assertEqual(alone.stdout, result.stdout)

    def test_run_finds_the_fallback(self) -> None:
        self.output.write_text("not a folder")
        result = run(
            [CLI, "run", "--output", self.output, program("life_job"), "quick"],
            TMPDIR=self.temporary,
        ).check(4)
        folders = process_folders(self.fallback)
        self.assertEqual(len(folders), 1, result.describe())
        self.assertTrue((folders[0] / "report.txt").exists(), result.describe())
        self.assertIn(str(self.fallback), result.stderr.splitlines()[-1])


class FullDisk(ProcessTest):
    """A file system of a few pages, in a mount name space of its own."""

    def on_small_disk(self, size_kib: int, script: str) -> Result:
        disk = self.folder / "disk"
        disk.mkdir()
        inside = f"mount -t tmpfs -o size={size_kib}k none {disk} || exit 77; {script}"
        result = run(["unshare", "-m", "bash", "-c", inside], TMPDIR=disk)
        if result.status in (1, 77) and ("unshare" in result.stderr or "mount" in result.stderr):
            self.skipTest("mounting is not allowed here")
        return result

    def job(self, size_kib: int, rounds: int) -> Result:
        """Runs a job whose records do not fit; says what is there to be read afterwards."""
        progress = self.folder / "progress"
        disk = self.folder / "disk"
        under = f"env LD_PRELOAD={SHIM} MEMSHIM_OUTPUT={disk}/out SIMGPU_CONTENTS=none"
        return self.on_small_disk(
            size_kib,
            f"{under} {program('victim')} {progress} 1 {rounds}; echo status $?;"
            f"{CLI} report {disk}/out/latest --format text; echo report $?",
        )

    def test_disk_fills_up_during_the_run(self) -> None:
        result = self.job(1500, 100_000)
        self.assertIn("status 0", result.stdout, result.describe())
        self.assertIn("report 0", result.stdout, result.describe())
        # What did not fit are events in detail; the sums know of all.
        self.assertRegex(result.stdout, r"allocations 100,000, frees 99,\d\d\d, refused 40")

    def test_disk_is_full_from_the_start(self) -> None:
        result = self.job(16, 1000)
        self.assertIn("status 0", result.stdout, result.describe())
        self.assertIn("No space left", result.stderr)

    def test_an_earlier_report_stays(self) -> None:
        run([program("trainer")], LD_PRELOAD=SHIM, MEMSHIM_OUTPUT=self.output).check()
        page = self.folder / "disk" / "page.html"
        result = self.on_small_disk(
            64,
            f"echo earlier > {page}; cp /dev/zero {page}.rest;"
            f"{CLI} report {self.output}/latest --format html --output {page}; echo report $?;"
            f"cat {page}",
        )
        self.assertIn(f"{page} cannot be written: No space left", result.stderr)
        self.assertEqual(result.stdout, "report 1\nearlier\n", result.describe())

    def test_an_earlier_report_stays_below_a_limit_of_files(self) -> None:
        run([program("trainer")], LD_PRELOAD=SHIM, MEMSHIM_OUTPUT=self.output).check()
        page = self.folder / "page.html"
        page.write_text("earlier")
        report: list[str | Path] = [CLI, "report", self.output / "latest", "--output", page]
        result = run(["prlimit", "--fsize=1024", *report, "--format", "html"]).check(1)
        self.assertIn(f"{page} cannot be written: File too large", result.stderr)
        self.assertEqual(page.read_text(), "earlier")
        for form in ("html", "text"):  # the second is the shorter one
            run([*report, "--format", form]).check()
        text = run([*report[:3], "--format", "text"]).check().stdout
        self.assertEqual(page.read_text(), text)


class Confined(ProcessTest):
    """Containers and their limits."""

    def check_job(self, **settings: Any) -> None:
        alone = run([program("trainer")], SIMGPU_CONTENTS="none").check()
        under = self.run_under_shim(program("trainer"), SIMGPU_CONTENTS="none", **settings).check()
        self.assertEqual(alone.stdout, under.stdout)
        self.assertGreater(only_report(self.output)["devices"][0]["allocations"], 0)

    def test_not_root(self) -> None:
        skip_unless_nobody_can_run_it(self)
        self.folder.chmod(0o755)
        self.output.mkdir()
        shutil.chown(self.output, NOBODY, NOBODY)
        self.check_job(preexec=as_nobody)

    def test_no_locked_memory(self) -> None:
        self.check_job(preexec=limited(resource.RLIMIT_MEMLOCK, 0))

    def test_few_open_files(self) -> None:
        self.check_job(preexec=limited(resource.RLIMIT_NOFILE, 40))

    def test_small_stack(self) -> None:
        self.check_job(preexec=limited(resource.RLIMIT_STACK, MIB))

    def test_small_files(self) -> None:
        """A limit on file sizes ends processes by a signal: not for our sake."""
        command = (program("life_job"), "small-files")
        alone = run(command).check()
        under = self.run_under_shim(*command).check()
        self.assertEqual(alone.stdout, under.stdout)

    def test_without_home_and_path(self) -> None:
        self.check_job(HOME="/nonexistent", PATH="")


if __name__ == "__main__":
    unittest.main()
