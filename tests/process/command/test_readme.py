# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the tables and the tree.

python3 -m command.test_readme --write makes their generated parts anew.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from documents import FORMS
from machine import CLI, ROOT, run

README = ROOT / "README.md"
MOST_README_LINES = 300
# What README.md shows of the table of options; docs/options.md has all.
USUAL_OPTIONS = (
    *("FRACTION", "LIMIT", "TORCH", "POOL", "SPILL", "SPILL_LIMIT", "STACKS", "BATCH"),
    *("STATUS_EVERY", "OUTPUT", "TRACE", "LOG"),
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
OUR_PATH = re.compile(
    r"(?<![\w./~-])((?:scripts|shim|allocator|report|tests|docs|\.ci|\.github)/[\w./-]*[\w/])"
)

SOURCES = {".c", ".h", ".def", ".py", ".sh", ".cpp", ".cmake", ".txt", ".js", ".json", ".css"}


def documents() -> list[Path]:
    """All that people read, but for the list of recorded runs, which is made."""
    inside = [path for top in ("docs", "tests") for path in (ROOT / top).rglob("*.md")]
    return sorted(path for path in [*ROOT.glob("*.md"), *inside] if "traces" not in path.parts)


def written(document: Path) -> str:
    """What people wrote of it: not the generated parts."""
    return re.sub(r"<!-- [\w-]+ -->\n.*?<!-- end -->", "", document.read_text(), flags=re.DOTALL)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- generated parts ---


def table(name: str) -> str:
    """As the built executable prints it."""
    return run([CLI, name, "--markdown"]).check().stdout.strip()


def usual_options() -> str:
    head, rows = table("options").splitlines()[:2], table("options").splitlines()[2:]
    by_name = {row.split("`")[1]: row for row in rows}
    return "\n".join([*head, *(by_name[f"MEMSHIM_{name}"] for name in USUAL_OPTIONS)])


def locks() -> str:
    """The order of locks, without the places that the comments name."""
    text = (ROOT / "allocator/base/locks/lock_rank.def").read_text()
    rows = ["| lock | over | fork | guards |", "|---|---|---|---|"]
    for comment, name, over, fork in re.findall(
        r"/\* ((?:(?!\*/).)*?) \*/\nMS_RANK\((\w+), (\w+), (\w+)\)", text, re.DOTALL
    ):
        words = re.sub(r"\s+\([\w./ ,]*\.\w+\)", "", " ".join(comment.replace("*", " ").split()))
        rows.append(f"| `{name}` | {over.lower()} | {fork.lower()} | {words} |")
    return "\n".join(rows)


def events() -> str:
    """The kinds of event, with what their fields mean."""
    text = (ROOT / "allocator/base/events.def").read_text()
    rows = ["| number | event | fields, and what they mean |", "|---|---|---|"]
    for comment, number, name in re.findall(
        r"/\* ((?:(?!\*/).)*?) \*/\nMS_EVENT\((\d+), (\w+),", text, re.DOTALL
    ):
        words = " ".join(re.sub(r"\n \* ?", " ", comment).split())
        rows.append(f"| {number} | `{name}` | {words.replace('|', '/')} |")
    return "\n".join(rows)


def type_text(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "text"
    if "const" in schema:
        return f"`{schema['const']}`"
    kinds = schema.get("type", "")
    names = {"string": "text", "array": "list", "boolean": "true or false"}
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(names.get(kind, kind) for kind in kinds)


def members(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> Iterator[str]:
    """A row for each member below this one."""
    for name, member in schema.get("properties", {}).items():
        named = definitions.get(member.get("$ref", "").rsplit("/", 1)[-1], {})
        whole = {**named, **member}
        meaning = whole.get("description", "")
        if named.get("description") and member.get("description"):
            meaning = f"{member['description']}. {named['description']}"
        if "enum" in whole:
            known = ", ".join(f"`{word}`" for word in whole["enum"])
            meaning = f"{meaning.rstrip('.')}{'. ' if meaning else ''}One of {known}"
        here = f"{path}{name}"
        yield f"| `{here}` | {type_text(whole)} | {meaning.replace('|', '/')} |"
        yield from members(whole, definitions, f"{here}.")
        items = whole.get("items", {})
        inner = {**definitions.get(items.get("$ref", "").rsplit("/", 1)[-1], {}), **items}
        if inner.get("title") != "report":
            yield from members(inner, definitions, f"{here}[].")


def report_json() -> str:
    schema = json.loads((ROOT / "report/render/schema.json").read_text())
    definitions = schema["definitions"]
    parts = []
    for title, name in (
        ("Of one process: `memshim-report/1`", "report"),
        ("Of a run: `memshim-run-report/1`", "run_report"),
    ):
        whole = definitions[name]
        if name == "run_report":
            definitions = {**definitions, "report": {"title": "report"}}
        rows = members(whole, definitions, "")
        parts += [f"**{title}**", "", "| member | is | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(parts).strip()


# Document and name of the part between its marks, and what makes it.
GENERATED: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "usual-options"): usual_options,
    ("docs/options.md", "options"): functools.partial(table, "options"),
    ("docs/coverage.md", "coverage"): functools.partial(table, "coverage"),
    ("docs/top.md", "statistics"): functools.partial(table, "statistics"),
    ("docs/architecture.md", "locks"): locks,
    ("docs/architecture.md", "events"): events,
    ("docs/report.md", "report-json"): report_json,
}


def part(document: str, name: str) -> re.Match[str]:
    """What stands between the marks."""
    text = (ROOT / document).read_text()
    found = re.search(rf"(<!-- {name} -->\n)(.*?)(\n?<!-- end -->)", text, re.DOTALL)
    assert found, f"{document} has no place for {name}"
    return found


class Generated(unittest.TestCase):
    def test_parts(self) -> None:
        for (document, name), make in GENERATED.items():
            with self.subTest(f"{document}: {name}"):
                given, wanted = part(document, name)[2].splitlines(), make().splitlines()
                differences = [line for line in wanted if line not in given]
                differences += [line for line in given if line not in wanted]
                way_out = "in tests/process: python3 -m command.test_readme --write"
                self.assertEqual(differences, [], way_out)
                self.assertEqual(given, wanted)


# --- links and names ---


def slugs(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = FENCE.sub("", path.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Calls of memshim in code: the subcommand and its options, without those of a command that it
    runs."""
    code = [line for fence in FENCE.findall(text) for line in fence.splitlines()[1:-1]]
    code += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in (re.sub(r"(^|\s)#.*", "", line) for line in code):
        found = re.match(r"(?:.*[\s/;&])?memshim ([a-z][a-z-]*)\b(.*)", line)
        if found:
            own = re.split(r" -- |[|]| && ", found[2])[0]
            yield found[1], re.findall(r"(?<!\S)--[a-z][a-z-]*", own)


@functools.cache
def help_of(command: str) -> str:
    result = run([CLI, command, "--help"])
    return result.stdout if result.status == 0 else ""


@functools.cache
def words_of_the_tree() -> frozenset[str]:
    """Names that begin with ms or memshim, of all files but the documents."""
    tops = [ROOT / top for top in ("allocator", "report", "shim", "scripts", "tests")]
    files = [path for top in tops for path in top.rglob("*") if path.suffix in SOURCES]
    texts = [path.read_text(errors="replace") for path in [ROOT / "CMakeLists.txt", *files]]
    return frozenset(
        name for text in texts for name in re.findall(r"\b(?:MEMSHIM|ms|memshim)_\w+", text)
    )


class Documents(unittest.TestCase):
    def test_each_command_is_named(self) -> None:
        listed = re.findall(r"^  ([a-z-]+)  ", run([CLI, "help"]).check().stdout, re.MULTILINE)
        self.assertGreater(len(listed), 8)
        named = {command for command, _ in commands(README.read_text())}
        self.assertEqual(set(listed) - named - {"version"}, set())

    def test_readme_is_short(self) -> None:
        self.assertLessEqual(len(README.read_text().splitlines()), MOST_README_LINES)

    def test_links(self) -> None:
        count = 0
        for document in documents():
            for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", document.read_text())):
                if re.match(r"\w+:", target):
                    continue
                count += 1
                name, _, anchor = target.partition("#")
                path = (document.parent / name).resolve() if name else document
                with self.subTest(f"{relative(document)}: {target}"):
                    self.assertTrue(path.exists())
                    if anchor:
                        self.assertIn(anchor, slugs(path))
        self.assertGreater(count, 30)

    def test_each_document_is_linked(self) -> None:
        text = README.read_text()
        for path in (ROOT / "docs").glob("*.md"):
            with self.subTest(path.name):
                self.assertIn(f"](docs/{path.name}", text)

    def test_files_that_are_named_exist(self) -> None:
        count = 0
        for document in documents():
            for name in sorted(set(OUR_PATH.findall(document.read_text()))):
                count += 1
                with self.subTest(f"{relative(document)}: {name}"):
                    self.assertTrue((ROOT / name).exists())
        self.assertGreater(count, 40)

    def test_names_that_are_named_exist(self) -> None:
        for document in documents():
            for name in sorted(
                set(re.findall(r"\b(?:MEMSHIM|ms|memshim)_\w*[A-Za-z]\b", written(document)))
            ):
                with self.subTest(f"{relative(document)}: {name}"):
                    known = words_of_the_tree()
                    option = name.removeprefix("MEMSHIM_") in options()
                    self.assertTrue(option or any(word.startswith(name) for word in known))

    def test_commands_and_their_options_exist(self) -> None:
        count = 0
        for document in documents():
            for command, given in commands(document.read_text()):
                count += 1
                with self.subTest(f"{relative(document)}: memshim {command} {' '.join(given)}"):
                    told = help_of("help") if command in ("help", "version") else help_of(command)
                    self.assertTrue(told, "no such command")
                    for option in given:
                        name = option.removeprefix("--").replace("-", "_").upper()
                        known = option in told or (command == "run" and name in options())
                        self.assertTrue(known or option == "--help", option)
        self.assertGreater(count, 20)


@functools.cache
def options() -> frozenset[str]:
    """Without MEMSHIM_."""
    text = (ROOT / "shim/tables/options.def").read_text()
    return frozenset(re.findall(r"^MS_(?:SCRIPT_)?OPTION\(\s*(\w+),", text, re.MULTILINE))


# --- the documents themselves ---


def column(document: str, heading: str) -> list[str]:
    """The first cells of the tables in that part of the document, in order."""
    text = (ROOT / document).read_text()
    found = re.search(rf"^(#+) {heading}\n(.*?)(?=^#{{1,6}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{document} has no part {heading}"
    cells = re.findall(r"^\| ([^|]+?) \|", found[2], re.MULTILINE)
    return [cell for cell in cells if not cell.startswith("--")]


class Contents(unittest.TestCase):
    def test_schema_version(self) -> None:
        source = "".join(path.read_text() for path in (ROOT / "report").rglob("*.c"))
        versions = set(re.findall(r"memshim-report/\d+", source))
        self.assertEqual(len(versions), 1)
        version = versions.pop()
        for document in ("README.md", "docs/report.md"):
            self.assertIn(version, (ROOT / document).read_text())

    def test_each_verdict_is_explained(self) -> None:
        schema = json.loads((ROOT / "report/render/schema.json").read_text())
        verdicts = schema["definitions"]["oom_event"]["properties"]["verdict"]["enum"]
        cells = [cell.strip("`") for cell in column("docs/report.md", "Verdicts")[1:]]
        self.assertEqual(sorted(cells), sorted(verdicts))
        source = (ROOT / "report/trace/verdict.c").read_text()
        names = re.search(r"ms_verdict_name\(.*?\n}\n", source, re.DOTALL)
        assert names
        self.assertEqual(sorted(re.findall(r'return "(\w+)"', names[0])), sorted(verdicts))

    def test_each_option_is_in_the_table(self) -> None:
        cells = column("docs/options.md", "Options")[1:]
        self.assertEqual({cell.strip("`").removeprefix("MEMSHIM_") for cell in cells}, options())

    def test_each_form_is_in_the_table(self) -> None:
        cells = re.findall(r"`([\w-]+)`", " ".join(column("docs/report.md", "Other forms")[1:]))
        self.assertEqual(sorted(cells), sorted(FORMS))

    def test_each_room_has_its_sentence(self) -> None:
        cmake = (ROOT / "CMakeLists.txt").read_text()
        rooms = re.findall(r"^room\((\S+?)[\s)]", cmake, re.MULTILINE)
        cells = column("docs/architecture.md", "Rooms and arrows")[1:]
        self.assertEqual([cell.strip("`") for cell in cells], rooms)

    def test_glossary(self) -> None:
        terms = column("docs/architecture.md", "Glossary")[1:]
        self.assertGreater(len(terms), 80)
        self.assertEqual(sorted(set(terms)), sorted(terms), "a term stands there twice")
        self.assertEqual(terms, sorted(terms, key=str.lower))

    def test_workflow_has_the_parts(self) -> None:
        """GitHub's workflow runs what .ci/run does."""
        call = re.compile(r"scripts/\w+\.sh(?: --[a-z]+(?: \d+)?)*")
        text = re.sub(r"^#.*|.*\bsource .*", "", (ROOT / ".ci/run").read_text(), flags=re.MULTILINE)
        parts = call.findall(text)
        steps = call.findall((ROOT / ".github/workflows/ci.yml").read_text())
        self.assertGreater(len(steps), 4)
        self.assertEqual(sorted(steps), sorted(parts))

    def test_each_kind_is_named(self) -> None:
        schema = json.loads((ROOT / "report/render/schema.json").read_text())
        text = (ROOT / "docs/report.md").read_text()
        for kind in schema["definitions"]["kind_name"]["enum"]:
            with self.subTest(kind):
                self.assertIn(kind, text.split("### Every member")[0])


def write_parts() -> None:
    for (document, name), make in GENERATED.items():
        found = part(document, name)
        rest = found.string[found.end(2) :].lstrip()
        (ROOT / document).write_text(f"{found.string[: found.start(2)]}{make()}\n{rest}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write_parts()
    else:
        unittest.main()
