# SPDX-License-Identifier: Apache-2.0
"""Programs built by sanitizers and profilers, and run under debuggers and tracers: all stand where
memshim does, or look at what it does."""

from __future__ import annotations

import shutil
import unittest
from pathlib import Path
from typing import Any

from machine import ProcessTest, Result, only_report, program, run


def without_gdb(text: str) -> list[str]:
    """Its account of threads and processes, which are more under memshim, left out."""
    return [line for line in text.splitlines() if not line.startswith("[")]


class Tools(ProcessTest):
    def compare(self, *command: str | Path, **settings: Any) -> Result:
        """Runs it with and without memshim; says the same, and is recorded."""
        alone = run(command, cwd=self.folder, **settings)
        if alone.status != 0:
            self.skipTest(f"it does not run here: {alone.stderr[-200:]}")
        under = self.run_under_shim(*command, cwd=self.folder, **settings).check()
        self.assertEqual(without_gdb(alone.stdout), without_gdb(under.stdout))
        self.assertIn("done", under.stdout)
        self.assertGreater(only_report(self.output)["devices"][0]["allocations"], 700)
        return under

    def built(self, way: str, **settings: Any) -> None:
        job = program(f"tools_{way}_job")
        if not job.exists():
            self.skipTest("the compiler cannot build it")
        # What the simulated driver never frees is none of memshim's.
        leaks = self.folder / "leaks.supp"
        leaks.write_text("leak:libcuda.so\n")
        settings["LSAN_OPTIONS"] = f"suppressions={leaks}:print_suppressions=0"
        said = self.compare(job, **settings).stderr
        foreign = [line for line in said.splitlines() if not line.startswith("memshim: ")]
        self.assertEqual(foreign, [])

    def test_thread_sanitizer(self) -> None:
        self.built("thread")

    def test_address_sanitizer(self) -> None:
        """Whose shared library insists on being the first of all, whatever is preloaded."""
        self.built("address", ASAN_OPTIONS="verify_asan_link_order=0")

    def test_undefined_behaviour_sanitizer(self) -> None:
        self.built("undefined")

    def test_leak_sanitizer(self) -> None:
        self.built("leak")

    def test_profiler(self) -> None:
        self.built("profiled")
        self.assertTrue((self.folder / "gmon.out").exists())

    def tool(self, name: str) -> str:
        path = shutil.which(name)
        if path is None:
            self.skipTest(f"there is no {name}")
        return path

    def test_strace(self) -> None:
        strace = self.tool("strace")
        self.compare(strace, "-f", "-o", self.folder / "trace", program("tools_job"))

    def test_gdb(self) -> None:
        gdb = self.tool("gdb")
        self.compare(
            *(gdb, "-batch", "-nx", "-q"),
            *("-ex", "set debuginfod enabled off", "-ex", "run", "--args", program("tools_job")),
        )


if __name__ == "__main__":
    unittest.main()
