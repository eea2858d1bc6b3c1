# SPDX-License-Identifier: Apache-2.0
"""Documents held against their schema: report.json, and what is written for other programs.

The part of JSON Schema that the schemas use is implemented here, so that a check needs nothing but
Python.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from contradictions import contradictions

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "report" / "render" / "schema.json"
FORMS: dict[str, str] = dict(  # the names of all forms of a report, and their files ("": none)
    re.findall(
        r'^FORM\(\w+, \w+, "([^"]+)", (?:NULL|"([^"]+)")',
        (ROOT / "report" / "render" / "forms.def").read_text(),
        re.MULTILINE,
    )
)
BINARY_FORMS = {"pprof", "torch-snapshot"}
TEXT_FORMS = [name for name in FORMS if name not in BINARY_FORMS | {"html"}]  # no markup, no code
TRACE_EVENTS = Path(__file__).parent / "trace_event.schema.json"
FRAMES = 2  # of each call site, where it need not be all of them: most of a report is frames

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


@functools.cache
def schema_at(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def check(document: Any, schema: Path) -> None:  # noqa: ANN401
    root = schema_at(schema)
    found = Schema(root).errors(document, root, "$")
    assert not found, found[:5]


def read_report(path: Path) -> dict[str, Any]:
    """A report.json, which has to fit its schema: all of it but most frames of its stacks. Neither
    it nor what stands beside it may contradict itself."""
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    shorter = {**report}
    if "call_sites" in report:
        shorter["call_sites"] = [
            {**site, "frames": site["frames"][:FRAMES]} for site in report["call_sites"]
        ]
    check(shorter, REPORT)
    found = contradictions(path.parent)
    assert not found, found[:5]
    return report
