# SPDX-License-Identifier: Apache-2.0
"""Processes that bring their own C++ and unwind libraries, and exceptions thrown in them."""

from __future__ import annotations

import re
import shutil
import sys
import unittest
from pathlib import Path
from typing import Any

from machine import (
    PROGRAMS,
    SIMGPU,
    ProcessTest,
    Result,
    only_report,
    process_folders,
    program,
    run,
)

CXX_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libunwind.so.8", "libdw.so.1", "libelf.so.1")

# Allocates on the device before, inside and after the extension's exceptions.
THROW = """
import ctypes, sys
import thrower
cuda = ctypes.CDLL("libcuda.so.1")
def must(result):
    assert result == 0, result
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
def use_device():
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)))
    must(cuda.cuMemFree_v2(block))
if sys.argv[1] == "device":
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(cuda.cuCtxSetCurrent(context))
    use_device()
for _ in range(20):
    print(thrower.throw_and_catch(use_device if sys.argv[1] == "device" else (lambda: None)))
"""


def library(name: str) -> Path | None:
    """Where the loader's cache knows it."""
    cache = run(["/sbin/ldconfig", "-p"]).stdout
    found = re.search(rf"{re.escape(name)} \(libc6,x86-64\) => (\S+)", cache)
    return Path(found[1]).resolve() if found else None


class Exceptions(ProcessTest):
    def throw(self, *, device: bool, **settings: Any) -> Result:
        if not (PROGRAMS / "thrower.so").exists():
            self.skipTest("there was no C++ compiler")
        script = self.folder / "throw.py"
        script.write_text(THROW)
        command = [sys.executable, str(script), "device" if device else "none"]
        alone = run(command, PYTHONPATH=PROGRAMS, **settings).check()
        under = self.run_under_shim(*command, PYTHONPATH=PROGRAMS, **settings).check()
        self.assertEqual(alone.stdout, under.stdout)
        self.assertEqual(under.stdout, "('thrown at the bottom', 10)\n" * 20)
        return under

    def test_in_a_python_process(self) -> None:
        self.throw(device=False)

    def test_in_a_python_process_that_uses_the_device(self) -> None:
        self.throw(device=True)
        self.assertEqual(len(process_folders(self.output)), 1)

    def test_with_other_libraries_first(self) -> None:
        place = environment_folder(self.folder)
        self.throw(device=True, LD_LIBRARY_PATH=f"{place}:{SIMGPU}")


def environment_folder(folder: Path) -> Path:
    """A conda environment's lib folder: its own copies of the C++ and unwind libraries."""
    place = folder / "env" / "lib"
    place.mkdir(parents=True)
    for name in CXX_LIBRARIES:
        source = library(name)
        if source is not None:
            shutil.copy(source, place / name)
    return place


class Interceptors(ProcessTest):
    def test_that_ask_before_anything_runs(self) -> None:
        """As AddressSanitizer's do, in a program that is built with it."""
        self.assertEqual(run([program("early_job")]).check().stdout, "done\n")
        self.assertEqual(self.run_under_shim(program("early_job")).check().stdout, "done\n")
        self.assertTrue(only_report(self.output)["devices"])


class OtherCLibrary(ProcessTest):
    def test_without_dlsym(self) -> None:
        """As one that calls it otherwise: a copy whose name for it is another."""
        real = library("libc.so.6")
        if real is None:
            self.skipTest("no libc.so.6 in the loader's cache")
        (self.folder / "libc.so.6").write_bytes(
            real.read_bytes().replace(b"\0dlsym\0", b"\0dlsyn\0")
        )
        path = f"{self.folder}:{SIMGPU}"
        alone = run([program("tools_job")], LD_LIBRARY_PATH=path).check()
        under = self.run_under_shim(program("tools_job"), LD_LIBRARY_PATH=path).check()
        self.assertEqual(alone.stdout, under.stdout)
        self.assertEqual(under.stderr.count("this C library's dlsym was not found"), 1)


class OtherLibraries(ProcessTest):
    def compare(self, place: Path) -> None:
        path = f"{place}:{SIMGPU}"
        for name in ("trainer", "driver_resolved_job"):
            alone = run([program(name)], LD_LIBRARY_PATH=path).check()
            under = self.run_under_shim(program(name), LD_LIBRARY_PATH=path).check()
            self.assertEqual(alone.stdout, under.stdout)

    def test_copies_of_a_conda_environment(self) -> None:
        self.compare(environment_folder(self.folder))

    def empty_libraries(self) -> Path:
        place = self.folder / "empty"
        place.mkdir()
        for name in ("libunwind.so.8", "libdw.so.1"):
            shutil.copy(PROGRAMS / "libempty.so", place / name)
        return place

    def test_libraries_that_have_nothing_in_them(self) -> None:
        self.compare(self.empty_libraries())

    def test_names_are_missed_aloud(self) -> None:
        """A report that nobody can name native functions for says so, and what to install."""
        for path, named in ((f"{SIMGPU}", True), (f"{self.empty_libraries()}:{SIMGPU}", False)):
            output = self.folder / f"named-{named}"
            settings: dict[str, Any] = {"MEMSHIM_OUTPUT": output, "LD_LIBRARY_PATH": path}
            run([program("trainer")], shim=True, **settings).check()
            report = only_report(output)
            functions = [f["function"] for s in report["call_sites"] for f in s["frames"]]
            self.assertEqual(report["trace"]["native_names"], named)
            self.assertEqual("main" in functions, named)
            (folder,) = process_folders(output)
            text = (folder / "report.txt").read_text()
            self.assertEqual("libdw1" in text, not named)


if __name__ == "__main__":
    unittest.main()
