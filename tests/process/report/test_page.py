# SPDX-License-Identifier: Apache-2.0
"""report.html: what it holds is report.json, and in a browser it shows that and can be used."""

from __future__ import annotations

import json
import re
import unittest
from pathlib import Path
from typing import Any, TypeVar, cast

from browser import Browser, find_chromium
from machine import CLI, run, run_of_three

MOST_BYTES = 5 << 20
CHART = "document.getElementById('timeline-chart')"
TICKS = (
    "[...document.querySelectorAll('#timeline-chart .axis.time text')].map((t) => t.textContent)"
)
READOUT = "document.querySelector('#timeline .readout').textContent"


def embedded(page: Path) -> dict[str, Any]:
    """The data in a page, as a browser takes it: up to the first end of the element."""
    text = page.read_text()
    start = text.index('id="data">') + len('id="data">')
    value = json.loads(text[start : text.index("</script", start)])
    assert isinstance(value, dict)
    return value


T = TypeVar("T")
# How a page shows bytes that are not text, or that a browser would obey (allocator/base/plain.h).
SHOWN = re.compile(r"(?:\\x[0-9a-f]{2})+")


def meant(value: T) -> T:
    """The same value; strings are what they stand for."""
    result: object = value
    if isinstance(value, dict):
        result = {meant(name): meant(member) for name, member in value.items()}
    elif isinstance(value, list):
        result = [meant(member) for member in value]
    elif isinstance(value, str):
        result = SHOWN.sub(
            lambda run: bytes.fromhex(run[0].replace("\\x", "")).decode(errors="replace"), value
        )
    return cast(T, result)


def with_frames(process: dict[str, Any]) -> dict[str, Any]:
    """The report in a page, its numbers of frames replaced by the frames."""
    report: dict[str, Any] = process["report"]
    for site in report["call_sites"]:
        site["frames"] = [process["frames"][number] for number in site["frames"]]
    return meant(report)


def answer_of(text: str) -> list[tuple[str, list[str]]]:
    """The lines of report.txt between its head and the first empty one, by their first words."""
    found: list[tuple[str, list[str]]] = []
    for line in text.split("\n\n", 1)[0].splitlines()[1:]:
        if not line.startswith("  "):
            found.append(("", [line]))
        elif line[2] == " ":
            found[-1][1].append(line[9:])
        else:
            found.append((line[2:].split(" ", 1)[0], [line[9:]]))
    return found


def shown_answer(browser: Browser) -> list[tuple[str, list[str]]]:
    """The same, as the page has it."""
    told = browser.ask(
        "[['', [document.querySelector('#answer .sentence').textContent]],"
        " ...[...document.querySelectorAll('#answer dt')].map((label) => [label.textContent,"
        " [...label.nextSibling.children].map((line) => line.textContent)])]"
    )
    return [(label, lines) for label, lines in told]


class PageTest(unittest.TestCase):
    """One run of three processes: well, out of memory, killed; with hostile names."""

    run_folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.run_folder = run_of_three()

    @classmethod
    def folder(cls, end: str) -> Path:
        """Of the process that ended so: a folder whose report.json says it."""
        for path in sorted(cls.run_folder.glob("*/report.json")):
            report = json.loads(path.read_text())
            fatal = [oom for oom in report["oom_events"] if not oom["recovered"]]
            state = "oom" if fatal else report["process"]["state"]
            if state == end:
                return path.parent
        raise AssertionError(end)


