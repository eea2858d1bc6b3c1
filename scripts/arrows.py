# SPDX-License-Identifier: Apache-2.0
"""Holds the rooms against the table of them in CMakeLists.txt.

A file may include headers of its own folder and of the folders that its folder may use; outside of
shim/ it includes none of CUDA's. With --build, the built libraries are looked at too: a room may
call only functions of its own and of the rooms that it may use, and none that docs/architecture.md
rules out for it (RULED_OUT). And no two structs of the product have the same tag, not even two that
each file keeps to itself: a search, and a debugger, then find the one that is meant.

    arrows.py [--build DIR]     prints what breaks a rule; status 1 where something does
    arrows.py --sizes           prints how many files and lines each folder has
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = ("allocator", "report", "shim")
# What all rooms of a folder share, and says so itself: the pool's state and events, the interface.
SHARED = {
    "allocator/pool_state.h": "allocator/",
    "shim/memshim.h": "shim/",
    "shim/driver/glibc.h": "",
}
ENVIRONMENT = {"getenv", "secure_getenv", "environ", "__environ"}
PRINTING = {"printf", "puts", "fputs", "fprintf", "fwrite", "perror", "stdout", "stderr"}
FILES = {"open", "open64", "openat", "openat64", "creat", "fopen", "fopen64", "write", "pwrite"}
HEAP = {"malloc", "calloc", "realloc", "free", "strdup", "posix_memalign", "aligned_alloc"}
ENDING = {"exit", "_exit", "quick_exit", "abort"}
# What rooms must not call. The first row that is the room, or a folder around it, counts.
RULED_OUT = {
    "allocator/base": ENVIRONMENT | PRINTING | ENDING,
    "allocator": ENVIRONMENT | PRINTING | ENDING | FILES,
    "report/trace": ENVIRONMENT | PRINTING | ENDING | FILES | HEAP,
    "report/fold": ENVIRONMENT | PRINTING | ENDING | FILES | HEAP,
    "report/write": ENVIRONMENT | PRINTING | ENDING | HEAP,
    "report": ENVIRONMENT,
}


def table() -> dict[str, list[str]]:
    """Each room, and those that it names."""
    rows = re.findall(r"^room\(([^)]*)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    return {words[0]: words[1:] for words in (row.split() for row in rows)}


def reach(rooms: dict[str, list[str]], room: str) -> set[str]:
    """The room, and all that it may use."""
    found = {room}
    for used in rooms[room]:
        if used not in rooms:
            sys.exit(f"CMakeLists.txt: {room} uses {used}, which is no room")
        found |= reach(rooms, used)
    return found


def broken(rooms: dict[str, list[str]], file: Path) -> list[str]:
    name = file.relative_to(ROOT).as_posix()
    room = name.rsplit("/", 1)[0]
    if room not in rooms:
        return []
    may = reach(rooms, room)
    wrong = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not name.startswith("shim/") and re.match(r"\s*#\s*include <(cuda|nvml)", line):
            wrong.append(f"{name}:{number}: only shim/ knows CUDA")
        match = re.match(r'\s*#\s*include "([^"]+)"', line)
        if match is None or not match[1].startswith(TOP):
            continue
        included = match[1]
        shared = included in SHARED and name.startswith(SHARED[included])
        if not shared and included.rsplit("/", 1)[0] not in may:
            wrong.append(f"{name}:{number}: {room} may not use {included}")
    return wrong


def symbols(library: Path) -> tuple[set[str], dict[str, str]]:
    """The names that the library defines; those that its objects lack, each with such an object."""
    listed = subprocess.run(["nm", "-A", library], capture_output=True, text=True, check=True)
    defined: set[str] = set()
    lacking: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        match = re.match(r"[^:]*:(\S+)\.o:\s*[0-9a-f]*\s+(\w) (ms_\w+)$", line)
        if match is None:
            continue
        if match[2] == "U":
            lacking[match[3]] = match[1]
        elif match[2].isupper():
            defined.add(match[3])
    return defined, {name: lacking[name] for name in lacking if name not in defined}


def calls_upwards(rooms: dict[str, list[str]], build: Path) -> list[str]:
    room_of: dict[str, str] = {}
    lacking: dict[str, dict[str, str]] = {}
    for room in rooms:
        library = build / f"libms_{room.replace('/', '_')}.a"
        if not library.exists():
            continue
        defined, lacking[room] = symbols(library)
        room_of |= dict.fromkeys(defined, room)
    return [
        f"{room}/{file}: may not use {name} of {room_of[name]}"
        for room in lacking
        for name, file in sorted(lacking[room].items())
        if name in room_of and room_of[name] not in reach(rooms, room)
    ]


def calls_ruled_out(rooms: dict[str, list[str]], build: Path) -> list[str]:
    wrong = []
    for room in rooms:
        library = build / f"libms_{room.replace('/', '_')}.a"
        ruled_out = next(
            (RULED_OUT[name] for name in RULED_OUT if f"{room}/".startswith(f"{name}/")), set()
        )
        if not ruled_out or not library.exists():
            continue
        listed = subprocess.run(["nm", "-Au", library], capture_output=True, text=True, check=True)
        for file, name in re.findall(r"^[^:]*:(\S+)\.o:\s+U (\w+)", listed.stdout, re.MULTILINE):
            if name in ruled_out:
                wrong.append(f"{room}/{file}: may not use {name}")
    return wrong


def sources() -> list[Path]:
    return [
        file
        for top in TOP
        for file in sorted((ROOT / top).rglob("*"))
        if file.suffix in (".c", ".h", ".def")
    ]


def tags_twice(files: list[Path]) -> list[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for tag in re.findall(r"\b(?:struct|union|enum) (\w+) \{", file.read_text()):
            places[tag].append(file.relative_to(ROOT).as_posix())
    return [
        f"{tag} is defined more than once: {', '.join(at)}"
        for tag, at in sorted(places.items())
        if len(at) > 1
    ]


def sizes(files: list[Path]) -> str:
    """A line a folder, and the sum of each top folder."""
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file in files:
        folder = file.relative_to(ROOT).parent.as_posix()
        for name in {folder, f"all of {folder.partition('/')[0]}/"}:
            folders[name][0] += 1
            folders[name][1] += len(file.read_text().splitlines())
    return "\n".join(
        f"{count:4} files {lines:7,} lines  {name}"
        for name, (count, lines) in sorted(folders.items())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Holds the rooms against CMakeLists.txt.")
    parser.add_argument("--build", type=Path, help="a build folder, for what the libraries call")
    parser.add_argument("--sizes", action="store_true", help="print the folders' sizes instead")
    options = parser.parse_args()
    build: Path | None = options.build
    rooms = table()
    files = sources()
    if options.sizes:
        print(sizes(files))
        return 0
    wrong = [line for file in files for line in broken(rooms, file)] + tags_twice(files)
    if build is not None:
        wrong += calls_upwards(rooms, build) + calls_ruled_out(rooms, build)
    print("\n".join(wrong) if wrong else f"{len(rooms)} rooms, nothing points upwards")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
