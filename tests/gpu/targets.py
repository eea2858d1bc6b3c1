# SPDX-License-Identifier: Apache-2.0
"""The figures to reach, computed from what the parts measured: one row each, told pass, fail or
unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

# Names of figures: "<part>/<what>/<who>". The parts make them from these, too.
FULL, OFF, TENSOR = "memshim native, tags full", "memshim native, tags off", "memshim tensor"
NATIVE, EXPANDABLE, ASYNC = "PyTorch native", "PyTorch expandable", "PyTorch cudaMallocAsync"
OTHERS = (NATIVE, EXPANDABLE, ASYNC)
TIGHT = "memshim native at 1.05 x live"
# Of speed: jobs that wait for the device, with shapes that stay or differ, and one for the host.
SHAPES = ("fixed", "variable", "many kernels")
LOSSES = "losses: "

SPEED_RATIO = 0.99
TIGHT_RATIO = 0.9
OVERHEAD = 1.02
SPILL_RATIO = 0.7
COPY_RATIO = 0.9
MANAGED_RATIO = 0.5


@dataclass(frozen=True)
class Row:
    what: str
    target: str
    reached: str  # the figure, or why there is none
    status: str  # "pass", "fail" or "unknown"


Figures = Mapping[str, float]


def told(what: str, target: str, value: float | None, holds: bool, why: str = "") -> Row:
    if value is None:
        return Row(what, target, why or "not measured", "unknown")
    return Row(what, target, f"{value:.3f}", "pass" if holds else "fail")


def over(shapes: str, above: str, below: str) -> str:
    """The figure's name: how fast one is, as a share of another, the median of rounds."""
    return f"speed/{shapes}/{above} over {below}"


def ratio(figures: Figures, above: str, below: str) -> float | None:
    top, bottom = figures.get(above), figures.get(below)
    return top / bottom if top is not None and bottom else None


def worst(values: Sequence[float | None]) -> float | None:
    """The least of them; none where one is missing."""
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def speed(figures: Figures) -> Row:
    value = worst([figures.get(over(shapes, FULL, NATIVE)) for shapes in SHAPES])
    return told(
        "steps per second, tags full, against PyTorch native with ample memory, the worst of three",
        f"at least {SPEED_RATIO} x",
        value,
        value is not None and value >= SPEED_RATIO,
    )


def tight(figures: Figures) -> Row:
    value = figures.get(over("variable", TIGHT, FULL))
    return told(
        "steps per second at a limit of 1.05 x live, variable shapes, native mode",
        f"at least {TIGHT_RATIO} x the same with ample memory",
        value,
        value is not None and value >= TIGHT_RATIO,
    )


def at_least(figure: str) -> str:
    """The figure's name: a limit with which it did not complete."""
    return f"{figure}, at least"


def smallest(figures: Figures) -> Row:
    """What is known may be two limits, of which one was too small."""
    what = "smallest limit on the variable-shape job, native mode, over peak live"
    target = f"at most {OVERHEAD}, and below every other allocator's"
    name = f"fragmentation/{FULL}"
    if name not in figures:
        return Row(what, target, "not measured", "unknown")
    most = figures[name]
    least = figures.get(at_least(name), most)
    names = [name for who in OTHERS if (name := f"fragmentation/{who}") in figures]
    if not names:
        return Row(what, target, "no other allocator was measured", "unknown")
    others_most = min(figures[name] for name in names)
    others_least = min(figures.get(at_least(name), figures[name]) for name in names)
    status = "unknown"
    if most <= OVERHEAD and most <= others_least and most < others_most:
        status = "pass"
    elif least > OVERHEAD or least >= others_most:
        status = "fail"
    return Row(what, target, f"{most:.3f}; the others' best {others_most:.3f}", status)


def spill(figures: Figures, whole: bool) -> Row:
    kind = "spill" if whole else "copy"
    bound = SPILL_RATIO if whole else COPY_RATIO
    value = worst(
        [
            ratio(figures, f"spill/{kind} {way}", f"spill/pinned copy {way}")
            for way in ("down", "up")
        ]
    )
    return told(
        "spill down and up, remapping included, in batches of 256 MiB"
        if whole
        else "the copy alone, down and up",
        f"at least {bound} x a plain pinned copy",
        value,
        value is not None and value >= bound,
    )


def managed(figures: Figures) -> Row:
    value = ratio(figures, "spill/step at 0.9 x need", "spill/step managed at 0.9 x need")
    return told(
        "step time at 0.9 x need",
        f"at most {MANAGED_RATIO} x what managed memory needs",
        value,
        value is not None and value <= MANAGED_RATIO,
    )


def losses(cases: Mapping[str, str]) -> Row:
    found = [status for name, status in cases.items() if name.startswith(LOSSES)]
    what, target = "losses", "bitwise equal"
    if "fail" in found:
        return Row(what, target, f"{found.count('fail')} of {len(found)} differ", "fail")
    if not found or "skipped" in found:
        return Row(what, target, "not all were tried", "unknown")
    return Row(what, target, f"{len(found)} of {len(found)} are", "pass")


def rows(figures: Figures, cases: Mapping[str, str]) -> list[dict[str, str]]:
    """`cases`: the status of each, by name."""
    return [
        asdict(row)
        for row in (
            speed(figures),
            tight(figures),
            smallest(figures),
            spill(figures, whole=True),
            spill(figures, whole=False),
            managed(figures),
            losses(cases),
        )
    ]
