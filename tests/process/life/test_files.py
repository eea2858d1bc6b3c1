# SPDX-License-Identifier: Apache-2.0
"""What a process writes, and where: somebody else may have a hand in it."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import unittest
from collections.abc import Iterable
from pathlib import Path

from documents import BINARY_FORMS, TEXT_FORMS
from machine import (
    CLI,
    MIB,
    ROOT,
    ProcessTest,
    environment,
    process_folders,
    program,
    remove_output,
    run,
    run_of_three,
)

from report import test_top

# What a terminal obeys, or shows elsewhere than where it stands: controls of C0 and C1 (one of
# which begins an escape sequence as the escape does), marks that turn the direction of text.
HOSTILE = b"a\x1b[2J\xc2\x9b1m\xe2\x80\xaecod\xe2\x81\xa6\xd8\x9c\xe2\x80\x8f\xff\x07\rz"
OBEYED = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)


class CutTraces(test_top.TopTest):
    """A trace that somebody cuts while its process runs ends early; the process does not."""

    def cut(self, size: int) -> None:
        with self.job("7") as job:
            job.do(f"weights {MIB}")
            job.do("rounds 400 0")
            (folder,) = process_folders(self.output)
            os.truncate(folder / "trace.mshm", size)
            job.do("rounds 20000 0")
            said = job.end()
        self.assertEqual(job.process.returncode, 7)
        self.assertIn(f"the trace in {folder} ends early: its file was truncated", said)

    def test_to_nothing(self) -> None:
        self.cut(0)

    def test_behind_its_header(self) -> None:
        self.cut(262144)


class WithoutProc(ProcessTest):
    """As in a root folder of its own where nobody mounted it."""

    def test_there_is_a_trace(self) -> None:
        hidden = ["unshare", "-r", "-m", "bash", "-c", 'mount -t tmpfs none /proc && exec "$@"', ""]
        if run([*hidden, "true"]).status != 0:
            self.skipTest("nothing can be mounted here")
        for output in (str(self.output), "memshim-out"):
            with self.subTest(output):
                result = run(
                    [*hidden, program("trainer"), "--steps", "1"],
                    shim=True,
                    cwd=self.folder,
                    MEMSHIM_OUTPUT=output,
                ).check()
                (folder,) = process_folders(self.output)
                self.assertIn(f"trace in {folder}", result.stderr)
                self.assertNotIn("cannot be written", result.stderr)
                run([CLI, "report", folder]).check()
                remove_output(self.output)


class HostileNames(ProcessTest):
    """One string, on every road into memshim, in every form that comes out of it."""

    def said(self, command: Iterable[str | bytes | Path], **settings: str | bytes) -> bytes:
        """Everything that a command says, which a terminal shows as it is."""
        variables = {os.fsencode(name): os.fsencode(value) for name, value in settings.items()}
        done = subprocess.run(
            [os.fsencode(word) for word in command],
            env={**{os.fsencode(k): os.fsencode(v) for k, v in environment(False).items()}}
            | variables,
            capture_output=True,
            timeout=120,
        )
        out = done.stdout + done.stderr
        self.assertIn(done.returncode, (0, 1, 2, 64, 127), out)
        self.check(out)
        return out

    def check(self, out: bytes) -> None:
        found = OBEYED.search(out)
        self.assertIsNone(found, found and out[max(0, found.start() - 200) : found.end() + 40])

    def test_arguments(self) -> None:
        missing = os.fsencode(self.folder) + b"/" + HOSTILE
        for command in (
            (HOSTILE,),
            ("report", missing),
            ("report", "--format", HOSTILE),
            ("report", b"--" + HOSTILE),
            ("report", "--at", HOSTILE),
            ("diff", missing, missing),
            ("diff", b"--" + HOSTILE),
            ("replay", missing),
            ("replay", missing + b".csv"),
            ("replay", "--cap", HOSTILE, missing),
            ("replay", b"--" + HOSTILE),
            ("top", "--once", missing),
            ("top", "--once", "--json", missing),
            ("top", b"--" + HOSTILE),
            ("doctor", HOSTILE),
            ("options", HOSTILE),
            ("run", b"--" + HOSTILE, "true"),
            ("run", "--fraction", HOSTILE, "true"),
            ("run", "--", HOSTILE),
        ):
            with self.subTest(command=command):
                self.assertIn(b"\\x1b", self.said([CLI, *command]))

    def test_recordings(self) -> None:
        """Its name, and each field of it."""
        header = b"time_us,op,id,bytes,stream,site,addr\n"
        path = os.fsencode(self.folder) + b"/" + HOSTILE + b".csv"
        for rows in (
            HOSTILE + b",alloc,1,1,,,\n",
            b"0," + HOSTILE + b",1,1,,,\n",
            b"0,alloc," + HOSTILE + b",1,,,\n",
            b"0,alloc,1,1,,,\n0,fatal,,1000000000,," + HOSTILE + b",\n",
        ):
            Path(os.fsdecode(path)).write_bytes(header + rows.replace(b"\r", b""))
            for options in ((), ("--json",), ("--to-csv", "-"), ("--cap", "4MiB")):
                with self.subTest(rows=rows, options=options):
                    self.said([CLI, "replay", path, *options])

    def test_scripts(self) -> None:
        """A pickle, whose names are anybody's as well."""
        path = os.fsencode(self.folder) + b"/" + HOSTILE
        for content in (b"", b"c" + HOSTILE.replace(b"\xff", b"") + b"\nsystem\n."):
            Path(os.fsdecode(path)).write_bytes(content)
            importer = ROOT / "scripts" / "import_torch_snapshot.py"
            self.said([sys.executable, importer, path, b"-"])

    def read_all(self, folder: bytes, sole: bytes) -> None:
        """folder: a run's; sole: a process's in it."""
        for form in TEXT_FORMS:
            self.said([CLI, "report", sole, "--format", form])
        self.said([CLI, "report", folder])
        self.said([CLI, "diff", sole, sole])
        self.said([CLI, "diff", sole, sole, "--format", "json"])
        self.said([CLI, "replay", sole])
        self.said([CLI, "top", "--once", folder])
        self.said([CLI, "top", "--once", "--json", folder])
        page = os.fsencode(self.folder) + b"/page"
        for form in ("html", *sorted(BINARY_FORMS)):
            self.said([CLI, "report", sole, "--format", form, "--output", page])
            content = Path(os.fsdecode(page)).read_bytes()
            if form == "html":
                self.check(content[content.rindex(b'id="data"') :])
            else:
                content = gzip.decompress(content) if form == "pprof" else content
                for part in (b"\x1b[2J", b"\xc2\x9b1m", b"\xe2\x80\xae", b"\xe2\x81\xa6"):
                    self.assertNotIn(part, content)
        metrics = os.fsencode(self.folder) + b"/metrics"
        self.said([CLI, "top", "--once", "--prometheus", metrics, folder])
        self.check(Path(os.fsdecode(metrics)).read_bytes())

    def test_a_process(self) -> None:
        """Its program, arguments, options and the folder that it writes to."""
        output = os.fsencode(self.folder) + b"/out" + HOSTILE
        job = os.fsencode(self.folder) + b"/job" + HOSTILE
        shutil.copy(program("trainer"), os.fsdecode(job))
        Path(os.fsdecode(output)).mkdir()
        settings = environment(True, SIMGPU_CONTENTS="none")
        settings |= {"XDG_CACHE_HOME": str(self.folder), "MEMSHIM_OUTPUT": os.fsdecode(output)}
        hostile = ("FRACTION", "SPILL", "LOG", "UNHEARD")
        for name in ("TORCHELASTIC_RUN_ID", *(f"MEMSHIM_{option}" for option in hostile)):
            settings[name] = os.fsdecode(HOSTILE)
        said = self.said([job], **settings)
        self.assertIn(b"\\x1b", said)
        (sole,) = (where for where, _, files in os.walk(output) if b"trace.mshm" in files)
        for left in (b"report.txt", b"report.json", b"timeline.json"):
            self.check(Path(os.fsdecode(sole + b"/" + left)).read_bytes())
        self.read_all(os.fsencode(Path(os.fsdecode(sole)).parent), sole)

    def test_what_a_trace_names(self) -> None:
        """A function, a file and a tag (tests/unit/report/synthetic.h)."""
        run = run_of_three()
        for process in process_folders(run.parent):
            with self.subTest(process=process.name):
                self.read_all(os.fsencode(run), os.fsencode(process))


if __name__ == "__main__":
    unittest.main()
