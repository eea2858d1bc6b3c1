# SPDX-License-Identifier: Apache-2.0
"""The wheel, made of this build: what is in it, and that it works once it is installed.

scripts/package.sh makes the one that is published, and tries it in fresh systems.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import shutil
import sys
import unittest
import zipfile
from pathlib import Path

from machine import BUILD, ROOT, ProcessTest, process_folders, program, run

VERSION = "0.1.0"
MAKE = ROOT / "scripts" / "package" / "wheel.py"


def contents(package: Path) -> dict[Path, bytes]:
    """Without what Python compiles."""
    return {
        path: path.read_bytes()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


class Wheel(ProcessTest):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for tool in ("patchelf", "dpkg-query"):
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"{tool} is not installed")

    def make(self) -> Path:
        prefix = self.folder / "prefix"
        run(["cmake", "--install", BUILD, "--prefix", prefix]).check()
        made = run(
            [sys.executable, MAKE, prefix, "--version", VERSION, "--output", self.folder],
            SOURCE_DATE_EPOCH="1700000000",
        ).check()
        return Path(made.stdout.strip())

    def test_what_is_in_it(self) -> None:
        wheel = self.make()
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            info = f"memshim-{VERSION}.dist-info"
            rows = list(csv.reader(archive.read(f"{info}/RECORD").decode().splitlines()))
            self.assertEqual([name for name, _, _ in rows], names)
            for name, digest, size in rows[:-1]:
                data = archive.read(name)
                wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                self.assertEqual((digest, size), (f"sha256={wanted.rstrip('=')}", str(len(data))))
            executable = {
                entry.filename for entry in archive.infolist() if entry.external_attr >> 16 & 0o111
            }
            self.assertLessEqual(
                {"memshim/bin/memshim", "memshim/lib/libmemshim.so", "memshim/lib/libdw.so.1"},
                executable,
            )
            # Each bundled library's package has its licence there, and is named with its version.
            notice = archive.read(f"{info}/licenses/NOTICE.txt").decode()
            libraries = {
                Path(name).name
                for name in names
                if re.match(r"memshim/lib/[^/]+$", name) and not name.endswith("/libmemshim.so")
            }
            found = re.findall(r"^  (\S+) +(\S+) (\d\S+)$", notice, re.MULTILINE)
            self.assertEqual({library for library, _, _ in found}, libraries)
            metadata = archive.read(f"{info}/METADATA").decode()
            for _, package, _ in found:
                self.assertIn(f"{info}/licenses/{package}.txt", names)
                self.assertIn(f"License-File: {package}.txt\n", metadata)
            self.assertIn(f"{info}/licenses/LICENSE", names)
        # The same input gives the same bytes.
        first = wheel.read_bytes()
        shutil.rmtree(self.folder / "prefix")
        self.assertEqual(self.make().read_bytes(), first)

    def test_installed(self) -> None:
        wheel = self.make()
        place = self.folder / "environment"
        run([sys.executable, "-m", "venv", place]).check()
        python, command = place / "bin" / "python", place / "bin" / "memshim"
        run([python, "-m", "pip", "install", "-q", "--no-index", wheel]).check()
        (package,) = place.glob("lib/python*/site-packages/memshim")
        before = contents(package)
        self.assertIn(VERSION, run([command, "--version"]).check().stdout)
        self.assertTrue((place / "share" / "man" / "man1" / "memshim-run.1").exists())

        run(
            [python, "-m", "memshim", "run", "--output", self.output, "--", program("trainer")]
        ).check()
        (folder,) = process_folders(self.output)
        self.assertIn("trainer.c:", (folder / "report.json").read_text())
        self.assertTrue((folder / "report.html").exists())
        # The library that names functions is the one that came along.
        said = run([command, "report", self.output], LD_DEBUG="libs").check().stderr
        self.assertIn(f"calling init: {package.resolve()}/bin/../lib/libdw.so.1", said)

        # A program of the environment is found, though the environment is not on PATH.
        (place / "bin" / "only-there").symlink_to("/bin/true")
        run([command, "run", "--trace", "off", "--", "only-there"]).check()
        # What is installed is never written to.
        self.assertEqual(contents(package), before)

        # LD_PRELOAD cannot hold a blank.
        other = self.folder / "with a blank"
        shutil.copytree(package, other)
        said = run([other / "bin" / "memshim", "run", "--", "true"]).check(2).stderr
        self.assertIn("install memshim elsewhere", said)


if __name__ == "__main__":
    unittest.main()
