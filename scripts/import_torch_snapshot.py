# SPDX-License-Identifier: Apache-2.0
"""Turns a PyTorch memory snapshot into a CSV that `memshim replay` reads.

    torch.cuda.memory._record_memory_history()     # in the job, before it allocates
    torch.cuda.memory._dump_snapshot("job.pickle")  # after the step, or when it ran out of memory

    memshim replay job.pickle --cap 24GiB           # would memshim have avoided it?

`memshim replay` starts this script. The CSV holds PyTorch's segments (or the pages of its
expandable segments), the tensors in them, and each request that ended in an out-of-memory: the last
is the one that the job ended of, unless as much was allocated later on, or many times more. What
was there when the recording began comes first: the segments, the tensors in them, and what PyTorch
kept of them in its cache.
Only plain data is taken from the pickle: no code of it runs.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import gzip
import io
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

HEADER = ("time_us", "op", "id", "bytes", "stream", "site", "addr")
GRANULE = 2 << 20
LARGE_PAGE = 20 << 20  # what PyTorch maps at a time for large tensors
FAR = 1 << 30  # pages further apart than this lie in different reservations
WENT_ON = 64  # more allocations after an out-of-memory than a job makes that only ends

Event = dict[str, Any]


class Bad(Exception):
    """The file is not what it should be; the text says how."""


class PlainUnpickler(pickle.Unpickler):
    """Reads lists, dictionaries, numbers and strings; anything else is refused."""

    def find_class(self, module: str, name: str) -> object:
        raise Bad(f"holds {module}.{name}; a snapshot holds only plain data, so nothing was run")


def load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            snapshot = PlainUnpickler(file).load()
    except OSError as error:
        raise Bad(f"cannot be read: {error.strerror}") from None
    except Bad:
        raise
    except Exception as error:
        # A damaged pickle raises nearly anything.
        raise Bad(f"is no pickle of a snapshot ({type(error).__name__}: {error})") from None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise Bad("has no 'device_traces': it is not what _dump_snapshot writes")
    if not isinstance(snapshot.get("segments"), list):
        raise Bad("has no 'segments': it is not what _dump_snapshot writes")
    return snapshot


def number(event: Event, key: str, where: str) -> int:
    value = event.get(key) if isinstance(event, dict) else None
    if not isinstance(value, int) or value < 0:
        raise Bad(f"{where}: '{key}' is {value!r}, not a number")
    return value


def site_of(event: Event) -> str:
    """The innermost Python frame: file:line function."""
    for frame in event.get("frames") or ():
        if str(frame.get("filename", "")).endswith(".py"):
            return f"{frame['filename']}:{frame.get('line', 0)} {frame.get('name', '')}"
    return ""


class Ranges:
    """Ranges of addresses that do not overlap."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        if start not in self.ends:
            bisect.insort(self.starts, start)
        self.ends[start] = start + size

    def remove(self, start: int) -> None:
        if self.ends.pop(start, None) is not None:
            del self.starts[bisect.bisect_left(self.starts, start)]

    def holds(self, start: int, size: int) -> bool:
        at = bisect.bisect_right(self.starts, start)
        return at > 0 and start + size <= self.ends[self.starts[at - 1]]


class Start:
    """What was there when the recording began: the end of it, with every event undone."""

    def __init__(self, segments: Sequence[Event], trace: Sequence[Event], device: int) -> None:
        self.segments: dict[int, tuple[int, int]] = {}  # address: size, stream
        self.granules: set[int] = set()  # addresses, of expandable segments
        self.streams: dict[int, int] = {}  # by granule
        self.tensors: dict[int, tuple[int, str]] = {}  # address: size, site
        for index, segment in enumerate(segments):
            if isinstance(segment, dict) and segment.get("device", 0) == device:
                self.take_segment(segment, f"segment {index}")
        for index in range(len(trace) - 1, -1, -1):
            self.undo(trace[index], f"event {index} of device {device}")

    def take_segment(self, segment: Event, where: str) -> None:
        address = number(segment, "address", where)
        size = number(segment, "total_size", where)
        stream = int(segment.get("stream") or 0)
        if segment.get("is_expandable"):
            self.cover(address, size, stream)
        else:
            self.segments[address] = (size, stream)
        at = address
        for block in segment.get("blocks") or ():
            at = int(block.get("address", at))
            if block.get("state") != "inactive":
                size = int(block.get("requested_size") or block["size"])
                self.tensors[at] = (size, site_of(block))
            at += number(block, "size", f"a block of {where}")

    def cover(self, address: int, size: int, stream: int) -> None:
        for granule in range(address, address + size, GRANULE):
            self.granules.add(granule)
            self.streams[granule] = stream

    def undo(self, event: Event, where: str) -> None:
        action = event.get("action") if isinstance(event, dict) else None
        if action not in ACTIONS:
            return
        address, size = number(event, "addr", where), number(event, "size", where)
        if action == "alloc":
            self.tensors.pop(address, None)
        elif action == "free_completed":
            self.tensors[address] = (size, site_of(event))
        elif action == "segment_alloc":
            self.segments.pop(address, None)
        elif action == "segment_free":
            self.segments[address] = (size, int(event.get("stream") or 0))
        elif action == "segment_map":
            self.granules.difference_update(range(address, address + size, GRANULE))
        else:
            self.cover(address, size, int(event.get("stream") or 0))


