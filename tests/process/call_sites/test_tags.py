# SPDX-License-Identifier: Apache-2.0
"""What programs say of themselves: tags, training steps, NVTX ranges."""

from __future__ import annotations

import json
import sys
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import CLI, SHIM, ProcessTest, Result, process_folders, program, run

NVTX = program("nvtx_job")
CALLED, BY_NVTX = 0, 1
KIB = 1024


@dataclass
class Told:
    """A trace's tags: names from the outermost in, by id, and its events in order."""

    tags: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    colors: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[str, int, tuple[bytes, ...]]] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    allocations: dict[int, tuple[bytes, ...]] = field(default_factory=dict)  # by KiB

    def of_threads(self) -> dict[int, list[tuple[str, tuple[bytes, ...]]]]:
        by_thread: dict[int, list[tuple[str, tuple[bytes, ...]]]] = {}
        for what, thread, tag in self.spans:
            by_thread.setdefault(thread, []).append((what, tag))
        return by_thread


def told_in(folder: Path) -> Told:
    told = Told(tags={0: ()})
    for line in run([program("trace_tags"), folder / "trace.mshm"]).check().stdout.splitlines():
        match line.split(" "):
            case ["tag", number, outer, color, name]:
                told.tags[int(number)] = (*told.tags[int(outer)], bytes.fromhex(name))
                told.colors[int(number)] = int(color, 16)
            case [("begin" | "end") as what, thread, tag]:
                told.spans.append((what, int(thread), told.tags[int(tag)]))
            case ["step", number, source]:
                told.steps.append((int(number), int(source)))
            case ["alloc", size, tag]:
                told.allocations[int(size) // KIB] = told.tags[int(tag)]
            case _:
                raise AssertionError(line)
    return told


def paired(spans: list[tuple[str, tuple[bytes, ...]]]) -> list[tuple[str, tuple[bytes, ...]]]:
    """Those that do not end, or begin, in the order of a stack."""
    wrong, open_tags = [], []
    for what, tag in spans:
        if what == "begin":
            open_tags.append(tag)
        elif not open_tags or open_tags.pop() != tag:
            wrong.append((what, tag))
    return wrong + [("begin", tag) for tag in open_tags]


class TagTest(ProcessTest):
    def run_job(self, job: str | Path, scenario: str, **settings: Any) -> Result:
        command = program(job) if isinstance(job, str) else job
        return self.run_under_shim(command, scenario, **settings).check()

    def reported(self, form: str) -> dict[str, Any]:
        (folder,) = process_folders(self.output)
        command: list[str | Path] = [CLI, "report", folder, "--format", form, "--output", "-"]
        value = json.loads(run(command).check().stdout)
        assert isinstance(value, dict)
        return value

    def told(self) -> Told:
        (folder,) = process_folders(self.output)
        return told_in(folder)


class Tags(TagTest):
    def test_nested_and_across_threads(self) -> None:
        self.run_job("tags_job", "nested")
        told = self.told()
        self.assertEqual(
            told.allocations,
            {
                1: (b"early", b"forward"),
                2: (b"early",),
                3: (),
                4: (b"forward",),
                5: (b"forward",),
                6: (b"thread",),
                7: (b"thread", b"inner"),
                8: (),
                9: (),
                10: (b"forward", b"again"),
                11: (b"forward",),
                12: (),
            },
        )
        main, other = told.of_threads().values()
        self.assertEqual(paired(main), [])
        self.assertEqual(main[0], ("begin", (b"early",)))
        self.assertEqual(
            other,
            [
                ("begin", (b"thread",)),
                ("begin", (b"thread", b"inner")),
                ("end", (b"thread", b"inner")),
                ("end", (b"thread",)),
            ],
        )

    def test_rows_of_the_timeline(self) -> None:
        self.run_job("tags_job", "nested")
        events = self.reported("timeline")["traceEvents"]
        rows = {
            event["tid"]: event["args"]["name"]
            for event in events
            if event["name"] == "thread_name" and event["args"]["name"].startswith("tags of")
        }
        self.assertEqual(len(rows), 2, "two threads opened tags")
        spans: dict[int, list[tuple[str, float, float]]] = {row: [] for row in rows}
        for event in events:
            if event["ph"] == "X" and event["tid"] in spans:
                begin = float(event["ts"])
                spans[event["tid"]].append((event["name"], begin, begin + float(event["dur"])))
        main, other = sorted(spans.values(), key=lambda row: min(begin for _, begin, _ in row))
        names = [
            [name for name, _, _ in sorted(row, key=lambda each: each[1])] for row in (main, other)
        ]
        self.assertEqual(sorted(names[0]), ["again", "early", "forward", "forward"])
        self.assertEqual(names[1], ["thread", "inner"])
        (_, outer_begin, outer_end), (_, begin, end) = sorted(other, key=lambda each: each[1])
        self.assertLessEqual(outer_begin, begin)
        self.assertLessEqual(end, outer_end)

    def test_a_tag_from_before_the_trace_in_which_nothing_happens(self) -> None:
        self.run_job("tags_job", "unseen")
        told = self.told().spans
        self.assertEqual(
            [(what, tag) for what, _, tag in told], [("begin", (b"early",)), ("end", (b"early",))]
        )

    def test_bad_input(self) -> None:
        self.run_job("tags_job", "bad-input")
        told = self.told()
        strange = b"quotes \" ' <b> \\ \n \x01 \xff\xfe \xed\xa0\x80 \x1b[31m"
        self.assertEqual(
            [tag for _, _, tag in told.spans],
            [tag for tag in ((b"inside",), (b"x" * 254,), (strange,)) for _ in range(2)],
        )
        self.assertEqual(told.allocations, {1: (), 2: (b"inside",), 3: (), 4: (strange,)})

    def test_deeper_than_is_kept(self) -> None:
        self.run_job("tags_job", "deep")
        told = self.told()
        levels = tuple(f"level {i}".encode() for i in range(1, 65))
        self.assertEqual(told.allocations, {1: levels, 2: levels[:1], 3: ()})
        self.assertEqual(paired([(what, tag) for what, _, tag in told.spans]), [])

    def test_more_names_than_are_kept(self) -> None:
        result = self.run_job("tags_job", "many")
        told = self.told()
        self.assertEqual(len(told.tags) - 1, 65536)
        self.assertEqual(told.allocations, {1: (b"known",), 2: (b"known",)})
        self.assertEqual(result.stderr.count("65536 different tags"), 1)

    def test_threads_that_push_the_same_names(self) -> None:
        self.run_job("tags_job", "threads")
        told = self.told()
        names = {(f"shared {i}".encode(),) for i in range(500)}
        met = {(f"met {i}".encode(),) for i in range(20000)}
        expected = names | {(*name, b"inside") for name in names} | met | {(b"alone",), ()}
        self.assertTrue(set(told.tags.values()) == expected)
        self.assertEqual(len(told.tags), len(expected), "a name has one id")
        threads = told.of_threads()
        self.assertEqual(len(threads), 10)
        for spans in threads.values():
            self.assertEqual(paired(spans), [])
        self.assertEqual(told.allocations, {1: (b"alone",)})

    def test_from_python(self) -> None:
        source = """
import ctypes
memshim = ctypes.CDLL(None)
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
memshim.memshim_step()
for name in ["d\\u00e9but", "fin"]:  # in the same buffer, one after the other
    buffer = ctypes.create_string_buffer(name.encode(), 16)
    memshim.memshim_tag_push(buffer)
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), 1024 * len(name)) == 0
    memshim.memshim_tag_pop()
"""
        self.run_under_shim(sys.executable, "-c", source).check()
        told = self.told()
        self.assertEqual(told.steps, [(1, CALLED)])
        self.assertEqual(told.allocations, {5: ("d\u00e9but".encode(),), 3: (b"fin",)})
        at_peak = {
            tuple(each["path"]): (each["bytes"], each["at_peak_bytes"], each["live_bytes"])
            for each in self.reported("json")["tags"]
        }
        sizes = {("d\u00e9but",): 5 * KIB, ("fin",): 3 * KIB}
        self.assertEqual(at_peak, {path: (size,) * 3 for path, size in sizes.items()})

    def test_steps(self) -> None:
        self.run_job("tags_job", "steps")
        self.assertEqual(self.told().steps, [(2, CALLED), (3, CALLED), (4, CALLED)])

    def test_child_of_a_process_that_uses_the_device(self) -> None:
        self.run_job("tags_job", "fork-after")
        told = self.told()
        self.assertEqual([tag for _, _, tag in told.spans], [(b"parent",)] * 2)
        self.assertEqual(told.steps, [])

    def test_child_from_before_the_device_was_used(self) -> None:
        self.run_job("tags_job", "fork-before")
        told = self.told()
        tag = (b"parent", b"child")
        self.assertEqual(told.allocations, {2: tag, 3: tag})
        (spans,) = told.of_threads().values()
        self.assertEqual(paired(spans), [])

    def test_without_a_device_nothing_is_left(self) -> None:
        result = self.run_job("tags_job", "no-device")
        self.assertEqual(result.stderr, "")
        self.assertFalse(self.output.exists())

    def test_without_a_trace(self) -> None:
        self.run_job("tags_job", "nested", MEMSHIM_TRACE="off")
        self.assertFalse(self.output.exists())

    def test_without_frames_a_tag_is_a_site(self) -> None:
        self.run_job("tags_job", "nested", MEMSHIM_STACKS="off")
        self.assertEqual(self.told().allocations[4], (b"forward",))


@unittest.skipUnless(NVTX.exists(), "built without NVTX's headers")
class Nvtx(TagTest):
    def test_ranges(self) -> None:
        self.run_job(NVTX, "ranges")
        told = self.told()
        wide = ("w\u00e9".encode(), "\u20ac \U0001f600 \ufffd".encode())
        self.assertEqual(
            set(told.tags.values()),
            {
                (),
                (b"outer",),
                (b"outer", b"colored"),
                (b"outer", b"colored", *wide[:1]),
                (b"outer", b"colored", *wide),
                (b"whole",),
                (b"colored",),
            },
        )
        self.assertEqual(
            {told.tags[tag][-1] for tag, color in told.colors.items() if color == 0xFF112233},
            {b"colored", wide[1]},
        )
        self.assertEqual(told.allocations, {1: (b"outer",), 2: (b"outer", b"colored"), 3: ()})
        threads = told.of_threads()
        whole = threads.pop(0)
        self.assertEqual(
            whole,
            [(what, tag) for what in ("begin", "end") for tag in ((b"whole",), (b"colored",))],
        )
        (spans,) = threads.values()
        self.assertEqual(paired(spans), [])

    def test_domains_nest_by_themselves(self) -> None:
        self.run_job(NVTX, "domains")
        told = self.told()
        one, two = b"one: registered", "tw\u00f6: wide".encode()
        self.assertEqual(told.allocations, {1: (one, two, one), 2: (one, two, one)})
        self.assertEqual(
            [(what, tag) for what, thread, tag in told.spans if thread != 0],
            [
                ("begin", (one,)),
                ("begin", (one, two)),
                ("begin", (one, two, one)),
                ("end", (one, two)),
                ("end", (one, two, one)),
                ("end", (one,)),
            ],
        )

    def test_ranges_named_step(self) -> None:
        self.run_job(NVTX, "steps")
        self.assertEqual(self.told().steps, [(i, BY_NVTX) for i in range(1, 5)])

    def test_bad_input(self) -> None:
        self.run_job(NVTX, "bad-input")
        self.assertEqual(self.told().spans, [])

    def test_without_a_device_nothing_is_left(self) -> None:
        result = self.run_job(NVTX, "no-device")
        self.assertEqual(result.stderr, "")
        self.assertFalse(self.output.exists())

    def test_the_tool_of_somebody_else_comes_first(self) -> None:
        tool = NVTX.with_name("libnvtx_tool.so")
        result = self.run_job(NVTX, "unheard", NVTX_INJECTION64_PATH=tool)
        self.assertEqual(result.stdout, "another tool was asked\n")

    def test_libraries_are_heard_but_nvidias_own(self) -> None:
        for library, level in (("libplugin.so", "0\n"), ("libcublas_plugin.so", "-2\n")):
            with self.subTest(library):
                path = NVTX.with_name(library)
                result = self.run_under_shim(NVTX, "library", path).check()
                self.assertEqual(result.stdout, level)

    def test_memshim_by_a_relative_path(self) -> None:
        (self.folder / "libmemshim.so").symlink_to(SHIM)
        result = run(
            [NVTX, "library", NVTX.with_name("libplugin.so")],
            cwd=self.folder,
            LD_PRELOAD="./libmemshim.so",
        ).check()
        self.assertEqual(result.stdout, "0\n")

    def test_the_environment_is_left_alone(self) -> None:
        result = self.run_under_shim("env").check()
        self.assertNotIn("NVTX", result.stdout)


if __name__ == "__main__":
    unittest.main()
