# SPDX-License-Identifier: Apache-2.0
"""What memshim report and memshim diff write for other programs opens where it belongs, says what
report.json says, and holds no name that could do anything there."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import documents
from machine import CLI, ROOT, TIMEOUT_S, run_of_three

PROTO = ROOT / "tests" / "process" / "profile.proto"
FOLDED = re.compile(r"((?:[^;\n]+;)*[^;\n]+) (\d+)")
VALUES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")


def memshim(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([CLI, *arguments], capture_output=True, timeout=TIMEOUT_S)


class Plain(pickle.Unpickler):
    """Reads data alone: what would import or call anything is refused."""

    def find_class(self, module: str, name: str) -> type:
        raise AssertionError(f"{module}.{name}")


def text_format(text: str) -> dict[str, list[Any]]:
    """protoc's text form: every field as the list of its values."""
    top: dict[str, list[Any]] = {}
    stack = [top]
    for line in text.splitlines():
        line = line.strip()
        if line.endswith("{"):
            message: dict[str, list[Any]] = {}
            stack[-1].setdefault(line[:-2], []).append(message)
            stack.append(message)
        elif line == "}":
            stack.pop()
        else:
            name, value = line.split(": ", 1)
            stack[-1].setdefault(name, []).append(
                value[1:-1] if value.startswith('"') else value == "true" or int(value)
            )
    return top