ACTIONS = (
    "alloc",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)


class Contents:
    """The tensors that were live when the recording began, by address."""

    def __init__(self, start: Start) -> None:
        self.untold = dict(start.tensors)
        self.addresses = sorted(start.tensors)
        self.largest = max((size for size, _ in start.tensors.values()), default=0)

    def of(self, address: int, size: int) -> list[int]:
        """Those that have no row yet and touch the range."""
        first = bisect.bisect_left(self.addresses, address - self.largest)
        last = bisect.bisect_left(self.addresses, address + size)
        return [
            tensor
            for tensor in self.addresses[first:last]
            if tensor in self.untold and tensor + self.untold[tensor][0] > address
        ]

    def live(self, address: int, size: int) -> int:
        return sum(self.untold[tensor][0] for tensor in self.of(address, size))


class Reservations:
    """Which pages lie together, and how large they are: a snapshot says neither."""

    def __init__(self, start: Start, trace: Sequence[Event]) -> None:
        ranges = list(runs(start.granules))
        for event in trace:
            if event.get("action") in ("segment_map", "segment_unmap"):
                ranges.append((event["addr"], event["size"]))
        self.bases: list[int] = []
        self.pages: list[int] = []
        end = -FAR - 1
        for address, size in sorted(ranges):
            if address - end > FAR:
                self.bases.append(address)
                self.pages.append(LARGE_PAGE)
            if (address - self.bases[-1]) % LARGE_PAGE != 0 or size % LARGE_PAGE != 0:
                self.pages[-1] = GRANULE
            end = max(end, address + size)

    def cut(self, address: int, size: int) -> Iterator[tuple[int, int, int]]:
        """The pages of a range: reservation, address, size."""
        index = bisect.bisect_right(self.bases, address) - 1
        for page in range(address, address + size, self.pages[index]):
            yield index + 1, page, self.pages[index]


class Rows(Protocol):
    """What csv.writer makes."""

    def writerow(self, row: Iterable[object], /) -> object: ...


class Writer:
    """Rows, in order, with ids of their own."""

    def __init__(self, rows: Rows, reservations: Reservations) -> None:
        self.rows = rows
        self.reservations = reservations
        self.mapped = Ranges()
        self.granules: set[int] = set()
        self.ids: dict[int, tuple[int, bool]] = {}  # of tensors by address; whether in an arena
        self.segment_ids: dict[int, int] = {}
        self.next_id = 1
        self.unknown = 0

    def row(self, time: int, op: str, **fields: object) -> None:
        self.rows.writerow([time, op, *(fields.get(name, "") for name in HEADER[2:])])

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def segment(self, time: int, address: int, size: int, stream: int) -> None:
        self.segment_ids[address] = self.new_id()
        self.mapped.add(address, size)
        self.row(
            time, "segment", id=self.segment_ids[address], bytes=size, stream=stream, addr=address
        )

    def segment_free(self, time: int, address: int) -> None:
        if address not in self.segment_ids:
            self.unknown += 1
            return
        self.mapped.remove(address)
        self.row(time, "segment_free", id=self.segment_ids.pop(address))

    def map(self, time: int, address: int, size: int) -> None:
        for reservation, page, page_size in self.reservations.cut(address, size):
            self.row(time, "map", id=reservation, bytes=page_size, addr=page)
        self.granules.update(range(address, address + size, GRANULE))

    def unmap(self, time: int, address: int, size: int) -> None:
        self.granules.difference_update(range(address, address + size, GRANULE))
        self.row(time, "unmap", bytes=size, addr=address)

    def is_mapped(self, address: int, size: int) -> bool:
        first = address // GRANULE * GRANULE
        return self.mapped.holds(address, size) or all(
            granule in self.granules for granule in range(first, address + size, GRANULE)
        )

    def alloc(self, time: int, address: int, size: int, site: str) -> None:
        inside = self.is_mapped(address, size)
        if address in self.ids:
            self.free(time, address)
            self.unknown += 1
        self.ids[address] = (self.new_id(), inside)
        place = {"addr": address} if inside else {}
        op = "born" if inside else "alloc"
        self.row(time, op, id=self.ids[address][0], bytes=size, site=site, **place)

    def free(self, time: int, address: int) -> None:
        if address not in self.ids:
            self.unknown += 1
            return
        identity, inside = self.ids.pop(address)
        self.row(time, "died" if inside else "free", id=identity)

    def oom(self, time: int, size: int, site: str, fatal: bool) -> None:
        self.row(time, "fatal" if fatal else "refused", bytes=size, site=site)

    def cached(self, start: int, end: int) -> None:
        if start < end:
            self.row(0, "cached", bytes=end - start, addr=start)

    def begin(self, start: Start) -> None:
        """What was there. Which came first nobody knows: most likely the fullest segments, since
        parameters live on and what came after them is in the cache again."""
        inside = Contents(start)
        full = {at: inside.live(at, size) / size for at, (size, _) in start.segments.items()}
        for address in sorted(full, key=lambda at: (-full[at], at)):
            size, stream = start.segments[address]
            self.segment(0, address, size, stream)
            self.fill(address, size, inside)
        for run in runs(start.granules):
            for _, page, size in self.reservations.cut(*run):
                self.map(0, page, size)
                self.fill(page, size, inside)
        for tensor, (size, site) in sorted(inside.untold.items()):
            self.alloc(0, tensor, size, site)

    def fill(self, address: int, size: int, inside: Contents) -> None:
        """The tensors of a segment or page that is there now. What is left of it was free in
        PyTorch's cache, which is told before the next one comes: the pool may take its memory."""
        at, end = address, address + size
        for tensor in inside.of(address, size):
            bytes_, site = inside.untold[tensor]
            if not self.is_mapped(tensor, bytes_):
                end = min(end, tensor)  # a part of it lies in a page that comes later
                break
            self.cached(at, tensor)
            self.alloc(0, tensor, bytes_, site)
            at = max(at, tensor + bytes_)
            del inside.untold[tensor]
        self.cached(at, end)

    def take(self, event: Event, time: int) -> None:
        action, size = event.get("action"), event.get("size", 0)
        if action not in ACTIONS or size <= 0:
            return
        address = event["addr"]
        if action == "alloc":
            self.alloc(time, address, size, site_of(event))
        elif action == "free_completed":
            self.free(time, address)
        elif action == "segment_alloc":
            self.segment(time, address, size, int(event.get("stream") or 0))
        elif action == "segment_free":
            self.segment_free(time, address)
        elif action == "segment_map":
            self.map(time, address, size)
        else:
            self.unmap(time, address, size)


