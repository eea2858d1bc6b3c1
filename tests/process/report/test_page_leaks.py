# SPDX-License-Identifier: Apache-2.0
"""The page's view of what grew: flame graph, common caller, and lines of source."""

from __future__ import annotations

import json
import os
import shutil
import unittest
from pathlib import Path
from typing import Any

from browser import Browser, find_chromium
from machine import CLI, MAKE_RUN, ProcessTest, run
from report.test_page import embedded

GROWING = 289  # the line of what grows in synthetic traces
CALLER = 10
HOSTILE = '<script>document.title = "taken"</script><b>'


class LeaksTest(ProcessTest):
    script: Path

    def setUp(self) -> None:
        super().setUp()
        self.folder = self.folder.resolve()
        self.script = self.folder / "train.py"
        self.write(self.script)

    def write(self, script: Path) -> None:
        """A program of before the run, as long as the lines that its trace names."""
        lines = [f"line {number}" for number in range(1, 400)]
        lines[GROWING - 2] = HOSTILE
        script.write_text("\n".join(lines) + "\n")
        os.utime(script, (1, 1))

    def run_of(self, script: Path, caller: Path | None = None) -> Path:
        made = run(
            [MAKE_RUN, self.folder / "out"],
            SYNTHETIC_SCRIPT=script,
            SYNTHETIC_CALLER=caller or script,
        ).check()
        return Path(made.stdout.strip().splitlines()[-1])

    def process_of(self, folder: Path, *options: str) -> dict[str, Any]:
        """Of the one that went well, by a page that is made now."""
        page = self.folder / "page.html"
        run([CLI, "report", folder, "--format", "html", "--output", page, *options]).check()
        for process in embedded(page)["processes"]:
            if process["report"]["process"]["exit"] == 0:
                assert isinstance(process, dict)
                return process
        raise AssertionError(folder)


class Source(LeaksTest):
    def test_lines_around_what_grows(self) -> None:
        process = self.process_of(self.run_of(self.script))
        self.assertIsNone(process["sources_why"])
        by_line = {source["line"]: source for source in process["sources"]}
        self.assertEqual(set(by_line), {CALLER, GROWING})
        for number, source in by_line.items():
            self.assertIsNone(source["why"])
            self.assertEqual(source["file"], str(self.script))
            self.assertEqual(source["first"], number - 3)
            shown = source["lines"]
            self.assertEqual(len(shown), 7)
            self.assertEqual(shown[3], f"line {number}")
        self.assertEqual(by_line[GROWING]["lines"][2], HOSTILE)

    def test_not_where_it_is_forbidden(self) -> None:
        folder = self.run_of(self.script)
        process = self.process_of(folder, "--no-source")
        self.assertEqual(process["sources"], [])
        self.assertIn("--no-source", process["sources_why"])

        # The pages that stand already are written anew.
        (well,) = [
            path.parent
            for path in folder.glob("*/report.json")
            if json.loads(path.read_text())["process"]["exit"] == 0
        ]
        self.assertTrue(f"line {GROWING}" in (well / "report.html").read_text())
        run([CLI, "report", well, "--no-source"]).check()
        self.assertFalse(f"line {GROWING}" in (well / "report.html").read_text())

    def test_not_of_a_file_that_changed_or_is_a_link(self) -> None:
        folder = self.run_of(self.script)
        os.utime(self.script)
        for source in self.process_of(folder)["sources"]:
            self.assertNotIn("lines", source)
            self.assertIn("changed", source["why"])

        other = self.folder / "other.py"
        shutil.move(self.script, other)
        os.utime(other, (1, 1))
        self.script.symlink_to(other)
        for source in self.process_of(folder)["sources"]:
            self.assertNotIn("lines", source)
            self.assertIn("symbolic link", source["why"])

    def test_not_of_a_file_that_looks_secret(self) -> None:
        script = self.folder / "aws_credentials.py"
        self.write(script)
        for source in self.process_of(self.run_of(script))["sources"]:
            self.assertNotIn("lines", source)
            self.assertIn("secret", source["why"])


