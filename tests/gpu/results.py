# SPDX-License-Identifier: Apache-2.0
"""What a check found: results.json for programs, results.md, a page, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import targets

SCHEMA = "memshim-gpu-check/1"
STATUSES = ("pass", "fail", "skipped")
# Where the simulated GPU runs no kernels, times and ratios say nothing of real hardware.
SIMULATED = (
    "On the **simulated GPU**: this shows that the check runs. No figure here says anything of a "
    "real device."
)


# Of the page, which is to stay one: there are a hundred.
LEFT_OUT = "costs/"
ALLOCATORS = (
    targets.NATIVE,
    targets.EXPANDABLE,
    targets.ASYNC,
    targets.FULL,
    targets.OFF,
    targets.TENSOR,
    targets.TIGHT,
)
# Ratios of speed beside those to PyTorch native: what they are called.
BESIDES = (
    ("tags full over tags off", targets.FULL, targets.OFF),
    ("1.05 x live over ample memory", targets.TIGHT, targets.FULL),
)
SPILLED = ("0.9", "0.8", "0.7")
OFFLOADS = ("save_on_cpu", "optimizer offload")


@dataclass
class Case:
    name: str
    status: str
    reason: str
    seconds: float


@dataclass
class PartResult:
    name: str
    budget_s: float
    seconds: float = 0
    ended: str = "not run"  # "done", "cut off" or "failed" afterwards
    cases: list[Case] = field(default_factory=list)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, line: str) -> Case | None:
        """One line that the part said; the case, where it is one."""
        try:
            value = json.loads(line)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        if "figure" in value:
            self.figures[value["figure"]] = {"value": value["value"], "unit": value["unit"]}
        if "answer" in value:
            self.answers[value["answer"]] = {key: value[key] for key in ("saw", "value", "unit")}
        if "case" not in value:
            return None
        case = Case(value["case"], value["status"], value["reason"], round(value["seconds"], 2))
        self.cases.append(case)
        return case


@dataclass
class Results:
    """Everything, whole at any time: it is written after every part."""

    when: str
    commit: str
    machine: dict[str, Any]  # device, driver, and what else was found on the machine
    minutes: float
    limit_bytes: int
    parts: list[PartResult]

    def cases(self) -> Iterator[Case]:
        for part in self.parts:
            yield from part.cases

    def count(self, status: str) -> int:
        return sum(case.status == status for case in self.cases())

    def figures(self) -> dict[str, dict[str, Any]]:
        return {name: row for part in self.parts for name, row in part.figures.items()}

    def answers(self) -> dict[str, dict[str, Any]]:
        return {name: row for part in self.parts for name, row in part.answers.items()}

    def targets(self) -> list[dict[str, str]]:
        """On the simulated GPU none is reached or missed."""
        known = {
            name: row["value"] for name, row in self.figures().items() if row["value"] is not None
        }
        rows: list[dict[str, str]] = targets.rows(
            known, {case.name: case.status for case in self.cases()}
        )
        if self.machine["simulated"]:
            for row in rows:
                row["status"] = "unknown"
        return rows

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "when": self.when,
            "commit": self.commit,
            "machine": self.machine,
            "minutes": self.minutes,
            "limit_bytes": self.limit_bytes,
            "totals": {status: self.count(status) for status in STATUSES},
            "targets": self.targets(),
            "parts": [
                {
                    key: value
                    for key, value in asdict(part).items()
                    if key not in ("figures", "answers")
                }
                for part in self.parts
            ],
            "figures": self.figures(),
            "answers": self.answers(),
        }

    def write(self, folder: Path) -> None:
        """Each file is replaced at once, so that one of them is there whatever happens."""
        for name, text in (
            ("results.json", json.dumps(self.as_json(), indent=1) + "\n"),
            ("results.md", page(self)),
        ):
            beside = folder / f".{name}"
            beside.write_text(text)
            beside.replace(folder / name)


def cell(text: object) -> str:
    """Inert in a table."""
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table(heads: list[str], rows: list[list[object]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows] + [""]


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Shown:
    """The figures, and which of them stand in a table already."""

    def __init__(self, figures: dict[str, dict[str, Any]]) -> None:
        self.figures = figures
        self.names: set[str] = set()

    def one(self, name: str) -> float | None:
        self.names.add(name)
        value = self.figures.get(name, {}).get("value")
        return None if value is None else float(value)

    def text(self, name: str) -> str:
        return number(self.one(name))

    def spread(self, name: str) -> str:
        """With what lies between the quartiles, where that is known."""
        spread = self.one(f"{name}, spread")
        value = self.text(name)
        return value if spread is None else f"{value} ({spread:.1f} %)"


def allocators(shown: Shown) -> list[str]:
    rows: list[list[object]] = []
    for who in ALLOCATORS:
        row: list[object] = [who]
        for shapes in targets.SHAPES:
            row.append(shown.spread(f"speed/{shapes}/{who}"))
            row.append(shown.spread(targets.over(shapes, who, targets.NATIVE)))
        row += [shown.text(f"speed/{shapes}/{who}, NVML peak") for shapes in targets.SHAPES]
        row.append(limit(shown, f"fragmentation/{who}"))
        rows.append(row)
    heads = ["allocator"]
    for shapes in targets.SHAPES:
        heads += [f"steps/s, {shapes}", "x native"]
    heads += [f"NVML peak, {shapes} (MiB)" for shapes in targets.SHAPES]
    lines = table(
        [*heads, "smallest limit, x live"],
        [row for row in rows if any(value != "-" for value in row[1:])],
    )
    rows = [
        [what, *(shown.spread(targets.over(shapes, above, below)) for shapes in targets.SHAPES)]
        for what, above, below in BESIDES
    ]
    rows = [row for row in rows if any(value != "-" for value in row[1:])]
    return lines + (table(["steps/s as a share", *targets.SHAPES], rows) if rows else [])


def limit(shown: Shown, name: str) -> str:
    """The smallest that was enough, and the largest known not to be."""
    least = shown.one(targets.at_least(name))
    value = shown.text(name)
    return value if least is None else f"{value} (more than {number(least)})"


def spilling(shown: Shown) -> list[str]:
    rows: list[list[object]] = [
        [
            "ample memory",
            shown.spread("spill/step with ample memory"),
            "-",
            shown.spread("spill/step without memshim"),
        ]
    ]
    rows += [
        [
            f"{share} x need",
            shown.spread(f"spill/step at {share} x need"),
            shown.spread(f"spill/step managed at {share} x need"),
            "-",
        ]
        for share in SPILLED
    ]
    rows += [
        [
            f"{name}: {shown.text(f'spill/{name}, peak live')} x need live",
            "-",
            "-",
            shown.spread(f"spill/step with {name}"),
        ]
        for name in OFFLOADS
    ]
    rows = [row for row in rows if any(value != "-" for value in row[1:])]
    return table(["a step (ms)", "memshim", "managed memory", "PyTorch alone"], rows)


def headline(results: Results, shown: Shown) -> list[str]:
    lines: list[str] = []
    figures = results.figures()
    if any(name.startswith(("speed/", "fragmentation/")) for name in figures):
        rounds = ", ".join(f"{shown.text(f'speed/{s}/rounds')} {s}" for s in targets.SHAPES)
        lines += ["## Side by side", ""]
        lines += [
            f"Medians of rounds ({rounds}) in which all took turns; in brackets what lies between "
            "the quartiles.",
            "",
        ]
        lines += allocators(shown)
    if "spill/step with ample memory" in figures:
        lines += ["## With less memory than the job needs", "", *spilling(shown)]
    return lines


def grouped(results: Results, shown: Shown) -> list[str]:
    """What no table above has, a table for each part."""
    lines: list[str] = []
    groups: dict[str, list[list[object]]] = {}
    for name, row in results.figures().items():
        if name in shown.names or name.startswith(LEFT_OUT):
            continue
        group, _, rest = name.partition("/")
        groups.setdefault(group, []).append([rest, number(row["value"]), row["unit"]])
    for group, rows in groups.items():
        lines += [f"### {group}", "", *table(["what", "value", "unit"], rows)]
    if lines:
        lines = ["## Other figures", "", *lines]
    if any(name.startswith(LEFT_OUT) for name in results.figures()):
        lines += ["What the driver's calls cost stands in `costs.csv`.", ""]
    return lines


def card(machine: dict[str, Any]) -> list[str]:
    """What nvidia-smi said of it before and after."""
    before, after = machine.get("card_before"), machine.get("card_after")
    if not before:
        return []
    rows: list[list[object]] = [
        [key, value, (after or {}).get(key, "-")] for key, value in before.items()
    ]
    return ["## The card", "", *table(["nvidia-smi", "before", "after"], rows)]


def page(results: Results) -> str:
    machine = results.machine
    shown = Shown(results.figures())
    totals = ", ".join(f"{results.count(status)} {status}" for status in STATUSES)
    lines = [
        f"# {machine['device']}, driver {machine['driver']}",
        "",
        f"{results.when}, commit {results.commit}, `{machine['command']}`: {totals}.",
        "",
    ]
    if machine["simulated"]:
        lines += [SIMULATED, ""]
    facts = ("memshim", "cuda", "total_bytes", "kernel", "glibc", "python", "torch", "cpus")
    lines += [", ".join(f"{key} {machine[key]}" for key in facts if machine.get(key)) + ".", ""]
    lines += headline(results, shown)
    lines += ["## The figures to reach", ""]
    lines += table(
        ["what", "target", "reached", ""],
        [[row["what"], row["target"], row["reached"], row["status"]] for row in results.targets()],
    )
    lines += ["## Parts", ""]
    parts: list[list[object]] = []
    for part in results.parts:
        counts = [sum(case.status == status for case in part.cases) for status in STATUSES]
        seconds = f"{part.seconds:.0f} of {part.budget_s:.0f}"
        parts.append([part.name, *counts, seconds, part.ended])
    lines += table(["part", *STATUSES, "seconds", "ended"], parts)
    for status, title in (("fail", "Failed"), ("skipped", "Skipped")):
        found: list[list[object]] = [
            [part.name, case.name, case.reason]
            for part in results.parts
            for case in part.cases
            if case.status == status
        ]
        if found:
            lines += [f"## {title}", "", *table(["part", "case", "why"], found)]
    answers: list[list[object]] = [
        [question, row["saw"] if row["value"] is None else number(row["value"]), row["unit"]]
        for question, row in results.answers().items()
    ]
    if answers:
        lines += ["## Found out", "", *table(["question", "answer", ""], answers)]
    lines += card(machine)
    lines += grouped(results, shown)
    return "\n".join(lines)
