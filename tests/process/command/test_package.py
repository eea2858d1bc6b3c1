# SPDX-License-Identifier: Apache-2.0
"""The wheel, made of this build: what is in it, and that it works once it is installed.

scripts/package.sh makes the one that is published, and tries it in fresh systems.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from machine import BUILD, CLI, ROOT, ProcessTest, Result, process_folders, program, run

VERSION = "9.8.7"
SBOM = ROOT / "scripts" / "package" / "sbom.py"
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
        # The bill of materials has the same.
        bill = json.loads(run([sys.executable, SBOM, wheel]).check().stdout)
        named = {part["name"]: part["version"] for part in bill["components"]}
        self.assertEqual({name: named[name] for _, name, _ in found}, {n: v for _, n, v in found})
        self.assertEqual(set(named) - {name for _, name, _ in found}, {"node-d3", "uthash-dev"})
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
        built = run([CLI, "--version"]).check().stdout.splitlines()[:2]
        self.assertEqual(run([command, "--version"]).check().stdout.splitlines()[:2], built)
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


class Release(ProcessTest):
    """Of a repository of the test's own, whose packages are not built."""

    def setUp(self) -> None:
        super().setUp()
        names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
        someone = mock.patch.dict(os.environ, dict.fromkeys(names, "test@example.org"))
        someone.start()
        self.addCleanup(someone.stop)
        self.tree = self.folder / "tree"
        for name in ("setup.sh", "release.sh"):
            (self.tree / "scripts").mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "scripts" / name, self.tree / "scripts")
        (self.tree / ".gitignore").write_text("/build*/\n")
        (self.tree / "CMakeLists.txt").write_text("project(memshim VERSION 0.1.0 LANGUAGES C)\n")
        (self.tree / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]: 0.1.0\n\n- one\n")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *arguments: str) -> str:
        return run(["git", "-C", self.tree, *arguments]).check().stdout.strip()

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one")

    def release(self, *arguments: str) -> Result:
        script = self.tree / "scripts" / "release.sh"
        return run(
            [str(script), *arguments, "--artefacts", "source"], MEMSHIM_BUILD=self.tree / "build"
        )

    def test_dry(self) -> None:
        before = self.git("rev-parse", "HEAD")
        self.release("0.2.0", "--dry").check()
        self.assertEqual((self.git("rev-parse", "HEAD"), self.git("tag")), (before, ""))
        made = self.tree / "build" / "release" / "0.2.0"
        archive = made / "memshim-0.2.0.tar.gz"
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        self.assertIn(f"{digest}  {archive.name}\n", (made / "SHA256SUMS").read_text())
        with tarfile.open(archive) as source:
            lists, changes = (
                source.extractfile(f"memshim-0.2.0/{name}").read().decode()  # type: ignore[union-attr]
                for name in ("CMakeLists.txt", "CHANGELOG.md")
            )
        self.assertIn("VERSION 0.2.0 ", lists)
        self.assertRegex(changes, r"## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n- one")

    def test_real(self) -> None:
        self.release("0.2.0").check()
        self.assertEqual(self.git("tag"), "v0.2.0")
        self.assertEqual(self.git("log", "-1", "--format=%s", "v0.2.0"), "Release 0.2.0")
        self.assertEqual(self.git("rev-parse", "HEAD"), self.git("rev-parse", "v0.2.0^{}"))

    def test_refused(self) -> None:
        self.git("tag", "v0.3.0")
        for version, why in (("0.3.0", "there already"), ("0.2.0", "older"), ("v4", "not 'v4'")):
            with self.subTest(version):
                self.assertIn(why, self.release(version).check(1).stderr)
        (self.tree / "CHANGELOG.md").write_text("nothing\n")
        self.assertIn("commit them first", self.release("0.4.0").check(1).stderr)


if __name__ == "__main__":
    unittest.main()
