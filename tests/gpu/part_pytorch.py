# SPDX-License-Identifier: Apache-2.0
"""Part 13: PyTorch's own tests of memory, by name, without memshim and with it: equal sets. They
are no part of PyTorch's packages: `--torch-tests` names the folder test/ of its sources.

Each outcome is kept at once in pytorch-tests.json beside the results; what stands there, of the
same PyTorch and the same memshim, is not run again: a run goes on where another ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from world import ROOT, Fail, Part, Skip, World, main

sys.path.append(str(ROOT / "tests" / "torch"))  # it has files of the same names
import pytorch_tests  # noqa: E402

FILE = "pytorch-tests.json"
PROGRAM = ROOT / "tests" / "torch" / "pytorch_tests.py"
GROUPS = ("cuda", "expandable")
# Of a group's tests those whose name has one of these: a case for each.
NAMES: dict[str, tuple[str, ...]] = {
    "memory": ("*memory*", "*oom*"),
    "caching": ("*cach*", "*alloc*", "*Alloc*"),
    "pool": ("*pool*", "*Pool*"),
    "graph": ("*graph*", "*Graph*"),
    "expandable": ("*expandable*",),
    "blocks and segments": ("TestBlockStateAbsorption.*", "*segment*"),
}
SIDES = {"without memshim": False, "with memshim": True}
ALL = [pattern for patterns in NAMES.values() for pattern in patterns]
NONE: list[str] = []  # loads the file, and runs nothing
LEAST_S = 15.0
SAID = 4  # tests that are named where sets differ

Outcomes = dict[str, str]
Tell = Callable[[str, str], None]  # a test and its outcome


class Kept:
    """All outcomes so far: of each side and group, by test."""

    def __init__(self, world: World) -> None:
        self.path = world.out / FILE
        self.lock = threading.Lock()
        probe = "import torch; print(torch.__version__)"
        version = world.run([world.need_python(), "-c", probe], torch=True).check().stdout.strip()
        library = hashlib.sha256(world.shim.read_bytes()).hexdigest()
        of = {"torch": version, "memshim": library}
        self.value: dict[str, dict[str, Outcomes]] = {"of": {"": of}}
        if self.path.exists():
            before = json.loads(self.path.read_text())
            if before.get("of") == self.value["of"]:
                self.value = before

    def of(self, side: str, group: str) -> Outcomes:
        with self.lock:
            return dict(self.value.get(side, {}).get(group, {}))

    def add(self, side: str, group: str, test: str, outcome: str) -> None:
        with self.lock:
            self.value.setdefault(side, {}).setdefault(group, {})[test] = outcome
            beside = self.path.with_name(f".{FILE}")
            beside.write_text(json.dumps(self.value, indent=1) + "\n")
            beside.replace(self.path)


def go(
    world: World, side: str, group: str, patterns: Sequence[str], found: Outcomes, tell: Tell
) -> bool:
    """Runs these patterns' tests but for those found already, and adds what it finds. Whether it
    came to the end."""
    tests = pytorch_tests.GROUPS[group]
    folder = Path(world.torch_tests)
    log = world.work / f"pytorch-{side.replace(' ', '-')}.log"
    settings: dict[str, object] = {
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
        "TEMP_DIR": world.work,
        "MEMSHIM_OUTPUT": world.work / "memshim-out",
        **tests.settings,
    }
    while world.left_s() > LEAST_S:
        skip = world.work / f"skip-{threading.get_ident()}.json"
        skip.write_text(json.dumps(list(found)))
        command = [str(ROOT / "scripts" / "simgpu.sh")] if world.simulated else []
        command += [world.python, str(PROGRAM), "--child", str(folder / tests.file)]
        command += [json.dumps(patterns), str(skip), tests.before]
        environment = world.environment(SIDES[side], settings)
        more, done = pytorch_tests.one_process(command, environment, log, tell)
        found.update(more)
        if done:
            return True
        if not more:
            words = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Fail(f"{tests.file} cannot be loaded {side}: {words[-1][:200]}")
    return False


def alone_again(world: World, side: str, group: str, test: str) -> str:
    found: Outcomes = {}
    go(world, side, group, [test], found, lambda test, outcome: None)
    return found.get(test, "not run")


def compare(part: Part, kept: Kept, group: str, name: str, complete: bool) -> None:
    """What is known of both sides; what differs is run again, by itself."""
    alone, under = (
        {
            test: outcome
            for test, outcome in kept.of(side, group).items()
            if any(fnmatchcase(test, pattern) for pattern in NAMES[name])
        }
        for side in SIDES
    )
    both = alone.keys() & under.keys()
    figure = f"pytorch/{group}, {name}"
    part.figure(f"{figure}, tests", len(both))
    for side, outcomes in zip(SIDES, (alone, under), strict=True):
        passed = sum(outcomes[test] == "pass" for test in both)
        part.figure(f"{figure}, passed {side}", passed)
    differ = []
    for test in sorted(both):
        if alone[test] != under[test]:
            one, other = (alone_again(part.world, side, group, test) for side in SIDES)
            if one != other or "not run" in (one, other):
                differ.append(f"{test}: {under[test]}, without memshim {alone[test]}")
    if differ:
        raise Fail(f"{len(differ)} differ: {'; '.join(differ[:SAID])}")
    if not complete:
        raise Skip(f"no time left: {len(both)} tests so far, with equal outcomes")


def run_group(part: Part, kept: Kept, group: str) -> None:
    """Both sides at once."""
    complete: list[bool] = []

    def one(side: str) -> bool:
        found = kept.of(side, group)
        return go(part.world, side, group, ALL, found, partial(kept.add, side, group))

    with part.case(f"PyTorch's tests run: {group}"):
        with ThreadPoolExecutor(len(SIDES) if part.world.at_once > 1 else 1) as threads:
            complete += threads.map(one, SIDES)
        if not all(complete):
            raise Skip("no time left; another run with the same results folder goes on from here")
    for name in NAMES:
        with part.case(f"PyTorch's tests: {group}, {name}"):
            compare(part, kept, group, name, bool(complete) and all(complete))


def run(part: Part) -> None:
    world = part.world
    kept: list[Kept] = []
    with part.case("PyTorch's own tests are there"):
        if not world.torch_tests:
            raise Skip("--torch-tests names no folder of them")
        kept.append(Kept(world))
        try:
            go(world, "without memshim", GROUPS[0], NONE, {}, lambda test, outcome: None)
        except Fail as problem:
            kept.clear()
            raise Skip(str(problem)) from None
    if kept:
        for group in GROUPS:
            run_group(part, kept[0], group)


if __name__ == "__main__":
    main(run)
