# SPDX-License-Identifier: Apache-2.0
"""What the callbacks share: the phases that are open, and figures under the names of loggers."""

from __future__ import annotations

from memshim import _process

LOGGED = (
    "used_bytes",
    "peak_used_bytes",
    "live_bytes",
    "reserved_bytes",
    "spilled_bytes",
    "fragmentation",
)


class Phases:
    """Phases that a trainer tells the begin and the end of, in its own order."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def begin(self, name: str) -> None:
        """Nothing where it is the innermost already: a trainer may tell twice."""
        if not self.open or self.open[-1] != name:
            self.open.append(name)
            _process.push_tag(name)

    def end(self, name: str) -> None:
        """With those that began within it and were left open; nothing where it is not open."""
        while name in self.open:
            self.open.pop()
            _process.pop_tag()


def figures(device: int) -> dict[str, float]:
    """By the names that a logger shows; empty without memshim."""
    now = _process.stats(device)
    return {} if now is None else {f"memshim/{name}": getattr(now, name) for name in LOGGED}