class Data(PageTest):
    def test_the_page_of_a_process_holds_its_report(self) -> None:
        for end in ("ended", "oom", "killed"):
            folder = self.folder(end)
            page = embedded(folder / "report.html")
            self.assertEqual(len(page["processes"]), 1)
            report = json.loads((folder / "report.json").read_text())
            self.assertGreater(len(report["call_sites"]), 50)
            self.assertEqual(with_frames(page["processes"][0]), meant(report))

    def test_the_page_of_a_run_holds_all_processes(self) -> None:
        page = embedded(self.run_folder / "report.html")
        run_report = json.loads((self.run_folder / "report.json").read_text())
        del run_report["processes"]
        self.assertEqual(meant(page["run"]), meant(run_report))
        self.assertEqual(len(page["processes"]), 3)
        for process in page["processes"]:
            report = json.loads((self.run_folder / process["folder"] / "report.json").read_text())
            self.assertEqual(with_frames(process), meant(report))

    def test_the_answer_is_the_first_lines_of_the_text(self) -> None:
        for end in ("ended", "oom", "killed"):
            folder = self.folder(end)
            answer = json.loads((folder / "report.json").read_text())["answer"]
            told = [("", [answer["headline"]])]
            told += [(line["label"], line["text"]) for line in answer["lines"]]
            self.assertEqual(told, answer_of((folder / "report.txt").read_text()))
            self.assertGreater(len(told), 4)

    def test_the_timeline_has_the_peaks_of_the_report(self) -> None:
        folder = self.folder("ended")
        process = embedded(folder / "report.html")["processes"][0]
        device = process["report"]["devices"][0]
        series = process["series"][0]
        for line in ("reserved", "charged"):
            values = series[line].get("max", series[line]["last"])
            self.assertEqual(max(values), device[f"peak_{line}_bytes"])
        self.assertEqual(series["cap"]["last"][-1], device["cap_bytes"])
        self.assertEqual(len(series["at"]), len(series["live"]["last"]))

    def test_the_command_writes_the_same_page(self) -> None:
        folder = self.folder("oom")
        out = self.run_folder / "by-command.html"
        self.addCleanup(out.unlink)
        run([CLI, "report", folder, "--format", "html", "--output", out]).check()
        self.assertEqual(out.read_bytes(), (folder / "report.html").read_bytes())
        self.assertEqual(
            run([CLI, "report", folder, "--format=html"]).check().stdout, out.read_text()
        )

    def test_no_byte_of_a_name_ends_the_data(self) -> None:
        text = (self.run_folder / "report.html").read_text()
        start = text.index('id="data">')
        data = text[start : text.index("</script", start)]
        self.assertNotIn("<", data)
        self.assertNotIn("\u2028", data)
        names = json.dumps(embedded(self.run_folder / "report.html"))
        self.assertIn("<script>", names)

    def test_pages_are_small(self) -> None:
        for page in self.run_folder.rglob("report.html"):
            self.assertLess(page.stat().st_size, MOST_BYTES)


class BrowserTest(PageTest):
    """In Chromium: nothing is complained of, and nothing is asked for but the page."""

    browser: Browser

    @classmethod
    def setUpClass(cls) -> None:
        chromium = find_chromium()
        if chromium is None:
            raise unittest.SkipTest("no Chromium here: scripts/setup.sh --browser installs it")
        super().setUpClass()
        cls.browser = Browser(chromium)
        cls.addClassCleanup(cls.browser.close)

    def show(self, page: Path) -> None:
        self.browser.open(page)
        self.browser.wait_for("document.body.dataset.shown === 'whole'")

    def tearDown(self) -> None:
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual([url for url in self.browser.requests if not url.startswith("file:")], [])

    def text(self, selector: str) -> str:
        text = self.browser.ask(f"document.querySelector({json.dumps(selector)}).innerText")
        assert isinstance(text, str)
        return text

    def column(self, table: str, number: int) -> list[str]:
        cells = self.browser.ask(
            f"[...document.querySelectorAll('#{table} tbody tr')]"
            f".map((row) => row.cells[{number}].textContent)"
        )
        assert isinstance(cells, list)
        return cells


