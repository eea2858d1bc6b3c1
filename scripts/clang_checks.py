#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clang's checks of the .c files of a build, several files at once.

    scripts/clang_checks.py --build DIR locks
    scripts/clang_checks.py --build DIR tidy [all|changed|deep]

locks: what allocator/base/locks/lock_annotations.h says of each function of the product, and of
what locks guard, against what the functions do.
tidy: clang-tidy. all: every file; the analyzer leaves tests out, and has a bound on its work in a
function. changed: the files that differ from the commit before; the analyzer sees tests, too.
deep: every file, tests too, with the bound that the analyzer has by itself.

A file that was clean is checked again only when something has changed of what Clang sees of it: the
text after preprocessing with its comments and macros, the options, the settings, the version. That
is remembered in the user's cache folder. Exit status 1 when something was found.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("allocator", "report", "shim")
LOCKS = ("clang", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety")
# The analyzer takes four fifths of the time, and half of that for tests: these run under a
# sanitizer as well. Its own bound is 225000.
BOUND = ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=60000")
NO_ANALYZER = "--checks=-clang-analyzer-*"
KEPT_S = 60 * 86400  # how long a clean file that nobody asks for again is remembered


@dataclass(frozen=True)
class Check:
    """Of one file."""

    flags: Sequence[str]  # the preprocessor's
    path: str  # below ROOT
    command: Sequence[str]


def preprocessor_flags(command: str) -> list[str]:
    """Only what says what is compiled, since the build's compiler may be another one."""
    flags = []
    words = iter(shlex.split(command))
    for word in words:
        if word in ("-include", "-isystem"):
            flags += [word, next(words)]
        elif word.startswith(("-D", "-I", "-std=")):
            flags.append(word)
    return flags


def compile_commands(build: Path) -> dict[str, dict[str, str]]:
    """By file, for what the build compiles of the tree. What it compiles twice (MEMSHIM_CHECKS) is
    checked as the tests run it: clang-tidy's analyzer mixes up the two."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (Path(entry["directory"]) / entry["file"]).resolve()
        if path.suffix == ".c" and ROOT in path.parents and build not in path.parents:
            commands[str(path.relative_to(ROOT))] = entry
    return dict(sorted(commands.items()))


def lock_checks(build: Path) -> list[Check]:
    found = []
    for path, entry in compile_commands(build).items():
        if path.startswith(PRODUCT):
            flags = preprocessor_flags(entry["command"])
            found.append(Check(flags, path, (*LOCKS, *flags, path)))
    return found


def changed() -> set[str]:
    git = ["git", "-C", str(ROOT), "diff", "--name-only", "HEAD~1", "--", "*.c"]
    return set(subprocess.run(git, check=True, capture_output=True, text=True).stdout.splitlines())


def tidy_checks(build: Path, which: str) -> list[Check]:
    commands = compile_commands(build)
    database = build / "tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    wanted = changed() if which == "changed" else commands.keys()
    found = []
    for path, entry in commands.items():
        if path in wanted:
            command = ["clang-tidy", "--quiet", "-p", str(database)]
            if which != "deep":
                command += [f"--extra-arg={word}" for word in BOUND]
            if which == "all" and path.startswith("tests/"):
                command.append(NO_ANALYZER)
            found.append(Check(preprocessor_flags(entry["command"]), path, (*command, path)))
    return found


def clean_files() -> Path:
    """The folder of marks, without those that have not been asked for in a long time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memshim-checks"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        for mark in cache.iterdir():
            if time.time() - mark.stat().st_mtime > KEPT_S:
                mark.unlink()
    return cache


def settings() -> bytes:
    """What counts for every file."""
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    return version + (ROOT / ".clang-tidy").read_bytes()


def mark_of(check: Check, common: bytes, cache: Path) -> Path | None:
    """The file that stands in the cache once the check has passed. None where the file does not
    compile: the check says why."""
    clang = ["clang", "-E", "-CC", "-dD", *check.flags, check.path]
    seen = subprocess.run(clang, cwd=ROOT, capture_output=True)
    if seen.returncode != 0:
        return None
    # Wherever the tree and its build folder are.
    text = (shlex.join(check.command).encode() + seen.stdout).replace(str(ROOT).encode(), b"")
    return cache / hashlib.sha256(common + text).hexdigest()


def run(check: Check, common: bytes, cache: Path) -> str:
    """What was found; nothing where the file is clean."""
    mark = mark_of(check, common, cache)
    if mark is None or not mark.exists():
        done = subprocess.run(check.command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout or done.stderr
    with contextlib.suppress(OSError):
        if mark is not None:
            mark.touch()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Clang's checks of the .c files of a build.")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("check", choices=("locks", "tidy"))
    parser.add_argument("which", choices=("all", "changed", "deep"), nargs="?", default="all")
    options = parser.parse_args()
    build = options.build.resolve()
    checks = lock_checks(build) if options.check == "locks" else tidy_checks(build, options.which)
    cache, common = clean_files(), settings()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as at_once:
        found = list(at_once.map(lambda check: run(check, common, cache), checks))
    print("".join(found), end="")
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
