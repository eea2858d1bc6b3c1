# SPDX-License-Identifier: Apache-2.0
"""Instructions of hot roads, counted by callgrind, beside those that are known (roads.json).

    tests/bench/roads.py                  prints them, with what is known
    tests/bench/roads.py --write REASON   those that differ become the known ones, for that reason

What a road takes depends on the compiler and on the C library: roads.json has a table for each
such world. A road that takes 2 % more than it says there is a fault, or has a reason. The roads are
those of driver_roads.c, with a trace and, some of them, without, of room_roads.c, and of
python_road.c, which depends on Python's version as well. What the simulated GPU does, and what it
calls, is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MEMSHIM_BUILD", ROOT / "build")).resolve()
KNOWN = Path(__file__).resolve().with_suffix(".json")
PROGRAMS = BUILD / "tests" / "bench"
# Of roads.h: how often a road is walked, and how many of it that are each time.
WALKS = 5
EACH = 1600
MORE = 0.02
TIMES = 3
TIMEOUT_S = 240
# Without a trace only what a trace changes: the pool's own roads.
UNTRACED = ("pair", "tensor")
# What is read of a frame differs between versions of Python: each has a road of its own.
PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"

Counts = dict[str, float]
# Of a world: how many instructions each road takes, and why as many as that.
Table = dict[str, dict[str, dict[str, float | str]]]


class RoadsError(Exception):
    pass


@dataclass(frozen=True)
class Measured:
    world: str
    counts: Counts


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Nothing of MEMSHIM_ or SIMGPU_ that is set outside, and no file of an earlier run."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEMSHIM_", "SIMGPU_", "LD_"))
    }
    kept.update(XDG_CACHE_HOME=str(folder / "cache"), **settings)
    return kept


def driver_settings(folder: Path, trace: bool) -> dict[str, str]:
    # A small device: callgrind has few addresses.
    return {
        "LD_LIBRARY_PATH": str(BUILD / "simgpu"),
        "LD_PRELOAD": str(BUILD / "libmemshim.so"),
        "MEMSHIM_LOG": "off",
        "MEMSHIM_OUTPUT": str(folder / "out"),
        "MEMSHIM_TRACE": "on" if trace else "off",
        "SIMGPU_MEMORY": "128MiB",
        "SIMGPU_CONTEXT": "4MiB",
    }


def roads_of(program: str) -> list[str]:
    source = Path(__file__).with_name(f"{program}.c").read_text()
    return re.findall(r"^ROAD\((\w+)\)", source, re.MULTILINE)


def total_of(part: Path) -> int:
    """All that was counted, but for what the simulated GPU did, and what it called: the cost of a
    call, with all that was called in it, stands in the line after `calls=`."""
    total, simulated, into, of_a_call = 0, False, False, False
    for line in part.read_text().splitlines():
        if line.startswith("ob="):
            simulated = "/simgpu/" in line
        elif line.startswith("cob="):
            into = "/simgpu/" in line
        elif line[:1].isdigit():
            cost = int(line.split()[1])
            if not of_a_call:
                total += cost
            elif into and not simulated:
                total -= cost
            into = into and not of_a_call
        of_a_call = line.startswith("calls=")
    return total


def walk(folder: Path, program: str, *started: str | Path, **settings: str) -> Measured:
    """One program under callgrind, which leaves a part for each road of its source, in their order;
    how it is started."""
    (folder / "cache").mkdir(parents=True)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'part'}"]
    # Counting begins and ends with a pattern; a part is left for names alone.
    command += ["--compress-strings=no", "--compress-pos=no", "--toggle-collect=road_*"]
    command += [f"--dump-after=road_{road}" for road in roads_of(program)]
    done = subprocess.run(
        [*command, *started],
        env=environment(folder, **settings),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RoadsError(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    world, *names = done.stdout.splitlines()
    counts: Counts = {}
    for at, name in enumerate(names):
        parts = range(at * WALKS + 1, (at + 1) * WALKS + 1)
        totals = [total_of(folder / f"part.{part}") for part in parts]
        if 0 in totals:
            raise RoadsError(f"callgrind counted nothing on the road {name}")
        counts[name] = round(statistics.median(totals) / EACH, 1)
    return Measured(world, counts)


def measure_once() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver, room = PROGRAMS / "driver_roads", PROGRAMS / "room_roads"
        traced = walk(
            folder / "1", driver.name, driver, **driver_settings(folder / "1", trace=True)
        )
        untraced = walk(
            folder / "2", driver.name, driver, **driver_settings(folder / "2", trace=False)
        )
        rooms = walk(folder / "3", room.name, room, folder / "3")
        below = Path(__file__).with_name("python_road.py")
        python = walk(
            folder / "4",
            below.stem,
            *(sys.executable, "-S", "-E", below, PROGRAMS / "libpython_road.so"),
            **driver_settings(folder / "4", trace=True),
        )
    counts = traced.counts | rooms.counts | {PYTHON: python.counts["python"]}
    counts |= {f"{road}, no trace": untraced.counts[road] for road in UNTRACED}
    return Measured(traced.world, counts)


def measure(table: Table | None = None) -> Measured:
    """The least of several counts: the kernel chooses addresses anew for each process, and by how
    they fall into tables a road that is none of the shortest takes up to 1.5 % more. With what is
    known, counting ends as soon as no road takes more than that."""
    walked: list[Measured] = []
    while True:
        walked.append(measure_once())
        world = walked[0].world
        least = {road: min(one.counts[road] for one in walked) for road in walked[0].counts}
        found = Measured(world, least)
        good = table is not None and world in table and not findings(found, table)
        if good or len(walked) == TIMES:
            return found


def known() -> Table:
    table: Table = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    return table


def instructions(row: Mapping[str, float | str]) -> float:
    return float(row["instructions"])


def of_another_python(road: str) -> bool:
    return road.startswith("python ") and road != PYTHON


def findings(measured: Measured, table: Table) -> list[str]:
    """A sentence for each road that takes more than it may, that is not known, or that is gone. A
    version of Python that was never measured is no fault."""
    rows = {road: row for road, row in table[measured.world].items() if not of_another_python(road)}
    said = []
    for road, count in measured.counts.items():
        if road == PYTHON and road not in rows:
            continue
        if road not in rows:
            said.append(f"{road}: {count} instructions, which roads.json does not know")
        elif count > instructions(rows[road]) * (1 + MORE):
            was = instructions(rows[road])
            said.append(
                f"{road}: {count} instructions, {count / was - 1:.1%} more than the {was} known"
            )
    said += [f"{road}: no program walks it" for road in rows if road not in measured.counts]
    return said


def write(measured: Measured, reason: str, path: Path) -> list[str]:
    """The roads that are other than known get what was measured; returns their names."""
    table = known()
    rows = table.setdefault(measured.world, {})
    changed = []
    for road, count in measured.counts.items():
        was = instructions(rows[road]) if road in rows else 0.0
        if abs(count - was) > was * MORE / 4:
            rows[road] = {"instructions": count, "why": reason}
            changed.append(road)
    for road in set(rows) - set(measured.counts):
        if not of_another_python(road):
            del rows[road]
            changed.append(road)
    path.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")
    return changed


def show(measured: Measured, table: Table) -> None:
    rows = table.get(measured.world, {})
    print(f"{measured.world:34} {'instructions':>12} {'known':>9}")
    for road, count in measured.counts.items():
        before = f"{instructions(rows[road]):9.1f}" if road in rows else f"{'-':>9}"
        print(f"{road:34} {count:12.1f} {before}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", metavar="REASON", help="make what is measured the known counts")
    options = parser.parse_args()
    try:
        measured = measure()
    except (RoadsError, OSError) as error:
        print(f"roads.py: {error}", file=sys.stderr)
        return 1
    show(measured, known())
    if options.write:
        print("changed:", ", ".join(write(measured, options.write, KNOWN)) or "nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