class Shown(BrowserTest):
    def setUp(self) -> None:
        self.page = self.folder("oom")
        self.report = json.loads((self.page / "report.json").read_text())
        self.show(self.page / "report.html")

    def test_the_answer_is_that_of_the_text(self) -> None:
        text = (self.page / "report.txt").read_text()
        self.assertEqual(shown_answer(self.browser), answer_of(text))
        self.assertEqual([label for label, _ in answer_of(text)][1:3], ["asked", "why"])
        peak = re.search(
            r"peak +live (.+?) +reserved (.+?) +charged (.+)",
            text,
        )
        assert peak
        figures = self.text("#figures .figures")
        for number in peak.groups():
            self.assertIn(number, figures)

    def test_a_run_that_went_well(self) -> None:
        folder = self.folder("ended")
        self.show(folder / "report.html")
        text = (folder / "report.txt").read_text()
        self.assertEqual(shown_answer(self.browser), answer_of(text))
        self.assertIn("no out-of-memory", dict(answer_of(text))["ooms"][0])

    def test_answer_and_chart_are_above_the_fold(self) -> None:
        """Of a window as a laptop's: nobody has to scroll to see what happened and when."""
        self.addCleanup(self.browser.call, "Emulation.clearDeviceMetricsOverride")
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        for end in ("oom", "ended"):
            self.show(self.folder(end) / "report.html")
            for element in ("document.querySelector('#answer .verdict')", CHART):
                box = self.browser.ask(
                    f"(() => {{ const box = {element}.getBoundingClientRect();"
                    " return [box.top, box.bottom, box.height]; })()"
                )
                self.assertGreaterEqual(box[0], 0)
                self.assertLessEqual(box[1], 900)
                self.assertGreater(box[2], 100)

    def test_dragging_enlarges_the_timeline(self) -> None:
        whole = self.browser.ask(TICKS)
        left, top, width, _ = self.browser.box(CHART)
        self.browser.drag(left + 0.4 * width, left + 0.6 * width, top + 120)
        self.browser.wait_for(f"JSON.stringify({TICKS}) !== {json.dumps(json.dumps(whole))}")
        self.assertNotEqual(self.browser.ask(TICKS), whole)
        self.browser.click("[...document.querySelectorAll('#timeline button')].at(-1)")
        self.browser.wait_for(f"{TICKS}.length === {len(whole)}")
        self.assertEqual(self.browser.ask(TICKS), whole)

    def test_the_cursor_tells_the_values(self) -> None:
        left, top, width, _ = self.browser.box(CHART)
        self.browser.mouse("mouseMoved", left + 0.3 * width, top + 120)
        first = self.browser.ask(READOUT)
        self.browser.mouse("mouseMoved", left + 0.8 * width, top + 120)
        second = self.browser.ask(READOUT)
        self.assertNotEqual(first, second)
        for line in ("live", "reserved", "charged", "cap"):
            self.assertIn(line, second)

    def test_the_keyboard_moves_and_enlarges(self) -> None:
        self.browser.ask(f"{CHART}.focus()")
        before = self.browser.ask(READOUT)
        for _ in range(5):
            self.browser.press("ArrowLeft")
        self.assertNotEqual(self.browser.ask(READOUT), before)
        whole = self.browser.ask(TICKS)
        self.browser.press("+", "+")
        self.assertNotEqual(self.browser.ask(TICKS), whole)
        self.browser.press("0", "0")
        self.assertEqual(self.browser.ask(TICKS), whole)

    def test_marks_of_the_timeline(self) -> None:
        marks = "document.querySelectorAll('#timeline-chart .oom').length"
        self.assertEqual(self.browser.ask(marks), len(self.report["oom_events"]))
        self.assertGreater(
            self.browser.ask("document.querySelectorAll('#timeline-chart .step').length"), 0
        )
        self.assertGreater(
            self.browser.ask("document.querySelectorAll('#timeline-chart .tag').length"), 0
        )

    def test_a_click_enlarges_a_frame(self) -> None:
        bars = "[...document.querySelectorAll('#flame-chart .frame')]"
        width = "querySelector('rect').getBoundingClientRect().width"
        narrow = f"{bars}.findLast((bar) => bar.{width} < 300)"
        name = self.browser.ask(f"{narrow}.getAttribute('aria-label')")
        self.browser.click(narrow)
        chosen = f"{bars}.find((bar) => bar.getAttribute('aria-label') === {json.dumps(name)})"
        self.browser.wait_for(f"{chosen}.{width} > 1000")
        self.browser.click(f"{bars}[0]")
        self.browser.wait_for(f"{chosen}.{width} < 300")

    def test_search_in_the_flame_graph(self) -> None:
        self.browser.click("document.getElementById('flame-search')")
        self.browser.type("train.py")
        self.assertGreater(
            self.browser.ask("document.querySelectorAll('#flame-chart .frame.found').length"), 0
        )
        # Every site but the one of hostile names is of train.py, and those without a stack.
        held = sum(
            site["at_peak_bytes"] + site["forwarded_at_peak_bytes"]
            for site in self.report["call_sites"]
            if any((frame["file"] or "").endswith("train.py") for frame in site["frames"])
        )
        everything = sum(
            site["at_peak_bytes"] + site["forwarded_at_peak_bytes"]
            for site in self.report["call_sites"]
        )
        self.assertIn(f"{100 * held / everything:.1f} %", self.text("#flame-found"))

    def test_the_flame_graph_can_be_turned(self) -> None:
        names = (
            "[...document.querySelectorAll('#flame-chart .frame')].slice(1, 2)"
            ".map((bar) => bar.getAttribute('aria-label'))"
        )
        before = self.browser.ask(names)
        self.browser.click("[...document.querySelectorAll('#flame input[type=checkbox]')].at(-1)")
        self.assertNotEqual(self.browser.ask(names), before)

    def test_tables_sort(self) -> None:
        heads = self.browser.ask(
            "[...document.querySelectorAll('#sites th')].map((head) => head.innerText.trim())"
        )
        column = heads.index("Allocations")
        expected = sorted((site["allocations"] for site in self.report["call_sites"]), reverse=True)
        head = f"document.querySelectorAll('#sites th button')[{column}]"
        self.browser.click(head)
        shown = self.column("sites", column)
        self.assertEqual(shown, [f"{count:,}" for count in expected[: len(shown)]])
        self.browser.click(head)
        shown = self.column("sites", column)
        self.assertEqual(shown, [f"{count:,}" for count in expected[::-1][: len(shown)]])

    def test_tables_filter_and_group(self) -> None:
        self.browser.click("document.querySelector('#sites input[type=search]')")
        self.browser.type("train.py:205")
        self.assertEqual(self.column("sites", 0), ["train.py:205 in step"])
        self.browser.ask(
            "(() => { const by = document.querySelector('#sites select'); by.value = 2;"
            " by.dispatchEvent(new Event('change')); })()"
        )
        kinds = {site["kind"] for site in self.report["call_sites"]}
        self.assertEqual(set(self.column("sites", 0)), kinds)

    def test_out_of_memories_by_tag(self) -> None:
        """Where it is known, whose request it was."""
        events = self.report["oom_events"]
        self.assertEqual(len(self.column("ooms", 0)), len(events))
        sites = {site["id"]: site for site in self.report["call_sites"]}
        tags = {" / ".join(sites[event["site"]]["tags"]) for event in events}
        self.assertIn("<script>", next(iter(tags)))
        self.browser.ask(
            "(() => { const by = document.querySelector('#ooms select'); by.value = 3;"
            " by.dispatchEvent(new Event('change')); })()"
        )
        shown = self.column("ooms", 0)
        self.assertEqual(set(meant(shown)), tags)
        self.assertIn(r"\x1b[2J", shown[0])
        self.assertEqual(self.column("ooms", 1), [str(len(events))])

    def test_a_row_shows_its_stack(self) -> None:
        row = "document.querySelector('#sites tbody tr')"
        self.browser.click(f"{row}.cells[0]")
        self.assertEqual(self.browser.ask(f"{row}.nextSibling.className"), "stack")
        self.assertIn("train.py", self.browser.ask(f"{row}.nextSibling.textContent"))

    def test_light_and_dark(self) -> None:
        ground = "getComputedStyle(document.body).backgroundColor"
        theme = "document.getElementById('theme')"
        seen = {}
        for _ in range(3):
            self.browser.click(theme)
            seen[self.browser.ask("document.documentElement.dataset.theme")] = self.browser.ask(
                ground
            )
        self.assertEqual(set(seen), {"auto", "light", "dark"})
        self.assertNotEqual(seen["light"], seen["dark"])
        for wanted in ("light", "dark"):
            self.browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": wanted}],
            )
            self.assertEqual(self.browser.ask(ground), seen[wanted])

    def test_a_narrow_window(self) -> None:
        """What does not fit scrolls by itself, and the page does not."""
        self.addCleanup(self.browser.call, "Emulation.clearDeviceMetricsOverride")
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False},
        )
        self.show(self.page / "report.html")
        self.assertEqual(self.browser.ask("document.documentElement.scrollWidth"), 400)

    def test_names_are_text(self) -> None:
        hostile = next(site for site in self.report["call_sites"] if site["id"] == 7)
        names = [
            frame["function"] for frame in hostile["frames"] if "<script>" in frame["function"]
        ]
        self.assertEqual(len(names), 1)
        bars = "[...document.querySelectorAll('#flame-chart .frame')]"
        labels = self.browser.ask(f"{bars}.map((bar) => bar.getAttribute('aria-label'))")
        self.assertEqual(sum(label.startswith(names[0]) for label in meant(labels)), 1)
        self.assertIn("<b>", self.text("#run"))
        self.assertEqual(self.browser.ask("document.querySelectorAll('script').length"), 3)
        self.assertEqual(self.browser.ask("document.querySelectorAll('#run b').length"), 0)

    def test_the_page_of_a_run(self) -> None:
        self.show(self.run_folder / "report.html")
        self.assertEqual(len(self.column("ranks", 0)), 3)
        self.assertIn("OUT OF MEMORY", self.text("#answer .sentence"))
        text = (self.run_folder / "report.txt").read_text()
        self.assertIn(f"\n{self.text('#answer .headline-of-run')}:\n", text)
        ranks = [
            process["report"]["process"]["rank"]
            for process in embedded(self.run_folder / "report.html")["processes"]
        ]
        self.browser.ask(
            "(() => { const which = document.querySelector('#choices select');"
            f" which.value = {ranks.index(0)};"
            " which.dispatchEvent(new Event('change')); })()"
        )
        self.browser.wait_for("document.body.dataset.shown === 'whole'")
        self.assertIn("rank 0", self.text("#run"))


if __name__ == "__main__":
    unittest.main()
