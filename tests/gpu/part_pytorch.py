# SPDX-License-Identifier: Apache-2.0
"""Part 13: PyTorch's own tests of memory, by name, without memshim and with it: equal sets. They
are no part of PyTorch's packages: `--torch-tests` names the folder test/ of its sources.

Each outcome is kept at once in pytorch-tests.json beside the results; what stands there, of the
same PyTorch and the same memshim, is not run again: a run goes on where another ended.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from world import ROOT, Fail, Part, Skip, World, main

sys.path.append(str(ROOT / "tests" / "torch"))  # it has files of the same names
import pytorch_tests  # noqa: E402

FILE = "pytorch-tests.json"
PROGRAM = ROOT / "tests" / "torch" / "pytorch_tests.py"
GROUPS = ("cuda", "expandable")
# Of a group's tests those whose name has one of these, a case for each.
NAMES: dict[str, tuple[str, ...]] = {
    "memory": ("*memory*", "*oom*"),
    "caching": ("*cach*", "*alloc*", "*Alloc*"),
    "pool": ("*pool*", "*Pool*"),
    "graph": ("*graph*", "*Graph*"),
    "expandable": ("*expandable*",),
    "blocks and segments": ("TestBlockStateAbsorption.*", "*segment*"),
}
SIDES = {"without memshim": False, "with memshim": True}
LEAST_S = 15.0
SAID = 4  # tests that are named where sets differ

Outcomes = dict[str, str]


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
    world: World, kept: Kept, side: str, group: str, patterns: list[str], again: bool
) -> Outcomes:
    """The outcomes of these patterns' tests; what is known is not run, unless `again`."""
    tests = pytorch_tests.GROUPS[group]
    folder = Path(world.torch_tests)
    found: Outcomes = {} if again else kept.of(side, group)
    log = world.work / f"pytorch-{side.replace(' ', '-')}.log"
    settings: dict[str, object] = {
        "PYTHONPATH": folder,
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
        more, done = pytorch_tests.one_process(
            command,
            world.environment(SIDES[side], settings),
            log,
            (lambda test, outcome: None) if again else partial(kept.add, side, group),
        )
        found.update(more)
        if done:
            return found
        if not more:
            words = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Fail(f"{tests.file} cannot be loaded {side}: {words[-1][:200]}")
    raise Skip(f"no time left, after {len(found)} tests {side}")


def passed(outcomes: Outcomes) -> int:
    return sum(outcome == "pass" for outcome in outcomes.values())


def compare(part: Part, kept: Kept, group: str, name: str) -> None:
    """Both sides at once; what differs is run again, by itself."""
    patterns = list(NAMES[name])
    with ThreadPoolExecutor(len(SIDES) if part.world.at_once > 1 else 1) as threads:
        runs = [
            threads.submit(go, part.world, kept, side, group, patterns, False) for side in SIDES
        ]
        alone, under = (run.result() for run in runs)
    differ = []
    for test in pytorch_tests.differences(alone, under):
        both = [go(part.world, kept, side, group, [test], True).get(test) for side in SIDES]
        if both[0] != both[1]:
            differ.append(f"{test}: {both[1]}, without memshim {both[0]}")
    figure = f"pytorch/{group}, {name}"
    part.figure(f"{figure}, tests so far", len(under))
    part.figure(f"{figure}, passed so far without memshim", passed(alone))
    part.figure(f"{figure}, passed so far with memshim", passed(under))
    if differ:
        raise Fail(f"{len(differ)} differ: {'; '.join(differ[:SAID])}")


def run(part: Part) -> None:
    world = part.world
    kept: list[Kept] = []
    with part.case("PyTorch's own tests are there"):
        if not world.torch_tests:
            raise Skip("--torch-tests names no folder of them")
        kept.append(Kept(world))
    if not kept:
        return
    for group in GROUPS:
        for name in NAMES:
            with part.case(f"PyTorch's tests: {group}, {name}"):
                world.need(LEAST_S)
                compare(part, kept[0], group, name)


if __name__ == "__main__":
    main(run)
