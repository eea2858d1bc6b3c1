# SPDX-License-Identifier: Apache-2.0
"""What stays as it is from version to version: the interface that programs were built against, and
traces that older versions wrote."""

from __future__ import annotations

import gzip
import json
import re
import struct
import unittest
from pathlib import Path

from machine import CLI, GIB, INSTALLED, MIB, ROOT, ProcessTest, run

HERE = Path(__file__).resolve().parent
INTERFACE = ROOT / "shim" / "interface.list"
HEADER = ROOT / "shim" / "memshim.h"
SONAME = "libmemshim.so.1"


def listed(kind: str) -> list[str]:
    return re.findall(rf"^{kind} (.*)$", INTERFACE.read_text(), re.MULTILINE)


def code(text: str) -> str:
    """Without comments, and with single blanks."""
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


class Interface(unittest.TestCase):
    def test_functions(self) -> None:
        found = {
            f"{name}({parameters}) -> {result.strip()}"
            for result, name, parameters in re.findall(
                r"MEMSHIM_API ([\w *]+?)(memshim_\w+)\(([^)]*)\);", code(HEADER.read_text())
            )
        }
        self.assertEqual(found, set(listed("function")))
        exported = run(["nm", "-D", "--defined-only", INSTALLED]).check().stdout
        for function in listed("function"):
            self.assertIn(f" T {function.partition('(')[0]}\n", exported)

    def test_members(self) -> None:
        found = []
        for name, body in re.findall(r"struct (\w+) \{(.*?)\};", code(HEADER.read_text())):
            for kind, names in re.findall(r"(\w+) ([\w, ]+);", body):
                found += [f"{name} {kind} {each.strip()}" for each in names.split(",")]
        self.assertEqual(found, listed("member"))

    def test_soname(self) -> None:
        """A program that links the library asks for this name; LD_PRELOAD takes the plain one."""
        dynamic = run(["readelf", "-dW", INSTALLED]).check().stdout
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.+)\]", dynamic), [SONAME])
        self.assertEqual(INSTALLED.readlink(), Path(SONAME))


class Traces(ProcessTest):
    def sample(self, version: str) -> Path:
        trace = self.folder / "trace.mshm"
        trace.write_bytes(gzip.decompress((HERE / "formats" / f"{version}.mshm.gz").read_bytes()))
        return trace

    def test_0_1(self) -> None:
        """tests/process/programs/trainer.c under --limit 590MiB --spill off, without a GPU."""
        trace = self.sample("0.1")
        magic, _, major, minor = struct.unpack_from("<8sIHH", trace.read_bytes())
        self.assertEqual((magic, major, minor), (b"\x8aMSHM\r\n\x1a", 3, 4))
        said = run([CLI, "report", "--format", "json", trace]).check().stdout
        report = json.loads(said)
        self.assertEqual(report["process"]["program"], "trainer")
        self.assertEqual(report["process"]["host"], "gpu-node")
        self.assertEqual(report["process"]["exit"], 3)
        self.assertEqual(report["versions"]["memshim"], "0.1.0")
        (device,) = report["devices"]
        self.assertEqual(device["total_bytes"], 24 * GIB)
        self.assertEqual(device["cap_bytes"], 590 * MIB)
        # Eight layers' weights, three layers' activations and so on, as the program asks for them.
        self.assertEqual((device["allocations"], device["frees"]), (27, 3))
        self.assertEqual(device["peak_live_bytes"], 195445248)
        (refused,) = report["oom_events"]
        self.assertEqual(refused["requested_bytes"], 16 * MIB)
        self.assertEqual(refused["verdict"], "cap")
        for form in ("text", "html", "timeline", "csv"):
            with self.subTest(form):
                run(
                    [CLI, "report", "--format", form, "--output", self.folder / form, trace]
                ).check()
                self.assertGreater((self.folder / form).stat().st_size, 0)


class Version(unittest.TestCase):
    def test_says_what_it_is(self) -> None:
        said = run([CLI, "--version"]).check().stdout
        lines = dict(re.findall(r"^  (\w[\w ]*?)  +(.*)$", said, re.MULTILINE))
        self.assertRegex(said, r"\Amemshim \d+\.\d+\.\d+\n")
        self.assertEqual(list(lines), ["commit", "compiler", "build id", "features"])
        for path in (CLI, INSTALLED):
            notes = run(["readelf", "-n", path]).check().stdout
            found = re.search(r"Build ID: (\w+)", notes)
            self.assertIn(found[1] if found else "none", lines["build id"])
        self.assertRegex(lines["commit"], r"^([0-9a-f]{12}( with changes)?|unknown)$")


if __name__ == "__main__":
    unittest.main()
