# SPDX-License-Identifier: Apache-2.0
"""Makes a run, completes its reports, and holds every document against report/render/schema.json.

Usage: check_schema.py MAKE_RUN SCHEMA. Where the jsonschema package is present, it is asked too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "process"))
import documents  # noqa: E402

# As make_run.c has them.
STEPS = 12
GROWING, GROWING_BYTES = 100, 128 << 10


def check_report(schema: dict[str, Any], path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    documents.check(document, documents.REPORT)
    try:
        import jsonschema
    except ImportError:
        return document
    jsonschema.validate(document, schema)
    return document


def check_timeline(path: Path) -> None:
    """The trace-event form: what there is to see."""
    document = json.loads(path.read_text(encoding="utf-8"))
    documents.check(document, documents.TRACE_EVENTS)
    events = document["traceEvents"]
    assert 10 < len(events) < 20000, len(events)
    phases = {event["ph"] for event in events}
    assert phases == {"M", "C", "i", "X"}, phases
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["name"].startswith("step ") for event in spans) == STEPS, spans
    assert sum(event["name"] == "forward" for event in spans) == STEPS / 2, spans
    assert all(event["args"] for event in events if event["ph"] == "C")
    counters = {event["name"] for event in events if event["ph"] == "C"}
    lines = {f"device 0 {line}" for line in ("live", "reserved", "charged", "cap")}
    assert lines <= counters, counters
    # What is drawn by kind is what was live: at its highest, and where it ends.
    (kinds,) = (name for name in counters if "by kind" in name)
    drawn = [event["args"] for event in events if event["name"] == kinds]
    assert max(sum(args.values()) for args in drawn) > 0, kinds


HOSTILE = 'a"b;c\n<script>\x1b[2J\ufffd d\u202e\\'
STEP = re.compile(r"train\.py:(\d+) in step")


def check_survey(document: dict[str, Any]) -> None:
    """What grows, and what was live at each out-of-memory, as make_run told it."""
    device = document["devices"][0]
    (growing,) = device["growth"]
    assert growing["site"] == GROWING and growing["bytes_per_step"] == GROWING_BYTES, growing
    assert growing["since_step"] == 1, growing
    assert sum(row["count"] for row in device["histogram"]) == device["tensors"]["births"]
    # Nothing was asked for or freed after them.
    live = sum(site["live_bytes"] for site in document["call_sites"])
    for oom in document["oom_events"]:
        assert sum(kind["bytes"] for kind in oom["kinds"]) == live, oom


def check_sites(document: dict[str, Any]) -> None:
    """Call sites add up to the device's own figures, and say what synthetic_define told."""
    device = document["devices"][0]
    sites = document["call_sites"]
    assert sum(site["live_bytes"] for site in sites) <= device["peak_live_bytes"]
    assert sum(site["at_peak_bytes"] for site in sites) == device["peak_live_bytes"]
    held = [site["at_peak_bytes"] + site["forwarded_at_peak_bytes"] for site in sites]
    if sites[-1]["id"] is None:
        held.pop()
    assert held == sorted(held, reverse=True) and held[0] > 0
    for site in sites:
        assert site["bytes"] >= site["peak_bytes"] or site["id"] is None
        if site["id"] is None or site["id"] in (0, 7, GROWING):
            continue
        if site["id"] >= 90:
            assert site["thread"] == "backward", site
            continue
        line = STEP.fullmatch(site["line"])
        assert line and int(line[1]) == 200 + site["id"], site["line"]
        frames = [(frame["function"], frame["line"]) for frame in site["frames"]]
        innermost = ("libjob.so+0x1234", None)
        assert frames == [innermost, ("step", 200 + site["id"]), ("main", 10)], frames
        assert site["tags"] == ["forward"][: site["id"] % 2]
    hostile = [site for site in sites if site["id"] == 7]
    for site in hostile:
        assert site["tags"] == ["forward", HOSTILE], site["tags"]
        assert site["frames"][1]["function"] == HOSTILE
    attribution = document["attribution"][0]
    assert attribution["at_peak_bytes"] == device["peak_live_bytes"]
    unknown = sum(site["at_peak_bytes"] for site in sites if site["id"] == 0)
    assert attribution["with_site_bytes"] == device["peak_live_bytes"] - unknown
    paths = {tuple(tag["path"]): tag["at_peak_bytes"] for tag in document["tags"]}
    assert paths.keys() == {("forward",), ("forward", HOSTILE)}, paths.keys()
    assert document["steps"]["count"] == len(document["steps"]["times_ns"]) == STEPS


FOLDED = re.compile(r"((?:[^;\n]+;)*[^;\n]+) (\d+)")


def check_folded(command: list[str], folder: Path, document: dict[str, Any]) -> None:
    """Every line is frames and a number; the numbers are the peak; nothing hostile gets through."""
    done = subprocess.run([*command, str(folder)], check=True, capture_output=True)
    text = done.stdout.decode("utf-8")
    total = 0
    for line in text.splitlines():
        match = FOLDED.fullmatch(line)
        assert match, line
        assert line.isprintable(), line
        total += int(match[2])
    assert total == document["devices"][0]["peak_live_bytes"]
    assert "main (/job/train.py:10);step (/job/train.py:2" in text
    assert "<script>" in text and "\\x3b" in text


def check_schema_bites(schema: dict[str, Any], document: dict[str, Any]) -> None:
    """A document that breaks the schema is refused: the check itself can fail."""
    for change in ("remove", "add", "retype"):
        broken = json.loads(json.dumps(document))
        device = broken["devices"][0]
        if change == "remove":
            del device["peak_live_bytes"]
        elif change == "add":
            device["surprise"] = 1
        else:
            device["peak_live_bytes"] = "many"
        assert documents.Schema(schema).errors(broken, schema, "$"), change


def main() -> None:
    make_run, schema_path = sys.argv[1:]
    schema = json.loads(Path(schema_path).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as output:
        run = Path(
            subprocess.run(
                [make_run, output], check=True, capture_output=True, text=True
            ).stdout.strip()
        )
        merged = check_report(schema, run / "report.json")
        assert len(merged["processes"]) == len(merged["ranks"]) == 3
        for process in merged["processes"]:
            sites = process["call_sites"]
            assert len(sites) == 31 and sites[-1]["id"] is None and sites[-1]["kind"] == "rest"
            held = sum(site["at_peak_bytes"] for site in sites)
            assert held == process["devices"][0]["peak_live_bytes"], held
        states = []
        for folder in sorted(path.parent for path in run.glob("*/trace.mshm")):
            document = check_report(schema, folder / "report.json")
            states.append(document["process"]["state"])
            check_sites(document)
            check_survey(document)
            check_folded([make_run, "--folded"], folder, document)
            check_timeline(folder / "timeline.json")
            check_schema_bites(schema, document)
            text = (folder / "report.txt").read_text(encoding="utf-8")
            assert text.splitlines()[0].startswith("memshim  ")
            assert "\x1b" not in text
        assert sorted(states) == ["ended", "ended", "killed"], states
        assert merged["first_dead"] is not None
    print("every report fits the schema")


if __name__ == "__main__":
    main()
