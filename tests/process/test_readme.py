"""The README agrees with the tables and the tree."""

from __future__ import annotations

import re
import unittest

from machine import CLI, ROOT, run

README = (ROOT / "README.md").read_text()


class Readme(unittest.TestCase):
    maxDiff = None

    def test_option_table(self) -> None:
        table = run([CLI, "options", "--markdown"]).check().stdout
        self.assertIn(table.strip(), README, "paste the output of: memshim options --markdown")

    def test_coverage_table(self) -> None:
        table = run([CLI, "coverage", "--markdown"]).check().stdout
        self.assertIn(table.strip(), README, "paste the output of: memshim coverage --markdown")

    def test_files_that_are_named_exist(self) -> None:
        named = set(re.findall(r"`((?:scripts|shim|allocator|report|tests)/[\w./-]*)`", README))
        self.assertGreater(len(named), 5)
        for path in sorted(named):
            with self.subTest(path):
                self.assertTrue((ROOT / path).exists())

    def test_schema_version(self) -> None:
        self.assertIn("memshim-report/1", README)


if __name__ == "__main__":
    unittest.main()