def runs(granules: set[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring granules together: address, size."""
    first = last = None
    for granule in sorted(granules):
        if last is not None and granule != last + GRANULE:
            assert first is not None
            yield first, last + GRANULE - first
            first = None
        first = granule if first is None else first
        last = granule
    if first is not None and last is not None:
        yield first, last + GRANULE - first


def fatal_oom(trace: Sequence[Event]) -> int | None:
    """The index of the out-of-memory that ended the job."""
    later = largest = 0
    for index in range(len(trace) - 1, -1, -1):
        action, size = trace[index].get("action"), trace[index].get("size", 0)
        if action == "alloc":
            later, largest = later + 1, max(largest, size)
        elif action == "oom" and size > largest and later <= WENT_ON:
            return index
    return None


def convert(snapshot: dict[str, Any], device: int | None, ooms: bool, out: io.TextIOBase) -> int:
    """Writes the CSV; the number of events that made no sense."""
    traces = snapshot["device_traces"]
    if device is None:
        device = max(range(len(traces)), key=lambda index: len(traces[index]), default=0)
    if device >= len(traces):
        raise Bad(f"has {len(traces)} devices, so none of number {device}")
    trace = traces[device]
    start = Start(snapshot["segments"], trace, device)
    if not trace and not start.tensors:
        raise Bad(f"says nothing of device {device}: was _record_memory_history called?")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(HEADER)
    writer = Writer(rows, Reservations(start, trace))
    writer.begin(start)
    began = trace[0].get("time_us", 0) if trace else 0
    time = 0
    fatal = fatal_oom(trace)
    for index, event in enumerate(trace):
        time = max(time, int(event.get("time_us", began)) - began)
        if event.get("action") != "oom":
            writer.take(event, time)
        elif ooms and event.get("size", 0) > 0:
            writer.oom(time, event["size"], site_of(event), index == fatal)
    return writer.unknown


def complain(path: object, what: object) -> None:
    """Names in it are anybody's, and a terminal obeys some characters instead of showing them."""
    line = f"import_torch_snapshot: {path}: {what}"
    shown = (letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    print("".join(shown), file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("snapshot", type=Path, help="what torch.cuda.memory._dump_snapshot wrote")
    parser.add_argument("csv", help="where to write the CSV; .gz packs it; - is the terminal")
    parser.add_argument("--device", type=int, help="default: the one with most events")
    parser.add_argument("--without-ooms", action="store_true", help="leave failed requests out")
    given = parser.parse_args()
    text = io.StringIO()
    try:
        if given.device is not None and given.device < 0:
            raise Bad(f"has no device of number {given.device}")
        unknown = convert(load(given.snapshot), given.device, not given.without_ooms, text)
    except Bad as error:
        complain(given.snapshot, error)
        return 1
    if unknown:
        complain(given.snapshot, f"{unknown} events do not fit the others; they were left out")
    try:
        if given.csv == "-":
            sys.stdout.write(text.getvalue())
        elif given.csv.endswith(".gz"):
            Path(given.csv).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        else:
            Path(given.csv).write_text(text.getvalue())
    except OSError as error:
        complain(given.csv, error.strerror)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
