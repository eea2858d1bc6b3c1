# SPDX-License-Identifier: Apache-2.0
"""Dry runs of programs that need no PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import BUILD, ProcessTest, Result, run

CLI = BUILD / "memshim"
MIB = 1 << 20

# Takes memory of every device that there is, and says what they are.
PROGRAM = f"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
count, total, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(64)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
for device in range(count.value):
    context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
    call("cuDeviceGetName", name, 64, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t({96 * MIB}))
    print(name.value.decode(), total.value, flush=True)
"""


class DryRunTest(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        if "no private layer" in self.dry_run("--", "true").stderr:
            self.skipTest("this kernel lays no private layer over files")

    def cache(self) -> Path:
        folder = self.folder / "cache"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def program(self) -> list[str]:
        return ["--", sys.executable, "-c", PROGRAM]

    def dry_run(self, *arguments: str | Path, schedules: str = "one") -> Result:
        command = [CLI, "dry-run", "--schedules", schedules, *arguments]
        return run(command, cwd=self.folder, XDG_CACHE_HOME=self.cache())

    def unshared(self, script: str, *more: str) -> Result:
        """What bash says of the script in a mount namespace of its own; more: others as well."""
        command = ["unshare", "-r", "-m", *more, "bash", "-c", script]
        result = run(command, cwd=self.folder, XDG_CACHE_HOME=self.cache())
        if "unshare" in result.stderr or "mount:" in result.stderr:
            self.skipTest("nothing can be mounted here")
        return result

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A dry run whose input stays open."""
        return subprocess.Popen(
            [CLI, "dry-run", *arguments],
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def until(self, line: str, *arguments: str) -> subprocess.Popen[bytes]:
        """One whose command has just said this line."""
        running = self.begin(*arguments)
        assert running.stderr
        while running.stderr.readline().decode() != f"{line}\n":
            pass
        return running

    def answer(self, *arguments: str | Path) -> tuple[Result, dict[str, Any]]:
        result = self.dry_run("--json", *arguments)
        return result, json.loads(result.stdout)
