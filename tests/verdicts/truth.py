# SPDX-License-Identifier: Apache-2.0
"""What is true of a job of the corpus; read from its source, so that reading needs no PyTorch."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
STRANGERS = FOLDER / "strangers"
MARK = re.compile(r"# culprit(?:: (?P<jobs>[\w, -]+))?$")


@dataclass(frozen=True)
class Truth:
    """One job. Sizes in MiB of the simulated GPU's world are settings; the rest is the truth."""

    name: str
    reason: str  # "graph kept", "optimizer made late", and so on
    verdict: str  # a word of report.md; "none": the job ends well
    when: str  # before, first, second, tenth, hundredth (the step, roughly)
    where: str  # forward, backward, optimizer, evaluation, setup
    keeps: str  # who keeps the memory, for a person
    names: str = "grows"  # grows, holds, asks: as what the report names the culprit; none
    memory_mib: int = 1024  # of the device
    cap_mib: int = 0  # MEMSHIM_LIMIT; 0: all of the device
    mode: str = "native"  # native, tensor, off, pool-off
    spill_mib: int = 0  # MEMSHIM_SPILL_LIMIT; 0: no spilling
    ranks: int = 1
    loop: str = "plain"  # or the package that runs it
    batch: int = 0  # samples; 0: the job's size does not follow a batch
    fits: int = 0  # the largest batch that runs with all of it on the device, to 1 %; 0: not tried
    short_mib: float = -1  # bytes short at the refusal; -1: follows from no simple sum
    settings: str = ""  # further variables, NAME=VALUE, separated by blanks
    file: str = ""
    function: str = ""  # empty: the file is a program of its own, of strangers/
    arguments: str = ""  # of such a program; {batch} stands for the batch
    culprits: tuple[str, ...] = ()  # FILE:LINE, each of them right

    @property
    def held_out(self) -> bool:
        if not self.function:
            return True
        return hashlib.sha256(self.name.encode()).digest()[0] % 2 == 0

    @property
    def files(self) -> list[str]:
        """Names of the source files whose lines may be the culprit."""
        path = FOLDER / self.file
        if self.function:
            return ["common.py", path.name]
        return sorted(one.name for one in path.parent.glob("*.py"))

    def command(self, batch: int) -> list[str]:
        """What Python is given to run it."""
        path = str(FOLDER / self.file)
        if self.function:
            return [path, self.name, str(batch)]
        return [path, *self.arguments.format(batch=batch).split()]

    @property
    def foretellable(self) -> bool:
        """Whether what its batch needs can be known when it dies."""
        return self.where in ("backward", "optimizer")

    @property
    def package(self) -> str:
        """What must be installed beside PyTorch; empty: nothing."""
        return self.loop if self.loop in ("accelerate", "transformers", "lightning") else ""


def marked(lines: list[str], first: int, last: int) -> dict[int, set[str]]:
    """Lines with a mark between two line numbers, and the jobs that each mark names."""
    found: dict[int, set[str]] = {}
    for number in range(first, last + 1):
        mark = MARK.search(lines[number - 1])
        if mark:
            found[number] = set((mark["jobs"] or "").replace(" ", "").split(",")) - {""}
    return found


def model_lines() -> list[str]:
    """Where nothing is kept from step to step, the model's own lines are as right as the caller."""
    lines = (FOLDER / "common.py").read_text().splitlines()
    mark = "# the model's line"
    return [f"common.py:{at}" for at, line in enumerate(lines, 1) if line.endswith(mark)]


def jobs_of(path: Path) -> Iterator[Truth]:
    text = path.read_text()
    lines = text.splitlines()
    everywhere = marked(lines, 1, len(lines))
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        own = marked(lines, node.lineno, node.end_lineno or node.lineno)
        for call in node.decorator_list:
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "job"):
                continue
            values = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
            name = values["name"]
            culprits = [at for at, jobs in own.items() if not jobs or name in jobs]
            culprits += [at for at, jobs in everywhere.items() if name in jobs and at not in own]
            named = [f"{path.name}:{line}" for line in sorted(culprits)]
            if values.get("names") in ("holds", "asks"):
                named += model_lines()
            yield Truth(**values, file=path.name, function=node.name, culprits=tuple(named))


def programs_of(path: Path) -> Iterator[Truth]:
    """Of a folder of strangers/, by its truth.json."""
    marks: list[tuple[str, set[str]]] = []
    for source in sorted(path.parent.glob("*.py")):
        lines = source.read_text().splitlines()
        found = marked(lines, 1, len(lines))
        marks += [(f"{source.name}:{at}", jobs) for at, jobs in found.items()]
    for values in json.loads(path.read_text()):
        program = path.parent / values.pop("program")
        culprits = [line for line, jobs in marks if not jobs or values["name"] in jobs]
        file = str(program.relative_to(FOLDER))
        yield Truth(**values, file=file, culprits=tuple(culprits))


def corpus() -> list[Truth]:
    found = [one for path in sorted(FOLDER.glob("jobs_*.py")) for one in jobs_of(path)]
    found += [one for path in sorted(STRANGERS.glob("*/truth.json")) for one in programs_of(path)]
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"jobs of the same name: {', '.join(twice)}")
    unmarked = [one.name for one in found if one.names != "none" and not one.culprits]
    if unmarked:
        raise ValueError(f"jobs with no culprit's line: {', '.join(unmarked)}")
    return found