class ExportsTest(unittest.TestCase):
    """One run of three processes: well, out of memory, killed; with hostile names."""

    run_folder: Path
    folders: list[Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.run_folder = run_of_three()
        cls.folders = sorted(path.parent for path in cls.run_folder.glob("*/trace.mshm"))

    def export(self, form: str, *paths: Path | str) -> bytes:
        done = memshim("report", *paths, "--format", form)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def report(self, folder: Path) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.export("json", folder))
        documents.check(document, documents.REPORT)
        return document

    def diff(self, *arguments: Path | str) -> dict[str, Any]:
        done = memshim("diff", *arguments, "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        document: dict[str, Any] = json.loads(done.stdout)
        self.assertEqual(document["schema"], "memshim-diff/1")
        return document


@unittest.skipUnless(shutil.which("protoc"), "protoc is not installed")
class Pprof(ExportsTest):
    def profile(self, *paths: Path | str) -> dict[str, list[Any]]:
        done = subprocess.run(
            ["protoc", f"--proto_path={PROTO.parent}", "--decode=Profile", PROTO.name],
            input=gzip.decompress(self.export("pprof", *paths)),
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return text_format(done.stdout.decode())

    def test_it_says_what_the_report_says(self) -> None:
        profile, report = self.profile(self.folders[1]), self.report(self.folders[1])
        strings = profile["string_table"]
        self.assertEqual(strings[0], "")
        types = [strings[kind["type"][0]] for kind in profile["sample_type"]]
        self.assertEqual(types, list(VALUES))
        sums = dict.fromkeys(VALUES, 0)
        for sample in profile["sample"]:
            for name, value in zip(VALUES, sample["value"], strict=True):
                sums[name] += value
        device = report["devices"][0]
        self.assertEqual(sums["inuse_space"], device["peak_live_bytes"])
        self.assertGreater(sums["inuse_objects"], 100)
        self.assertEqual(sums["alloc_space"], sum(site["bytes"] for site in report["call_sites"]))
        self.assertEqual(
            sums["alloc_objects"], sum(site["allocations"] for site in report["call_sites"])
        )

    def test_stacks_and_labels(self) -> None:
        profile = self.profile(self.folders[1])
        strings = profile["string_table"]
        functions = {function["id"][0]: function for function in profile["function"]}
        locations = {place["id"][0]: place for place in profile["location"]}
        stacks, labels = set(), set()
        for sample in profile["sample"]:
            frames = []
            for number in sample["location_id"]:
                (line,) = locations[number]["line"]
                function = functions[line["function_id"][0]]
                frames.append((strings[function["name"][0]], line.get("line", [0])[0]))
            stacks.add(tuple(frames))
            for label in sample["label"]:
                value = strings[label["str"][0]] if "str" in label else label.get("num", [0])[0]
                labels.add((strings[label["key"][0]], value))
        self.assertIn((("libjob.so+0x1234", 0), ("step", 201), ("main", 10)), stacks)
        # pprof takes a function whose two names are the same for one of C++.
        system = {
            strings[function["name"][0]]: "system_name" in function
            for function in profile["function"]
        }
        self.assertTrue(system["libjob.so+0x1234"])
        self.assertFalse(system["main"])
        self.assertLessEqual({("device", 0), ("rank", 0), ("tag", "forward")}, labels)
        self.assertIn("kind", {key for key, _ in labels})
        modules = [strings[mapping["filename"][0]] for mapping in profile["mapping"]]
        self.assertEqual(modules, ["/nowhere/libjob.so"])

    def test_several_processes(self) -> None:
        samples = len(self.profile(self.run_folder)["sample"])
        alone = [len(self.profile(folder)["sample"]) for folder in self.folders]
        self.assertEqual(samples, sum(alone))


class Snapshot(ExportsTest):
    def snapshot(self, folder: Path, *arguments: str) -> dict[str, Any]:
        done = memshim("report", folder, "--format", "torch-snapshot", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        value: dict[str, Any] = Plain(io.BytesIO(done.stdout)).load()
        return value

    def test_segments_at_the_peak(self) -> None:
        snapshot, report = self.snapshot(self.folders[1]), self.report(self.folders[1])
        live = 0
        for segment in snapshot["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                at += block["size"]
                live += block["requested_size"]
            self.assertEqual(at, segment["address"] + segment["total_size"])
        self.assertEqual(live, report["devices"][0]["peak_live_bytes"])

    def test_events_lead_to_the_segments(self) -> None:
        for moment in ("peak", "end", "step:3"):
            snapshot = self.snapshot(self.folders[1], "--at", moment)
            (events,) = snapshot["device_traces"]
            live: dict[int, int] = {}
            for event in events:
                if event["action"] == "alloc":
                    self.assertNotIn(event["addr"], live)
                    live[event["addr"]] = event["size"]
                elif event["action"] == "free_completed":
                    self.assertEqual(live.pop(event["addr"]), event["size"])
            blocks = {
                block["address"]: block["size"]
                for segment in snapshot["segments"]
                for block in segment["blocks"]
                if block["state"] == "active_allocated"
            }
            self.assertEqual(live, blocks)
            self.assertGreater(len(live), 100)

    def test_an_out_of_memory(self) -> None:
        snapshot = self.snapshot(self.folders[0])
        last = snapshot["device_traces"][0][-1]
        self.assertEqual((last["action"], last["size"]), ("oom", 30 << 30))

    def test_a_moment_that_was_not(self) -> None:
        for moment, said in (
            ("400h", b"it ran only"),
            ("step:77", b"step 77"),
            ("oom", b"had no out-of-memory"),
        ):
            done = memshim("report", self.folders[1], "--format", "torch-snapshot", "--at", moment)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertIn(str(self.folders[1]).encode(), done.stderr)


class Csv(ExportsTest):
    def replay(self, path: Path) -> dict[str, Any]:
        done = memshim("replay", path, "--min-cap", "--json")
        self.assertEqual(done.stderr, b"")
        answer: dict[str, Any] = json.loads(done.stdout)
        for volatile in ("trace", "pool_ns_per_operation", "elapsed_ns"):
            del answer[volatile]
        for of_the_run in ("cap_bytes", "device_bytes"):
            del answer["recording"][of_the_run]
        return answer

    def test_a_replay_of_it_is_a_replay_of_the_trace(self) -> None:
        for folder in self.folders:
            path = folder / "run.csv"
            path.write_bytes(self.export("csv", folder))
            answer = self.replay(path)
            self.assertGreater(answer["recording"]["operations"], 10000)
            self.assertEqual(answer, self.replay(folder))

    def test_no_cell_is_a_formula(self) -> None:
        """What is read again is exact; a name stands behind its number, so that a spreadsheet sees
        text."""
        for folder in self.folders:
            for row in csv.reader(io.StringIO(self.export("csv", folder).decode())):
                self.assertFalse([cell for cell in row if cell.startswith(("=", "+", "-", "@"))])

    def test_it_names_the_lines_of_code(self) -> None:
        rows = list(csv.DictReader(io.StringIO(self.export("csv", self.folders[1]).decode())))
        sites = {row["site"] for row in rows} - {""}
        self.assertIn("1 train.py:201 in step", sites)
        numbers = [int(site.split()[0]) for site in sites]
        self.assertGreater(len(numbers), 90)
        self.assertEqual(len(numbers), len(set(numbers)))


# In the interpreter that has it: what the viewer of flame graphs makes of standard input. Its own
# root stands above the outermost frames.
FLAME = """
import json, sys
from flamegraph_textual.parsers import parse

profile = parse(sys.stdin.buffer.read(), "stdin")
told, todo = [], [(frame, []) for frame in profile.root_stack.children]
while todo:
    frame, callers = todo.pop()
    stack = callers + [frame.name]
    own = [value - sum(child.values[i] for child in frame.children)
           for i, value in enumerate(frame.values)]
    told.append([stack, own])
    todo += [(child, stack) for child in frame.children]
json.dump({"values": profile.root_stack.values, "stacks": told}, sys.stdout)
"""


def flame_python() -> str | None:
    """An interpreter that has the viewer of flame graphs."""
    venv = Path(os.environ.get("MEMSHIM_VENV", ROOT / ".venv"))
    for python in (sys.executable, str(venv / "bin" / "python")):
        asked = [python, "-c", "import flamegraph_textual"]
        with contextlib.suppress(OSError):
            if subprocess.run(asked, capture_output=True).returncode == 0:
                return python
    return None


class Folded(ExportsTest):
    def test_a_flame_graph_is_made_of_it(self) -> None:
        python = flame_python()
        if python is None:
            self.skipTest("no viewer of flame graphs: scripts/setup.sh --browser installs one")
        text = self.export("folded", self.folders[1])
        done = subprocess.run(
            [python, "-c", FLAME], input=text, capture_output=True, timeout=TIMEOUT_S
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        graph = json.loads(done.stdout)
        self.assertEqual(
            graph["values"], [self.report(self.folders[1])["devices"][0]["peak_live_bytes"]]
        )
        seen = {";".join(stack): own for stack, (own,) in graph["stacks"] if own > 0}
        wanted: dict[str, int] = {}
        for line in text.decode().splitlines():
            stack, held = line.rsplit(" ", 1)
            wanted[stack] = wanted.get(stack, 0) + int(held)
        self.assertEqual(seen, wanted)

    def test_every_line_is_frames_and_a_number(self) -> None:
        text = self.export("folded", self.folders[1]).decode()
        matches = [FOLDED.fullmatch(line) for line in text.splitlines()]
        self.assertGreater(len(matches), 50)
        total = sum(int(match[2]) if match else -1 for match in matches)
        peak = self.report(self.folders[1])["devices"][0]["peak_live_bytes"]
        self.assertEqual(total, peak)


class Timeline(ExportsTest):
    def test_it_is_of_the_trace_event_format(self) -> None:
        for path in (*self.folders, self.run_folder):
            trace = json.loads(self.export("timeline", path))
            documents.check(trace, documents.TRACE_EVENTS)
            self.nested([event for event in trace["traceEvents"] if event["ph"] == "X"])

    def nested(self, spans: list[dict[str, Any]]) -> None:
        """Of one row: each is inside the one before it, or after it."""
        self.assertGreater(len(spans), 12)
        within: dict[tuple[int, int], list[int]] = {}
        for span in sorted(spans, key=lambda each: (each["ts"], -each["dur"])):
            ends = within.setdefault((span["pid"], span["tid"]), [])
            start_ns, dur_ns = round(1000 * span["ts"]), round(1000 * span["dur"])
            while ends and ends[-1] <= start_ns:
                ends.pop()
            ends.append(start_ns + dur_ns)
            self.assertEqual(ends[-1], min(ends), span)

    def test_kinds_and_sites_are_what_is_live(self) -> None:
        events = json.loads(self.export("timeline", self.folders[1]))["traceEvents"]
        peak = self.report(self.folders[1])["devices"][0]["peak_live_bytes"]
        for name in ("live by kind", "live by site"):
            counters = [e for e in events if e["name"] == f"device 0 {name}"]
            self.assertTrue(all(e["ph"] == "C" for e in counters))
            times = [e["ts"] for e in counters]
            self.assertEqual(times, sorted(times))
            self.assertEqual(max(sum(e["args"].values()) for e in counters), peak)
        steps = [e["name"] for e in events if e["ph"] == "X" and e["name"].startswith("step ")]
        self.assertEqual(steps, [f"step {number}" for number in range(1, 13)])


class Diff(ExportsTest):
    def test_two_ranks(self) -> None:
        found = self.diff(self.folders[1], self.folders[2])
        self.assertFalse(found["moments_of_one_run"])
        for side, folder in (("a", self.folders[1]), ("b", self.folders[2])):
            peak = self.report(folder)["devices"][0]["peak_live_bytes"]
            self.assertEqual(found[side]["live_bytes"], peak)
            self.assertEqual(sum(site[f"{side}_bytes"] for site in found["sites"]), peak)
        changes = [abs(site["change_bytes"]) for site in found["sites"]]
        self.assertEqual(changes, sorted(changes, reverse=True))
        frames = [json.dumps([s["line"], s["frames"]]) for s in found["sites"]]
        self.assertEqual(len(frames), len(set(frames)))
        both = [site for site in found["sites"] if site["a_bytes"] and site["b_bytes"]]
        self.assertGreater(len(both), 50)
        for line in found["lines"]:
            told = (line["factor"] or 0) * line["a_bytes"]
            held = line["b_bytes"] if line["a_bytes"] else 0
            self.assertAlmostEqual(told, held, delta=1 + line["a_bytes"] / 1e6)

    def born_between(self, folder: Path, first: str, second: str) -> list[int]:
        """Sizes of what lives at the second moment and did not at the first, from snapshots."""
        events = []
        for moment in (first, second):
            done = memshim("report", folder, "--format", "torch-snapshot", "--at", moment)
            events.append(Plain(io.BytesIO(done.stdout)).load()["device_traces"][0])
        live: dict[int, int] = {}
        for event in events[1][len(events[0]) :]:
            if event["action"] == "alloc":
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                live.pop(event["addr"], None)
        return list(live.values())

    def test_two_moments(self) -> None:
        folder = self.folders[1]
        found = self.diff(f"{folder}@step:3", f"{folder}@step:8")
        self.assertTrue(found["moments_of_one_run"])
        born = self.born_between(folder, "step:3", "step:8")
        self.assertGreater(len(born), 100)
        self.assertEqual(sum(site["born_bytes"] for site in found["sites"]), sum(born))
        self.assertEqual(sum(site["born_count"] for site in found["sites"]), len(born))
        for site in found["sites"]:
            self.assertLessEqual(site["born_bytes"], site["b_bytes"])
            self.assertLessEqual(site["born_count"], site["b_count"])
        same = self.diff(f"{folder}@step:5", f"{folder}@step:5")
        self.assertEqual({site["born_bytes"] for site in same["sites"]}, {0})
        self.assertEqual({site["change_bytes"] for site in same["sites"]}, {0})

    def test_several_processes(self) -> None:
        found = self.diff(self.run_folder, self.folders[1])
        peaks = [self.report(folder)["devices"][0]["peak_live_bytes"] for folder in self.folders]
        self.assertEqual(found["a"]["processes"], 3)
        self.assertEqual(found["a"]["live_bytes"], sum(peaks))

    def test_what_is_wrong_is_named(self) -> None:
        folder = str(self.folders[1])
        for arguments, status, said in (
            ((folder,), 2, folder),
            ((folder, folder, folder), 2, "a third"),
            ((folder, f"{folder}@noon"), 2, "noon"),
            ((folder, f"{folder}/none"), 1, "none"),
            ((f"{folder}@end", f"{folder}@step:2"), 1, "name the earlier one first"),
            ((folder, folder, "--predict", "batch=8"), 2, "batch=8"),
            ((folder, folder, "--predict", "batch=8,8"), 2, "batch=8,8"),
            ((folder, str(self.run_folder), "--predict=batch=8,16"), 2, "one rank"),
            ((folder, folder, "--format", "html"), 2, "html"),
            ((folder, folder, "--nonsense"), 2, "--nonsense"),
        ):
            done = memshim("diff", *arguments)
            self.assertEqual((done.returncode, done.stdout), (status, b""), arguments)
            self.assertIn(said, done.stderr.decode())


class Hostile(ExportsTest):
    """Markup, quotes, newlines, controls and bytes that are no UTF-8 do nothing in any form."""

    def check_text(self, form: str, text: str) -> None:
        """Nothing moves a cursor, hides or reorders text, or ends a line."""
        for line in text.split("\n"):
            self.assertTrue(line.isprintable() or line == "", (form, line))

    def test_every_form(self) -> None:
        for form in ("text", "folded", "csv"):
            for folder in self.folders:
                text = self.export(form, folder).decode()
                self.check_text(form, text)
        self.check_text("merged text", self.export("text", self.run_folder).decode())
        text = memshim("diff", self.folders[0], self.folders[1]).stdout.decode()
        self.check_text("diff", text)
        self.assertIn("<b>\\x0a\\xff", text)
        lines = [site["line"] for site in self.diff(self.folders[0], self.folders[1])["sites"]]
        self.assertTrue(any("<script>" in line for line in lines))
        self.assertTrue(all(line.isprintable() for line in lines))
        for site in self.diff(self.folders[0], self.folders[1])["sites"]:
            for frame in site["frames"]:
                self.assertTrue((frame["function"] + frame["file"]).isprintable(), frame)
            functions = [frame["function"] for frame in site["frames"]]
            if len(functions) > 1:
                self.assertEqual(functions[:1] + functions[2:], ["libjob.so+0x1234", "main"])

    def test_documents(self) -> None:
        for form in ("json", "timeline"):
            for path in (*self.folders, self.run_folder):
                document = self.export(form, path)
                json.loads(document.decode())
                self.assertNotIn(b"</", document)
                self.assertNotIn(b"\x1b", document)
        page = self.export("html", self.run_folder).decode()
        self.assertNotIn("\x1b", page)
        start = page.index('id="data">')
        self.assertNotIn("<", page[start + 10 : page.index("</script", start)])

    def test_profile_and_snapshot(self) -> None:
        for folder in self.folders:
            content = gzip.decompress(self.export("pprof", folder))
            self.assertNotIn(b"\x1b[2J", content)
            self.assertNotIn(b"\n<script>", content)
            self.assertIn(b"\\x0a<script>\\x1b[2J\\xff", content)
            snapshot = Plain(io.BytesIO(self.export("torch-snapshot", folder))).load()
            names = {
                text
                for trace in snapshot["device_traces"]
                for event in trace
                for frame in event["frames"]
                for text in (frame["name"], frame["filename"], event["user_metadata"])
            }
            self.assertTrue(any("<script>" in name for name in names))
            for name in names:
                self.assertTrue(name.isprintable(), name)
                self.assertNotIn(";", name.replace(event_tag(name), ""))


def event_tag(name: str) -> str:
    """Tags may hold what separates the frames of stacks; no stack is made of them."""
    return name if name.startswith("forward") else ""


class Choices(ExportsTest):
    def test_what_is_wrong_is_named(self) -> None:
        folder = self.folders[1]
        for arguments, status, said in (
            (("--format", "xml"), 2, "torch-snapshot or csv, not 'xml'"),
            (("--format", "csv", "--device", "x"), 2, "--device is a device's number"),
            (("--format", "csv", "--device", "5"), 1, "no event of device 5"),
            (("--format", "torch-snapshot", "--at", "dawn"), 2, "'dawn'"),
            (("--at", "1s"), 2, "--at is for --format torch-snapshot"),
            (
                ("--format", "json", "--device", "0"),
                2,
                "--device is for --format csv, not for 'json'",
            ),
            (("--modules", folder / "trace.mshm"), 2, "--modules is a folder"),
            (("--output", folder), 1, "Is a directory"),
        ):
            done = memshim("report", folder, *arguments)
            self.assertEqual((done.returncode, done.stdout), (status, b""), arguments)
            self.assertIn(said, done.stderr.decode())
        for form in ("csv", "torch-snapshot"):
            done = memshim("report", self.run_folder, "--format", form)
            self.assertEqual(done.returncode, 2)
            self.assertIn("of one process", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
