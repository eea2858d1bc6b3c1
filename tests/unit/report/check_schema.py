"""Makes a run, completes its reports, and holds every document against report/schema.json.

Usage: check_schema.py MAKE_RUN SCHEMA. The part of JSON Schema that the file uses is implemented
here, so that the check needs nothing but Python; where the jsonschema package is present, it is
asked as well.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def is_type(value: Any, name: str) -> bool:  # noqa: ANN401
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, TYPES[name])


class Schema:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def errors(self, value: Any, schema: dict[str, Any], where: str) -> list[str]:  # noqa: ANN401
        if "$ref" in schema:
            target: Any = self.root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            return self.errors(value, target, where)
        if "oneOf" in schema:
            tries = [self.errors(value, choice, where) for choice in schema["oneOf"]]
            if sum(not found for found in tries) == 1:
                return []
            return min(tries, key=len) or [f"{where}: fits several"]
        return self.plain_errors(value, schema, where)

    def plain_errors(self, value: Any, schema: dict[str, Any], where: str) -> list[str]:  # noqa: ANN401
        found: list[str] = []
        names = schema.get("type", [])
        names = [names] if isinstance(names, str) else names
        if names and not any(is_type(value, name) for name in names):
            return [f"{where}: {value!r} is not {names}"]
        if "const" in schema and value != schema["const"]:
            found.append(f"{where}: {value!r} is not {schema['const']!r}")
        if "enum" in schema and value not in schema["enum"]:
            found.append(f"{where}: {value!r} is none of {schema['enum']}")
        if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            found.append(f"{where}: {value!r} does not match {schema['pattern']}")
        if isinstance(value, (int, float)):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                found.append(f"{where}: {value} is out of range")
        elif isinstance(value, list):
            for number, item in enumerate(value):
                found += self.errors(item, schema.get("items", {}), f"{where}[{number}]")
        elif isinstance(value, dict):
            found += self.object_errors(value, schema, where)
        return found

    def object_errors(self, value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
        known = schema.get("properties", {})
        other = schema.get("additionalProperties", {})
        found = [
            f"{where}: {name} is missing"
            for name in schema.get("required", [])
            if name not in value
        ]
        for name, member in value.items():
            if name in known:
                found += self.errors(member, known[name], f"{where}.{name}")
            elif other is False:
                found.append(f"{where}: {name} is not described")
            else:
                found += self.errors(member, other, f"{where}.{name}")
        return found


def check_report(schema: dict[str, Any], path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = Schema(schema).errors(document, schema, "$")
    assert not found, f"{path}: {found[:5]}"
    try:
        import jsonschema
    except ImportError:
        return document
    jsonschema.validate(document, schema)
    return document


def check_timeline(path: Path) -> None:
    """The trace-event form: what Perfetto needs of each event."""
    document = json.loads(path.read_text(encoding="utf-8"))
    events = document["traceEvents"]
    assert 10 < len(events) < 20000, len(events)
    phases = {event["ph"] for event in events}
    assert phases <= {"M", "C", "i"} and {"M", "C", "i"} <= phases, phases
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        if event["ph"] == "C":
            assert event["args"].keys() == {"bytes"}
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {f"device 0 {line}" for line in ("live", "reserved", "charged", "cap")}


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
        assert Schema(schema).errors(broken, schema, "$"), change


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
        states = []
        for folder in sorted(path.parent for path in run.glob("*/trace.mshm")):
            document = check_report(schema, folder / "report.json")
            states.append(document["process"]["state"])
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
