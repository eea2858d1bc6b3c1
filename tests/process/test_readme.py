"""The README agrees with the tables and the tree."""

from __future__ import annotations

import re
import sys
import unittest

from machine import CLI, ROOT, run

README = ROOT / "README.md"
TABLES = ("options", "coverage", "statistics")


def table(name: str) -> str:
    """As the built executable prints it."""
    return run([CLI, name, "--markdown"]).check().stdout.strip()


def in_readme(name: str, text: str) -> re.Match[str]:
    """The table between its marks."""
    found = re.search(rf"(<!-- {name} -->\n)(.*?)(\n<!-- end -->)", text, re.DOTALL)
    assert found, f"README.md has no place for the table of {name}"
    return found


class Readme(unittest.TestCase):
    def test_tables(self) -> None:
        for name in TABLES:
            with self.subTest(name):
                written = in_readme(name, README.read_text())[2].splitlines()
                wanted = table(name).splitlines()
                differences = [line for line in wanted if line not in written]
                differences += [line for line in written if line not in wanted]
                self.assertEqual(differences, [], "python3 tests/process/test_readme.py --write")
                self.assertEqual(written, wanted)

    def test_files_that_are_named_exist(self) -> None:
        named = set(
            re.findall(r"`((?:scripts|shim|allocator|report|tests)/[\w./-]*)`", README.read_text())
        )
        self.assertGreater(len(named), 5)
        for path in sorted(named):
            with self.subTest(path):
                self.assertTrue((ROOT / path).exists())

    def test_schema_version(self) -> None:
        source = "".join(path.read_text() for path in (ROOT / "report").glob("*.c"))
        versions = set(re.findall(r"memshim-report/\d+", source))
        self.assertEqual(len(versions), 1)
        self.assertIn(versions.pop(), README.read_text())


def write_tables() -> None:
    text = README.read_text()
    for name in TABLES:
        found = in_readme(name, text)
        text = text[: found.start(2)] + table(name) + text[found.end(2) :]
    README.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write_tables()
    else:
        unittest.main()