class Opened(LeaksTest):
    """memshim report --open."""

    def test_a_browser_gets_the_page(self) -> None:
        folder = self.run_of(self.script)
        told = self.folder / "told"
        browser = self.folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
        browser.chmod(0o755)
        result = run([CLI, "report", folder, "--open"], BROWSER=browser).check()
        self.assertEqual(told.read_text(), f"{folder}/report.html\n")
        self.assertIn(f"{folder}/report.html", result.stderr)
        self.assertIn("OUT OF MEMORY", result.stdout)

        (killed,) = [
            path.parent
            for path in folder.glob("*/report.json")
            if json.loads(path.read_text())["process"]["state"] == "killed"
        ]
        run([CLI, "report", killed, "--open"], BROWSER=browser).check()
        self.assertEqual(told.read_text(), f"{killed}/report.html\n")
        self.assertEqual(len(embedded(killed / "report.html")["processes"]), 1)

    def test_without_a_browser_the_page_is_named(self) -> None:
        folder = self.run_of(self.script)
        result = run([CLI, "report", folder, "--open"], BROWSER=self.folder / "nothing")
        self.assertEqual(result.status, 1)
        self.assertIn(f"{folder}/report.html", result.stderr)
        self.assertIn("no browser was opened", result.stderr)


class Shown(LeaksTest):
    browser: Browser

    def setUp(self) -> None:
        chromium = find_chromium()
        if chromium is None:
            self.skipTest("no Chromium here: scripts/setup.sh --browser installs it")
        super().setUp()
        self.browser = Browser(chromium)
        self.addCleanup(self.browser.close)

    def show(self, folder: Path) -> dict[str, Any]:
        """The page of the process that went well."""
        process = self.process_of(folder)
        page = self.folder / "shown.html"
        of_one = folder / process["folder"]
        run([CLI, "report", of_one, "--format", "html", "--output", page]).check()
        self.browser.open(page)
        self.browser.wait_for("document.body.dataset.shown === 'whole'")
        return process

    def texts(self, selector: str) -> list[str]:
        found = self.browser.ask(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".map((node) => node.textContent)"
        )
        assert isinstance(found, list)
        return found

    def test_frames_of_torch_modules_are_hidden_at_first(self) -> None:
        """As module.py:1778, by which every module is called."""
        caller = self.folder / "torch" / "nn" / "modules" / "module.py"
        self.show(self.run_of(self.script, caller))
        for chart in ("flame", "leaks"):
            bars = f"#{chart}-chart .frame"
            self.assertNotIn("module.py", "".join(self.texts(bars)))
            box = f"#{chart} label[title*='calls a module'] input"
            self.browser.click(f"document.querySelector({json.dumps(box)})")
            self.assertIn("main  module.py:10", "".join(self.texts(bars)))

    def test_leaks_in_a_browser(self) -> None:
        process = self.show(self.run_of(self.script))
        browser, texts = self.browser, self.texts

        # One site grows: all that grew came by its own line, and through its caller.
        self.assertEqual(
            texts("#leaks .code-line.here"), [f"{GROWING}line {GROWING}"], "the line itself"
        )
        self.assertIn(HOSTILE, "".join(texts("#leaks .code-line")))
        browser.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark"}],
        )
        colour = "getComputedStyle(document.querySelector('#leaks .code-line.here')).color"
        self.assertEqual(browser.ask(colour), browser.ask("getComputedStyle(document.body).color"))
        grown = process["report"]["devices"][0]["growth"][0]["grown_bytes"]
        widest = browser.ask(
            "document.querySelector('#leaks-chart .frame').getAttribute('aria-label')"
        )
        self.assertEqual(widest.split(",")[0], f"all: {grown / (1 << 20):.1f} MiB")
        self.assertEqual(len(texts("#leaks-chart .frame.common")), 1)
        self.assertNotEqual(browser.ask("document.title"), "taken")
        self.assertEqual(len(texts("main script")), 0)
        self.assertEqual(browser.complaints, [])


if __name__ == "__main__":
    unittest.main()
