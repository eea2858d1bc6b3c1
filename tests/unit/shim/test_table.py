# SPDX-License-Identifier: Apache-2.0
"""Every row of hooks.def agrees with NVIDIA's own table of versions, cudaTypedefs.h."""

from __future__ import annotations

import os
import re
import unittest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
HEADERS = Path(os.environ.get("CUDA_HEADERS", "/usr/local/cuda/include"))
SUFFIXES = {"ANY": "", "LEGACY": "", "PER_THREAD": "(_ptsz|_ptds)"}

# Issue by issue, what the shim promises to stand in front of, in all its versions.
PROMISED = """
cuMemAlloc cuMemFree cuMemAllocPitch cuMemAllocManaged cuMemAllocAsync cuMemFreeAsync
cuMemAllocFromPoolAsync cuArrayCreate cuArray3DCreate cuArrayDestroy cuMipmappedArrayCreate
cuMipmappedArrayDestroy cuMemGetInfo cuDeviceTotalMem cuStreamCreate cuStreamCreateWithPriority
cuStreamDestroy cuCtxCreate cuCtxDestroy cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease
cuDevicePrimaryCtxReset cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuMemAddressReserve
cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemGetAccess
cuMemRetainAllocationHandle cuMemExportToShareableHandle cuMemImportFromShareableHandle
cuMemGetAllocationPropertiesFromHandle cuMemGetAddressRange cuPointerGetAttribute
cuPointerGetAttributes cuPointerSetAttribute cuMulticastBindMem cuMulticastBindAddr
cuMemGetHandleForAddressRange cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcCloseMemHandle
cuGetProcAddress
"""

# What is queued and still touches no memory of the pool's: the driver's own pools, mappings of
# pages that stay where they are, graphics' and other interfaces' objects.
QUEUED_AND_HARMLESS = """
cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemMapArrayAsync cuGLMapBufferObjectAsync
cuGLUnmapBufferObjectAsync cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync
cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification
"""

# Too new for the headers that the rest can be built with: who asks for them goes without spill.
LEFT_OUT = {"cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig"}


class Row(NamedTuple):
    symbol: str
    base: str
    version: int
    flavour: str
    parameters: str
    disposition: str


