#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs an installation of memshim into a wheel, with the libraries that name functions.

PREFIX is what `cmake --install BUILD --prefix PREFIX` made. The command opens libdw when it names
functions. It comes along with what it needs, because a fresh system lacks it. The same input gives
the same bytes: times are those of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Every glibc system has these.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
OPENED = "libdw.so.1"
# What is compiled in: the page's charts, and the hash table's header.
COMPILED_IN = ("node-d3", "uthash-dev")
COMMON_LICENCES = Path("usr/share/common-licenses")
METADATA = """\
Metadata-Version: 2.4
Name: memshim
Version: {version}
Summary: A memory pool, a hard cap and a post-mortem for training on CUDA devices
License-Expression: Apache-2.0
{license_files}Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{description}
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: memshim scripts/package/wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = "[console_scripts]\nmemshim = memshim.__main__:main\n"
NOTICE = """\
memshim's wheel holds, beside memshim itself (Apache-2.0, LICENSE), unchanged but for their search
path, these libraries of {system}. Their sources are the distribution's source packages of
these versions; each licence is in the file of the package's name.

{rows}
"""


def fail(sentence: str) -> None:
    sys.exit(f"wheel.py: {sentence}")


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def dynamic(path: Path, tag: str) -> list[str]:
    """The values of a tag of the dynamic section, as readelf has them in brackets."""
    return re.findall(rf"\({tag}\).*\[(.+)\]", run("readelf", "-dW", path))


class System:
    """Where libraries and licences come from: a root made by debootstrap, or this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders = [
            root / "lib/x86_64-linux-gnu",
            root / "usr/lib/x86_64-linux-gnu",
            root / "lib64",
            root / "usr/lib64",
        ]

    def name(self) -> str:
        found = re.search(r'^PRETTY_NAME="(.*)"', (self.root / "etc/os-release").read_text(), re.M)
        return found[1] if found else "an unknown system"

    def library(self, name: str) -> Path:
        for folder in self.folders:
            if (folder / name).exists():
                return folder / name
        fail(f"{name} is not in {self.root}: install libdw1")
        raise AssertionError

    def with_what_it_needs(self, name: str) -> list[str]:
        found = [name]
        for each in found:
            for needed in dynamic(self.library(each), "NEEDED"):
                if needed not in SYSTEM and not needed.startswith("ld-") and needed not in found:
                    found.append(needed)
        return found

    def query(self, *arguments: str) -> str:
        return run("dpkg-query", f"--admindir={self.root / 'var/lib/dpkg'}", *arguments)

    def owner(self, name: str) -> str:
        """The package that a library comes from."""
        return self.query("--search", f"*/{name}").split(":")[0]

    def version(self, package: str) -> str:
        return self.query("--show", "--showformat=${Version}", package)

    def licence(self, package: str) -> Path:
        return self.root / "usr/share/doc" / package / "copyright"


def bundle_libraries(system: System, package: Path, licences: Path) -> None:
    """libdw and what it needs into lib/, which they and the command search first."""
    rows = []
    texts = set()
    for name in system.with_what_it_needs(OPENED):
        copy = package / "lib" / name
        shutil.copyfile(system.library(name), copy)
        copy.chmod(0o755)
        run("patchelf", "--set-rpath", "$ORIGIN", copy)
        owner = system.owner(name)
        rows.append(f"  {name:<16} {owner} {system.version(owner)}")
        texts.add(owner)
    run("patchelf", "--set-rpath", "$ORIGIN/../lib", package / "bin" / "memshim")
    for owner in sorted(texts | set(COMPILED_IN)):
        shutil.copyfile(system.licence(owner), licences / f"{owner}.txt")
    for text in sorted(texts | set(COMPILED_IN)):
        for name in re.findall(
            r"/usr/share/common-licenses/([A-Z]+-[\d.]*\d)", (licences / f"{text}.txt").read_text()
        ):
            source = system.root / COMMON_LICENCES / name
            if source.exists():
                shutil.copyfile(source, licences / f"{name}.txt")
    notice = NOTICE.format(system=system.name(), rows="\n".join(rows))
    notice += "\nCompiled in:\n\n"
    notice += "".join(f"  {name} {system.version(name)}\n" for name in COMPILED_IN)
    (licences / "NOTICE.txt").write_text(notice)


def lay_out(prefix: Path, system: System, tree: Path, version: str, platform: str) -> None:
    package = tree / "memshim"
    info = tree / f"memshim-{version}.dist-info"
    licences = info / "licenses"
    shutil.copytree(HERE / "memshim", package, ignore=shutil.ignore_patterns("__pycache__"))
    for inside in ("bin/memshim", "lib/libmemshim.so", "include/memshim.h"):
        (package / inside).parent.mkdir(exist_ok=True)
        shutil.copyfile(prefix / inside, package / inside)
    for inside in ("bin/memshim", "lib/libmemshim.so"):
        (package / inside).chmod(0o755)
        run("strip", "--strip-unneeded", package / inside)
    # The simulated GPU, for memshim dry-run; and what reads snapshots of PyTorch, for replay.
    shutil.copytree(prefix / "lib" / "memshim", package / "lib" / "memshim")
    for library in (package / "lib" / "memshim").rglob("*.so*"):
        run("strip", "--strip-unneeded", library)
    # Where an environment's manual pages and completions are looked for.
    shutil.copytree(prefix / "share" / "man", tree / f"memshim-{version}.data/data/share/man")
    for shell in ("bash-completion", "zsh", "fish"):
        shutil.copytree(
            prefix / "share" / shell, tree / f"memshim-{version}.data/data/share/{shell}"
        )
    licences.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", licences / "LICENSE")
    bundle_libraries(system, package, licences)
    files = sorted(path.name for path in licences.iterdir())
    readme = (ROOT / "README.md").read_text()
    (info / "METADATA").write_text(
        METADATA.format(
            version=version,
            license_files="".join(f"License-File: {name}\n" for name in files),
            description=readme[: readme.index("\n## Contents")],
        )
    )
    (info / "WHEEL").write_text(WHEEL.format(platform=platform))
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


def record_row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def members(tree: Path) -> Iterator[tuple[str, Path]]:
    """With dist-info last, as the standard wants it."""
    paths = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    for path in sorted(paths, key=lambda path: ".dist-info" in str(path)):
        yield path.relative_to(tree).as_posix(), path


def pack(tree: Path, wheel: Path, version: str) -> None:
    moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    record = f"memshim-{version}.dist-info/RECORD"
    rows = ""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, data)

        for name, path in members(tree):
            data = path.read_bytes()
            rows += record_row(name, data)
            add(name, data, 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        add(record, f"{rows}{record},,\n".encode(), 0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path, help="the installation")
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", default="linux_x86_64", help="the platform's tag")
    parser.add_argument(
        "--system", type=Path, default=Path("/"), help="the root that libdw is taken from"
    )
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the wheel")
    given = parser.parse_args()
    name = f"memshim-{given.version}-py3-none-{given.platform}.whl"
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        lay_out(given.prefix, System(given.system), tree, given.version, given.platform)
        made = Path(folder) / name
        pack(tree, made, given.version)
        shutil.copyfile(made, given.output / name)
    print(given.output / name)


if __name__ == "__main__":
    main()
