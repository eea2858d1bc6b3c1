# SPDX-License-Identifier: Apache-2.0
"""memshim in this process: phases, steps, figures and the report, from inside the program.

Everything does nothing where libmemshim.so is not preloaded, so that it can stay in a program.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_COUNTS = (
    "total_bytes",
    "cap_bytes",
    "used_bytes",
    "peak_used_bytes",
    "free_bytes",
    "live_bytes",
    "reserved_bytes",
    "host_bytes",
    "spilled_bytes",
    "promoted_bytes",
    "spill_wait_ns",
    "refusals",
    "status",
)
_STATUS = ("normal", "warning", "critical", "emergency")


class _Stats(ctypes.Structure):
    """struct memshim_stats of memshim.h."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_uint64) for name in _COUNTS),
        ("fragmentation", ctypes.c_double),
    ]


class Stats(NamedTuple):
    """How a device stands, as far as this process uses it (`memshim statistics` says more)."""

    total_bytes: int  # of the device
    cap_bytes: int  # most that the process may be charged for
    used_bytes: int  # charged against the cap
    peak_used_bytes: int
    free_bytes: int  # below the cap and charged to nobody
    live_bytes: int  # asked for and not given back
    reserved_bytes: int  # device memory that the pool holds for it
    host_bytes: int  # host memory in its place
    spilled_bytes: int  # moved to host memory, all in all
    promoted_bytes: int  # and back
    spill_wait_ns: int  # that the device was held for these moves
    refusals: int  # allocation calls refused as out of memory
    status: str  # normal, warning, critical or emergency (MEMSHIM_THRESHOLDS)
    fragmentation: float  # 1 - live / reserved, from 0 to 1


@functools.lru_cache
def _library() -> ctypes.CDLL | None:
    """The preloaded library; None where there is none."""
    found = ctypes.CDLL(None)
    if not hasattr(found, "memshim_stats"):
        return None
    found.memshim_tag_push.argtypes = [ctypes.c_char_p]
    found.memshim_tag_push.restype = None
    found.memshim_tag_pop.argtypes = []
    found.memshim_tag_pop.restype = None
    found.memshim_step.argtypes = []
    found.memshim_step.restype = None
    for name in ("memshim_range_born", "memshim_range_died"):
        function = getattr(found, name)
        function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        function.restype = None
    found.memshim_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Stats)]
    found.memshim_stats.restype = ctypes.c_int
    return found


def active() -> bool:
    """Whether memshim is preloaded in this process."""
    return _library() is not None


class tag(contextlib.ContextDecorator):  # used as a function is
    """What this thread allocates meanwhile counts as this phase's: `with memshim.tag("eval"):`, or
    as a decorator. Tags nest."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> tag:
        push_tag(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pop_tag()


def push_tag(name: str) -> None:
    """Begins a phase of this thread, for where no `with` can stand around it."""
    library = _library()
    if library is not None:
        # A zero byte would end it.
        library.memshim_tag_push(name.encode("utf-8", "replace").replace(b"\0", b"?"))


def pop_tag() -> None:
    """Ends the phase that this thread began last."""
    library = _library()
    if library is not None:
        library.memshim_tag_pop()


def step() -> None:
    """A step begins here. A program that says so once is believed: none are looked for any more."""
    library = _library()
    if library is not None:
        library.memshim_step()


def range_born(device: int, address: int, count_bytes: int) -> None:
    """An allocator of the program's is about to return this part of a larger block of its own."""
    library = _library()
    if library is not None:
        library.memshim_range_born(device, address, count_bytes)


def range_died(device: int, address: int, count_bytes: int) -> None:
    """And takes it back."""
    library = _library()
    if library is not None:
        library.memshim_range_died(device, address, count_bytes)


def stats(device: int = 0) -> Stats | None:
    """How a device stands, in some microseconds; None without memshim, and before this process uses
    the device. `device` is CUDA's number."""
    library = _library()
    now = _Stats(size=ctypes.sizeof(_Stats))
    if library is None or library.memshim_stats(device, ctypes.byref(now)) != 0:
        return None
    counts = [getattr(now, name) for name in _COUNTS[:-1]]
    return Stats._make([*counts, _STATUS[min(now.status, 3)], now.fragmentation])


def _mapped(name: str) -> Path | None:
    """A file whose name begins so, and is mapped into this process."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:  # noqa: PTH123
        for line in maps:
            found = re.search(r"/.*$", line.rstrip("\n"))
            if found is not None and os.path.basename(found[0]).startswith(name):  # noqa: PTH119
                return Path(found[0])
    return None


def trace_folder() -> str | None:
    """The folder of this process's trace; None where there is none, or none yet."""
    trace = _mapped("trace.mshm")
    return None if trace is None else str(trace.parent)


def _command() -> str | None:
    """`memshim`: the one of the library that is preloaded, else any."""
    library = _mapped("libmemshim.so")
    folder = Path(__file__).absolute().parent
    places = [folder / "bin" / "memshim"]
    if library is not None:
        beside, above = library.parent, library.parent.parent
        places += [beside / "memshim", above / "bin" / "memshim", above / "memshim"]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    return shutil.which("memshim")


def report(at: str = "now", form: str = "text") -> str | None:
    """The report of this process as it stands. Another process makes it: some tenths of a second.

    at: "now". form: "text", "json" or another of `memshim report --format` that is text.
    None without memshim, with MEMSHIM_TRACE=off, and before a device is used."""
    if at != "now":
        raise ValueError(f'report(at={at!r}): "now" is all that can be told while the process runs')
    folder = trace_folder() if active() else None
    command = _command()
    if folder is None or command is None:
        return None
    unloaded = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [command, "report", folder, "--format", form],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=unloaded,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip())
    return done.stdout.decode("utf-8", "replace")