def words(text: str) -> str:
    """Parameters without names' spacing, so that only types and names are compared."""
    return re.sub(r"\s*([*,()])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def text_of_rows() -> str:
    tables = ROOT / "shim" / "tables"
    return "".join((tables / name).read_text() for name in ("hooks.def", "hooks_gated.def"))


def rows() -> list[Row]:
    table = text_of_rows()
    found = re.findall(
        r"^MS_HOOK\((\w+),\s*(\w+),\s*(\d+),\s*(\w+),\s*\(([^)]*)\),\s*\([^)]*\),\s*(\w+)",
        table,
        re.MULTILINE,
    )
    return [Row(symbol, base, int(version), *rest) for symbol, base, version, *rest in found]


def headers_version() -> int:
    version = re.search(r"^#define CUDA_VERSION (\d+)", (HEADERS / "cuda.h").read_text(), re.M)
    assert version
    return int(version[1])


class Table(unittest.TestCase):
    def setUp(self) -> None:
        self.rows = rows()
        text = (HEADERS / "cudaTypedefs.h").read_text()
        self.typedefs = {
            name: words(parameters)
            for name, parameters in re.findall(r"\*PFN_(cu\w+)\)\((.*)\);", text)
        }
        self.version = headers_version()

    def test_all_rows_are_read(self) -> None:
        table = text_of_rows()
        self.assertEqual(len(self.rows), len(re.findall(r"^MS_HOOK\(", table, re.MULTILINE)))
        self.assertEqual(len(self.rows), len({row.symbol for row in self.rows}))

    def test_names_are_such_as_dlsym_looks_at(self) -> None:
        """The exported dlsym jumps on where a name is not "cu" and a capital (dlsym.c)."""
        for row in self.rows:
            self.assertRegex(row.symbol, "^cu[A-Z]")

    def test_versions_and_types(self) -> None:
        for row in self.rows:
            if row.version > self.version:
                continue
            with self.subTest(row.symbol):
                pattern = f"{row.base}_v{row.version}{SUFFIXES[row.flavour]}"
                matches = [name for name in self.typedefs if re.fullmatch(pattern, name)]
                self.assertTrue(matches, f"cudaTypedefs.h has no {pattern}")

                def types(parameters: str) -> list[str]:
                    return [re.sub(r"(?<=[* ])\w+$", "", part) for part in parameters.split(",")]

                self.assertEqual(types(words(row.parameters)), types(self.typedefs[matches[0]]))

    def test_flavours_come_in_pairs(self) -> None:
        symbols = {row.symbol: row.flavour for row in self.rows}
        for row in self.rows:
            if row.flavour == "PER_THREAD":
                legacy = re.sub(r"_pt(sz|ds)$", "", row.symbol)
                self.assertEqual(symbols.get(legacy), "LEGACY", row.symbol)
            if row.flavour == "LEGACY":
                twins = [symbols.get(row.symbol + suffix) for suffix in ("_ptsz", "_ptds")]
                self.assertIn("PER_THREAD", twins, row.symbol)
            if row.flavour == "ANY":
                for suffix in ("_ptsz", "_ptds"):
                    self.assertNotIn(f"{row.base}_v{row.version}{suffix}", self.typedefs)

    def test_what_must_be_there(self) -> None:
        bases = {row.base for row in self.rows}
        for base in PROMISED.split():
            self.assertIn(base, bases)
            known = {
                int(version)
                for name in self.typedefs
                for version in re.findall(rf"^{base}_v(\d+)$", name)
            }
            here = {row.version for row in self.rows if row.base == base}
            self.assertLessEqual(known, here, f"{base}: versions that have no row")


class Gate(unittest.TestCase):
    """gate.def: every function of the driver's interface, in exactly one class."""

    def setUp(self) -> None:
        text = (ROOT / "shim" / "tables" / "gate.def").read_text()
        self.rows = re.findall(r"^MS_GATE\((\w+), (\w+)\)$", text, re.MULTILINE)
        self.gated = {base for base, kind in self.rows if kind in ("GATED", "WITHIN")}
        self.versions: dict[str, set[str]] = {}
        headers = sorted(HEADERS.glob("cuda*Typedefs.h"))
        self.assertTrue(headers)
        for header in headers:
            for base, version, flavour in re.findall(
                r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", header.read_text()
            ):
                self.versions.setdefault(base, set()).add(version + flavour)

    def test_each_function_of_the_headers_once(self) -> None:
        bases = [base for base, _ in self.rows]
        self.assertGreater(len(self.versions), 400)
        self.assertEqual(set(self.versions) - set(bases) - LEFT_OUT, set())
        self.assertEqual(len(bases), len(set(bases)))
        self.assertLessEqual({kind for _, kind in self.rows}, {"GATED", "WITHIN", "HARMLESS"})
        self.assertEqual(bases, sorted(bases))  # gate.c searches it

    def test_each_form_of_what_is_gated_has_a_hook(self) -> None:
        here: dict[str, set[str]] = {}
        for row in rows():
            flavour = re.search(r"_pt(sz|ds)$", row.symbol)
            here.setdefault(row.base, set()).add(f"{row.version}{flavour[0] if flavour else ''}")
        for base in sorted(self.gated):
            with self.subTest(base):
                self.assertEqual(self.versions.get(base, set()) - here.get(base, set()), set())

    def test_what_queues_work_is_gated(self) -> None:
        harmless = {base for base, kind in self.rows if kind == "HARMLESS"}
        named = re.compile(
            "Memcpy|Memset(?!Node)|cuLaunch|GraphLaunch|Async|Prefetch|Discard|Value(32|64)|MemOp"
        )
        found = {
            base
            for base in harmless
            if named.search(base)
            and not base.startswith(("cuGraphAdd", "cuGraphExec"))
            and "Node" not in base
        }
        self.assertEqual(found, set(QUEUED_AND_HARMLESS.split()))

    def test_only_what_is_gated_waits(self) -> None:
        waiting = {
            row.base
            for row in rows()
            if row.disposition in ("GATED", "TOUCHES", "COMPLETES", "LAUNCHED")
        }
        self.assertGreater(len(waiting), 50)
        self.assertLessEqual(waiting, self.gated)


if __name__ == "__main__":
    unittest.main()
