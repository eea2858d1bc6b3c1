# SPDX-License-Identifier: Apache-2.0
"""What a trace says of call sites, as trace_sites.c prints it; addresses as functions."""

from __future__ import annotations

import bisect
import functools
import math
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

THREAD_OTHER, THREAD_PYTHON, THREAD_BACKWARD = 0, 1, 2
NATIVE_CUT, NATIVE_LOST, PYTHON_CUT, PYTHON_LOST, SAMPLED_OUT = 1, 2, 4, 8, 16
# Kinds of event, as allocator/base/events.def names them.
BLOCK, TENSOR, CHUNK = "BLOCK_ALLOC", "TENSOR_ALLOC", "CHUNK_CREATE"
CHARGE, HOST = "CHARGE", "HOST_ALLOC"


@dataclass(frozen=True)
class PythonFrame:
    """A frame of the interpreter; `table` is its co_linetable."""

    first_line: int
    instruction: int
    file: str
    function: str
    table: bytes

    @property
    def line(self) -> int:
        """By CPython's own reading of the table: that of the interpreter that runs this test."""
        code = (lambda: None).__code__.replace(
            co_firstlineno=self.first_line, co_linetable=self.table, co_code=bytes(1 << 16)
        )
        for start, end, line in code.co_lines():
            if start <= self.instruction < end and line is not None:
                return line
        return 0


@dataclass
class Site:
    """One call site; frames are the innermost first."""

    thread: int
    flags: int
    tag: int
    native: list[tuple[int, str]] = field(default_factory=list)
    python: list[PythonFrame] = field(default_factory=list)

    @property
    def functions(self) -> list[str]:
        return [function_at(Path(module), address) for address, module in self.native]


@dataclass
class Trace:
    """Sites by id, and what the events said of them."""

    sampling: int = 0
    sites: dict[int, Site] = field(default_factory=dict)
    read: Site = field(default_factory=lambda: Site(0, 0, 0))  # whose frames follow
    allocations: list[tuple[str, int, int]] = field(default_factory=list)  # kind, bytes, site
    ooms: list[tuple[int, int]] = field(default_factory=list)  # requested bytes, site
    live: dict[int, tuple[int, int]] = field(default_factory=dict)  # by id: bytes, site
    live_bytes: int = 0
    peak_bytes: int = 0
    peak: dict[int, tuple[int, int]] = field(default_factory=dict)  # `live` at that moment

    def sums(self, *kinds: str) -> dict[int, tuple[int, int]]:
        """Allocations and bytes by site."""
        counts: Counter[int] = Counter()
        total: Counter[int] = Counter()
        for kind, size, site in self.allocations:
            if kind in kinds:
                counts[site] += 1
                total[site] += size
        return {site: (counts[site], total[site]) for site in counts}

    def peak_by_site(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for size, site in self.peak.values():
            found[site] += size
        return found

    def _grow(self, number: int, size: int, site: int) -> None:
        self.live[number] = (size, site)
        self.live_bytes += size

    def _shrink(self, number: int) -> None:
        self.live_bytes -= self.live.pop(number, (0, 0))[0]


def _text(hexadecimal: str) -> str:
    return "" if hexadecimal == "-" else bytes.fromhex(hexadecimal).decode(errors="replace")


def _bytes(hexadecimal: str) -> bytes:
    return b"" if hexadecimal == "-" else bytes.fromhex(hexadecimal)


def read_trace(tool: Path, path: Path) -> Trace:
    """A trace by call_sites/trace_sites.c. The peak is found in a second reading of its events."""
    lines = subprocess.run([tool, path], check=True, capture_output=True, text=True).stdout
    trace = Trace()
    peak_at = 0
    for at, line in enumerate(lines.splitlines()):
        _read_line(trace, line.split(" "))
        if trace.live_bytes > trace.peak_bytes:
            trace.peak_bytes, peak_at = trace.live_bytes, at
    again = Trace()
    for line in lines.splitlines()[: peak_at + 1]:
        _read_line(again, line.split(" "))
    trace.peak = again.live
    return trace


def _read_line(trace: Trace, words: list[str]) -> None:
    match words:
        case ["sampling", mean]:
            trace.sampling = int(mean)
        case ["site", number, thread, flags, tag]:
            trace.read = trace.sites[int(number)] = Site(int(thread), int(flags), int(tag))
        case ["native", address, module]:
            trace.read.native.append((int(address), _text(module)))
        case ["python", first, instruction, file, function, table]:
            trace.read.python.append(
                PythonFrame(
                    int(first), int(instruction), _text(file), _text(function), _bytes(table)
                )
            )
        case ["alloc", kind, number, size, site]:
            trace.allocations.append((kind, int(size), int(site)))
            if kind in (BLOCK, TENSOR):
                trace._grow(int(number), int(size), int(site))
        case ["arena", number] | ["free", _, number]:
            trace._shrink(int(number))
        case ["oom", requested, site]:
            trace.ooms.append((int(requested), int(site)))
        case _:
            raise AssertionError(words)


@functools.cache
def _functions(module: Path) -> tuple[list[int], list[str]]:
    found = []
    listing = subprocess.run(
        ["nm", "--defined-only", module], check=False, capture_output=True, text=True
    ).stdout
    for line in listing.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "tT":
            found.append((int(words[0], 16), words[2]))
    found.sort()
    return [address for address, _ in found], [name for _, name in found]


def function_at(module: Path, address: int) -> str:
    """The function of the module's symbol table that an address lies in."""
    addresses, names = _functions(module)
    at = bisect.bisect_right(addresses, address)
    return names[at - 1] if at else "?"


def estimate(trace: Trace, *kinds: str) -> tuple[float, float]:
    """Bytes by what was sampled, and their standard error (report/trace/definitions.h)."""
    total = variance = 0.0
    for kind, size, number in trace.allocations:
        site = trace.sites.get(number)
        if kind in kinds and site is not None and not site.flags & SAMPLED_OUT:
            chance = -math.expm1(-size / trace.sampling)
            total += size / chance
            variance += (1 - chance) * (size / chance) ** 2
    return total, math.sqrt(variance)
