# SPDX-License-Identifier: Apache-2.0
"""Room on disk: which runs of an output folder go, and what never does."""

from __future__ import annotations

import os
import time
import unittest
from pathlib import Path

from machine import CLI, MIB, ProcessTest, Result, process_folders, program, run, run_folders

DAY_S = 86400
FILES = {"trace.mshm", "report.txt", "report.json", "report.html", "timeline.json"}


class Clean(ProcessTest):
    def made(self, name: str, days: float = 0) -> Path:
        """A run that ended so many days ago."""
        self.run_under_shim(program("trainer"), "--steps", "1", MEMSHIM_RUN_ID=name).check()
        (process,) = (self.output / name).iterdir()
        then = time.time() - days * DAY_S
        os.utime(process / "trace.mshm", (then, then))
        return self.output / name

    def clean(self, *arguments: str | Path, status: int = 0) -> Result:
        return run([CLI, "clean", *arguments, self.output]).check(status)

    def test_by_age(self) -> None:
        old, young = self.made("old", days=40), self.made("young", days=20)
        newest = self.made("newest")
        (old / "cards.json").write_text("{}")  # of a dry run
        said = self.clean("--keep", "30d").stdout
        self.assertEqual(run_folders(self.output), sorted([newest, young]))
        self.assertIn(str(old), said)
        self.assertRegex(said.splitlines()[-1], r"^1 run, .* removed$")

    def test_by_size(self) -> None:
        """The oldest go until the rest is small enough; the latest stays even where it is not."""
        for name, days in (("a", 3), ("b", 2), ("c", 1)):
            self.made(name, days)
        (last,) = (self.output / "c").iterdir()
        size = sum(path.stat().st_blocks * 512 for path in last.iterdir())
        self.clean("--keep", f"{2 * size / MIB + 0.2}MiB")
        self.assertEqual([path.name for path in run_folders(self.output)], ["b", "c"])
        self.clean("--keep", "1MiB")
        self.assertEqual([path.name for path in run_folders(self.output)], ["c"])
        self.assertEqual({path.name for path in last.iterdir()}, FILES)

    def test_dry(self) -> None:
        self.made("old", days=40)
        self.made("newest")
        said = self.clean("-n", "--keep", "30d").stdout
        self.assertRegex(said.splitlines()[-1], r"^1 run, .* would go$")
        self.assertEqual(len(run_folders(self.output)), 2)
        for folder in process_folders(self.output):
            self.assertEqual({path.name for path in folder.iterdir()}, FILES)

    def test_what_still_runs_stays(self) -> None:
        environment = {"MEMSHIM_OUTPUT": self.output, "MEMSHIM_RUN_ID": "old"}
        steps = ("--steps", "100000000")
        with self.running(program("trainer"), *steps, shim=True, **environment):
            while not process_folders(self.output):
                time.sleep(0.05)
            (process,) = process_folders(self.output)
            then = time.time() - 40 * DAY_S
            self.made("newest")
            os.utime(process / "trace.mshm", (then, then))
            self.clean("--keep", "30d")
            self.assertEqual(len(run_folders(self.output)), 2)

    def test_what_is_not_ours_stays(self) -> None:
        """Other files, other folders, and what links lead to."""
        old = self.made("old", days=40)
        self.made("newest")
        precious = self.folder / "precious"
        (precious / "process").mkdir(parents=True)
        for path in (precious / "process" / "trace.mshm", old / "notes.md", self.output / "x.txt"):
            path.write_text("mine")
        then = time.time() - 90 * DAY_S
        os.utime(precious / "process" / "trace.mshm", (then, then))
        (self.output / "link").symlink_to(precious)
        (old / "inner").symlink_to(precious / "process")
        (self.output / "checkpoints").mkdir()
        (self.output / "checkpoints" / "report.txt").write_text("mine")
        self.clean("--keep", "30d")
        self.assertEqual((precious / "process" / "trace.mshm").read_text(), "mine")
        self.assertEqual((old / "notes.md").read_text(), "mine")
        self.assertEqual((self.output / "x.txt").read_text(), "mine")
        self.assertEqual((self.output / "checkpoints" / "report.txt").read_text(), "mine")
        self.assertEqual(sorted(path.name for path in old.iterdir()), ["inner", "notes.md"])

    def test_by_itself(self) -> None:
        """With MEMSHIM_KEEP, the end of a run makes the room."""
        old = self.made("old", days=40)
        self.run_under_shim(program("trainer"), "--steps", "1", MEMSHIM_KEEP="30d").check()
        end = time.monotonic() + 60
        while old.exists() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(old.exists())
        self.assertEqual(len(process_folders(self.output)), 1)

    def test_wrong_calls(self) -> None:
        for arguments, complaint in (
            ([], "say what is to be kept: --keep 20GiB, --keep 30d or both"),
            (["--keep", "soon"], "not 'soon'"),
            (["--keep", "30d,40d"], "not '30d,40d'"),
            (["--keep", "0d"], "not '0d'"),
            (["--keep", "3"], "did you mean '3GiB'?"),
            (["--keep", "30d", self.folder], "is a second"),
        ):
            with self.subTest(arguments):
                self.output.mkdir(exist_ok=True)
                self.assertIn(complaint, self.clean(*arguments, status=2).stderr)
        missing = self.folder / "missing"
        result = run([CLI, "clean", "--keep", "30d", missing]).check(2)
        self.assertIn(f"'{missing}' is no folder", result.stderr)
        result = self.run_under_shim(program("trainer"), "--steps", "1", MEMSHIM_KEEP="soon")
        self.assertIn("MEMSHIM_KEEP=soon", result.check().stderr)


if __name__ == "__main__":
    unittest.main()
