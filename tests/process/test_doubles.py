# SPDX-License-Identifier: Apache-2.0
"""Doubles of a framework's libraries: what the simulated GPU lacks for one is said all at once."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

from machine import SIMGPU, ProcessTest, Result, run

BUILD = SIMGPU / "doubles" / "build.py"


class Lacking(ProcessTest):
    """A framework that imports what a newer driver has."""

    def make(self, *functions: str) -> None:
        libraries = self.folder / "torch" / "lib"
        libraries.mkdir(parents=True, exist_ok=True)
        (self.folder / "torch" / "__init__.py").touch()
        source = self.folder / "framework.c"
        source.write_text(
            "".join(
                f"void {name}(void); void u_{name}(void) {{ {name}(); }}\n" for name in functions
            )
        )
        made: list[str | Path] = ["-o", libraries / "libc10_cuda.so", source, "-Wl,--no-as-needed"]
        beside = [SIMGPU / "libcuda.so.1", SIMGPU / "libnvidia-ml.so.1"]
        subprocess.run(["cc", "-shared", "-fPIC", *made, *beside], check=True)

    def build(self) -> Result:
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        return run([sys.executable, BUILD, SIMGPU, cache], PYTHONPATH=self.folder).check()

    def test_all_are_named_in_one_line(self) -> None:
        self.make("cuMemAlloc_v2", "cuNewThing", "cuOtherThing_v3", "nvmlNewThing", "own_function")
        for _ in ("made", "kept"):
            (said,) = self.build().stderr.splitlines()
            for name in ("cuNewThing", "cuOtherThing_v3", "nvmlNewThing"):
                self.assertIn(f"{name} (", said)
            self.assertNotIn("cuMemAlloc_v2", said)
            self.assertNotIn("own_function", said)

    def test_nothing_is_said_where_nothing_lacks(self) -> None:
        self.make("cuMemAlloc_v2", "nvmlInit_v2")
        self.assertEqual(self.build().stderr, "")


if __name__ == "__main__":
    unittest.main()
