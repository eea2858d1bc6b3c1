# SPDX-License-Identifier: Apache-2.0
"""report.html over time and by address: kinds, moments, the map, growth, headroom; in a browser."""

from __future__ import annotations

import json
import unittest
from typing import Any

from report.test_page import CHART, BrowserTest, PageTest, embedded

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LEFT, RIGHT = 84, 16  # of the timeline's plot
MOMENT = "document.getElementById('moment-choice')"
FLAME = "document.querySelector('#flame-chart .frame').getAttribute('aria-label')"
MAP_READOUT = "document.getElementById('map-readout').innerText"
LIVE, HOLE, SPILLED = 1, 2, 4


def bytes_text(value: int) -> str:
    """As report.txt writes it (units.c)."""
    if value < KIB:
        return f"{value} B"
    for name, unit, decimals in (
        ("KiB", KIB, 1),
        ("MiB", MIB, 1),
        ("GiB", GIB, 2),
        ("TiB", KIB * GIB, 2),
        ("PiB", KIB**2 * GIB, 2),
        ("EiB", KIB**3 * GIB, 2),
    ):
        text = f"{int(value / unit * 10**decimals + 0.5) / 10**decimals:.{decimals}f}"
        if float(text) < KIB:
            return f"{text} {name}"
    raise AssertionError(value)


def kinds_of(report: dict[str, Any]) -> set[str]:
    return {kind["kind"] for kind in report["kinds"] if kind["bytes"] > 0}


class SurveyData(PageTest):
    """What the page holds beside the report agrees with it."""

    def setUp(self) -> None:
        self.process = embedded(self.folder("ended") / "report.html")["processes"][0]
        self.report = self.process["report"]
        self.device = self.report["devices"][0]
        self.survey = self.process["surveys"][0]

    def test_kinds_add_up_to_live(self) -> None:
        kinds = [
            line for name, line in self.survey["lines"].items() if name in kinds_of(self.report)
        ]
        live = [sum(values) for values in zip(*kinds, strict=True)]
        self.assertEqual(max(live), self.device["peak_live_bytes"])
        at_peak = live.index(max(live))
        self.assertEqual(at_peak, self.device["peak"]["time_ns"] // self.survey["bucket_ns"])

    def test_moments_tell_all_that_was_live(self) -> None:
        moments = self.survey["moments"]
        self.assertGreater(len(moments), 3)
        for moment in moments:
            self.assertEqual(sum(moment["bytes"]) + moment["other_bytes"], moment["live_bytes"])
        times = [moment["time_ns"] for moment in moments]
        self.assertEqual(times, sorted(times))

    def test_the_peak_and_the_end_are_those_of_the_report(self) -> None:
        by_what = {moment["what"]: moment for moment in self.survey["moments"]}
        for what, key in (("peak", "at_peak_bytes"), ("end", "live_bytes")):
            told = dict(zip(by_what[what]["sites"], by_what[what]["bytes"], strict=True))
            sites = {site["id"]: site[key] for site in self.report["call_sites"] if site[key] > 0}
            self.assertEqual(told, sites)

    def test_every_site_has_a_name(self) -> None:
        sites = self.report["call_sites"] + self.process["more_sites"]
        known = {site["id"] for site in sites}
        for moment in self.survey["moments"]:
            self.assertLessEqual(set(moment["sites"]), known)
        for segment in self.survey["segments"]:
            for row in segment["rows"]:
                self.assertLessEqual(set(row[2::4]), known | {0})
        self.assertLessEqual({row["site"] for row in self.device["growth"]}, known)

    def test_moves_are_those_of_the_report(self) -> None:
        down = [move for move in self.process["moves"] if move["down"]]
        spill = self.device["spill"]
        self.assertEqual(len(down), spill["spills"])
        self.assertEqual(sum(move["bytes"] for move in down), spill["spilled_bytes"])
        self.assertEqual(sum(move["held_ns"] for move in self.process["moves"]), spill["held_ns"])


class Views(BrowserTest):
    def setUp(self) -> None:
        folder = self.folder("ended")
        self.show(folder / "report.html")
        self.report = json.loads((folder / "report.json").read_text())
        self.device = self.report["devices"][0]
        self.process = embedded(folder / "report.html")["processes"][0]
        self.survey = self.process["surveys"][0]
        self.moments = self.survey["moments"]

    def count(self, selector: str) -> int:
        found = self.browser.ask(f"document.querySelectorAll({json.dumps(selector)}).length")
        assert isinstance(found, int)
        return found

    def choose(self, select: str, value: int) -> None:
        self.browser.ask(
            f"(() => {{ const node = {select}; node.value = {value};"
            " node.dispatchEvent(new Event('change')); })()"
        )

    def assert_moment(self, index: int) -> None:
        """What is shown of it: in the list, in the flame graph, in the timeline."""
        live = bytes_text(self.moments[index]["live_bytes"])
        self.assertEqual(self.browser.ask(f"{MOMENT}.value"), str(index))
        self.assertEqual(self.browser.ask(FLAME).split(",")[0], f"all: {live}")
        self.assertIn(f"{live} were live then", self.text("#moment-note"))
        self.assertEqual(self.count("#timeline-chart .moment.chosen"), 1)
        self.assertTrue(
            self.browser.ask(
                "document.querySelectorAll('#timeline-chart .moment')"
                f"[{index}].classList.contains('chosen')"
            )
        )

    # ---- the answer ----

    def test_the_answer_has_growth_and_headroom(self) -> None:
        figures = self.text("#figures .figures")
        growth, headroom = self.device["growth"], self.device["headroom"]
        together = sum(row["bytes_per_step"] for row in growth)
        self.assertIn(f"+{bytes_text(int(together))} a step", figures)
        self.assertIn(f"the cap in step {self.device['slope']['cap_at_step']:,}", figures)
        largest = headroom["estimated_largest_factor"]
        self.assertIn(f"over {largest:.0f}\N{NO-BREAK SPACE}×", figures)
        self.assertIn(bytes_text(self.device["spill"]["spilled_bytes"]), figures)
        # 128 KiB a step of 23 GiB: nobody is alarmed by it.
        self.assertTrue(all(leak["negligible"] for leak in self.device["leaks"]))
        self.assertIn("nothing that matters", self.text("#answer .of-grows"))
        spilled = bytes_text(self.device["spill"]["spilled_bytes"])
        self.assertIn(f"{spilled} moved to the host", self.text("#answer .of-spill"))

    def test_every_part_has_a_link(self) -> None:
        links = self.browser.ask(
            "[...document.querySelectorAll('#contents a')].map((a) => a.getAttribute('href'))"
        )
        self.assertGreater(len(links), 8)
        for link in links:
            self.assertEqual(self.count(link), 1)

    # ---- the timeline ----

    def test_kinds_are_layers(self) -> None:
        shown = kinds_of(self.report) & set(self.survey["lines"])
        labels = self.text("#timeline .controls:nth-of-type(2)")
        for kind in shown | {"holes", "context"}:
            self.assertIn(kind, labels)
        self.assertEqual(self.count("#timeline-chart path.layer"), len(self.survey["lines"]))
        self.browser.click(
            "document.querySelectorAll('#timeline .controls')[1].querySelector('input')"
        )
        self.assertEqual(self.count("#timeline-chart path.layer"), len(self.survey["lines"]) - 1)

    def test_the_readout_tells_kinds(self) -> None:
        left, top, width, _ = self.browser.box(CHART)
        at = left + LEFT + 0.7 * (width - LEFT - RIGHT)
        self.browser.mouse("mouseMoved", at, top + 120)
        time_ns = 0.7 * self.report["process"]["duration_ns"]
        bucket = int(time_ns // self.survey["bucket_ns"])
        told = self.browser.ask("document.querySelectorAll('#timeline .readout')[1].innerText")
        for name, values in self.survey["lines"].items():
            if values[bucket] > 0 and values[bucket - 1] == values[bucket + 1] == values[bucket]:
                self.assertIn(bytes_text(values[bucket]), told, name)

    def test_marks_of_moments_and_moves(self) -> None:
        self.assertEqual(self.count("#timeline-chart .moment"), len(self.moments))
        self.assertEqual(self.count("#timeline-chart .move.down"), self.device["spill"]["spills"])
        self.assertEqual(self.count("#timeline-chart .move.up"), self.device["spill"]["promotes"])
        self.assertEqual(self.count("#timeline-chart .host"), 1)
        crossed = [each for each in self.report["thresholds"] if each["device"] == 0]
        self.assertEqual(self.count("#timeline-chart .threshold"), len(crossed))

    def test_what_is_free_and_waits(self) -> None:
        waits = self.device["waits"]
        self.assertGreater(waits["most_bytes"], 0)
        self.assertEqual(max(self.survey["waiting_bytes"]), waits["most_bytes"])
        self.assertEqual(self.count("#timeline-chart .line.waiting"), 1)
        part = (waits["most_ns"] // waits["bucket_ns"] + 0.5) * waits["bucket_ns"]
        part /= self.report["process"]["duration_ns"]
        left, top, width, _ = self.browser.box(CHART)
        self.browser.mouse("mouseMoved", left + LEFT + part * (width - LEFT - RIGHT), top + 120)
        told = self.browser.ask("document.querySelectorAll('#timeline .readout')[1].innerText")
        self.assertIn(f"freed, but waits {bytes_text(waits['most_bytes'])}", told)
        box = "document.querySelector('#timeline .controls label:has(.swatch.waiting) input')"
        self.browser.click(box)
        self.assertEqual(self.count("#timeline-chart .line.waiting"), 0)
        self.browser.click(box)
        self.assertEqual(self.count("#timeline-chart .line.waiting"), 1)

    # ---- the part of the run that is shown ----

    def ticks(self, chart: str) -> list[str]:
        texts = self.browser.ask(
            f"[...document.querySelectorAll('{chart} .axis.time text')].map((t) => t.textContent)"
        )
        assert isinstance(texts, list)
        return texts

    def test_the_map_shows_what_the_timeline_shows(self) -> None:
        whole = self.ticks("#map")
        self.assertEqual(whole, self.ticks("#timeline-chart"))
        left, top, width, _ = self.browser.box(CHART)
        self.browser.drag(left + 0.4 * width, left + 0.6 * width, top + 120)
        part = self.ticks("#timeline-chart")
        self.assertNotEqual(part, whole)
        self.assertEqual(self.ticks("#map"), part)

        # Its cells are those of that part: fewer, and wider.
        columns = "document.querySelector('#map canvas').width"
        self.assertLess(self.browser.ask(columns), 32)
        left, top, width, height = self.browser.box("document.querySelector('#map .cells')")
        self.browser.drag(left + 0.2 * width, left + 0.7 * width, top + height / 2)
        self.assertNotIn(self.ticks("#map"), (part, whole))
        self.assertEqual(self.ticks("#timeline-chart"), self.ticks("#map"))
        self.browser.ask("document.querySelector('#map .segment').focus()")
        self.browser.press("0", "0")
        self.assertEqual(self.ticks("#map"), whole)
        self.assertEqual(self.ticks("#timeline-chart"), whole)
        self.assertEqual(self.browser.ask(columns), 128)

    def marked(self, chart: str) -> float:
        """Where the line of the chosen moment stands."""
        at = self.browser.ask(
            f"document.querySelector('{chart} .moment-line').getBoundingClientRect().left"
        )
        return float(at)

    def test_a_moment_is_marked_in_every_chart(self) -> None:
        for index in (1, len(self.moments) - 2):
            self.choose(MOMENT, index)
            self.assertAlmostEqual(self.marked("#timeline-chart"), self.marked("#map"), delta=1)
            title = self.browser.ask("document.getElementById('moment-title').textContent")
            when = self.browser.ask("document.getElementById('flame-moment').textContent")
            self.assertIn(when.split(",")[0], title)

    def test_a_click_in_the_map_chooses_a_moment(self) -> None:
        before = self.marked("#timeline-chart")
        left, top, width, height = self.browser.box("document.querySelector('#map .cells')")
        x, y = left + 0.25 * width, top + height / 2
        self.browser.mouse("mouseMoved", x, y)
        self.browser.mouse("mousePressed", x, y, 1)
        self.browser.mouse("mouseReleased", x, y)
        at = 0.25 * self.report["process"]["duration_ns"]
        times = [abs(moment["time_ns"] - at) for moment in self.moments]
        self.assert_moment(times.index(min(times)))
        self.assertNotEqual(self.marked("#timeline-chart"), before)

    # ---- moments ----

    def test_a_click_shows_who_was_live_then(self) -> None:
        duration = self.report["process"]["duration_ns"]
        left, top, width, _ = self.browser.box(CHART)
        for part in (0.25, 0.85):
            at = part * duration
            nearest = min(
                range(len(self.moments)), key=lambda i: abs(self.moments[i]["time_ns"] - at)
            )
            self.browser.ask("document.getElementById('timeline').scrollIntoView()")
            left, top, width, _ = self.browser.box(CHART)
            x = left + LEFT + part * (width - LEFT - RIGHT)
            self.browser.mouse("mouseMoved", x, top + 120)
            self.browser.mouse("mousePressed", x, top + 120, 1)
            self.browser.mouse("mouseReleased", x, top + 120)
            self.assert_moment(nearest)
            self.assertIn("the nearest moment", self.text("#moment-note"))

    def test_the_keyboard_chooses_a_moment(self) -> None:
        self.browser.ask(f"{CHART}.focus()")
        self.browser.press("Home")
        self.browser.press("Enter", "\r")
        self.assert_moment(0)
        self.browser.ask(f"{CHART}.focus()")
        self.browser.press("End")
        self.browser.press("Enter", "\r")
        self.assert_moment(len(self.moments) - 1)

    def test_moments_one_after_the_other(self) -> None:
        self.choose(MOMENT, 1)
        self.assert_moment(1)
        buttons = "[...document.querySelectorAll('#moment > .controls button')]"
        self.browser.click(f"{buttons}[1]")
        self.assert_moment(2)
        self.browser.click(f"{buttons}[0]")
        self.browser.click(f"{buttons}[0]")
        self.browser.click(f"{buttons}[0]")
        self.assert_moment(0)

    def test_who_was_live_by_kind(self) -> None:
        index = len(self.moments) // 2
        self.choose(MOMENT, index)
        self.choose("document.querySelector('#live-then select')", 2)
        moment = self.moments[index]
        sums: dict[str, int] = {}
        for kind, part in zip(moment["kinds"], moment["bytes"], strict=True):
            sums[kind] = sums.get(kind, 0) + part
        held = self.column("live-then", self.head("live-then", "Live then"))
        shown = dict(zip(self.column("live-then", 0), held, strict=True))
        self.assertEqual(shown, {kind: bytes_text(part) for kind, part in sums.items()})

    def test_the_flame_graph_keeps_its_search(self) -> None:
        self.browser.click("document.getElementById('flame-search')")
        self.browser.type("train.py:289")
        self.choose(MOMENT, len(self.moments) - 1)
        moment = self.moments[-1]
        held = dict(zip(moment["sites"], moment["bytes"], strict=True))
        sites = [
            site["id"]
            for site in self.report["call_sites"]
            if site["line"] and site["line"].startswith("train.py:289")
        ]
        share = 100 * sum(held.get(site, 0) for site in sites) / moment["live_bytes"]
        self.assertIn(f"{share:.1f} %", self.text("#flame-found"))

    # ---- where it goes ----

    def test_what_grows(self) -> None:
        growth = self.device["growth"]
        self.assertEqual([row["line"] for row in growth], ["train.py:289 in step"])
        self.assertEqual(self.column("growing", 0), ["train.py:289 in step"])
        row = self.text("#growing tbody tr")
        self.assertIn("+128.0 KiB", row)
        self.assertIn(f"{growth[0]['cap_at_step']:,}", row)
        self.assertIn(bytes_text(growth[0]["grown_bytes"]), row)
        self.assertIn("One call site keeps more and more", self.text("#growth-sentence"))

    def test_growth_is_in_the_sites_too(self) -> None:
        self.browser.click("document.querySelector('#sites input[type=search]')")
        self.browser.type("+128.0")
        # Another stack leads to that line: the native frame in which they part stands beside it.
        self.assertEqual(self.column("sites", 0), ["train.py:289 in step" + "libjob.so+0x1234"])

    def test_room_for_a_larger_batch(self) -> None:
        headroom = self.device["headroom"]
        told = self.browser.ask("document.getElementById('headroom-chart').textContent")
        for row in headroom["factors"]:
            if row["factor"] >= 1 and row["fits"]:
                needed = row["estimated_peak_charged_bytes"]
                spare = self.device["cap_bytes"] - needed
                self.assertIn(f"{bytes_text(needed)}: {bytes_text(spare)} to spare", told)
        self.assertIn(f"cap {bytes_text(self.device['cap_bytes'])}", told)
        self.assertIn(
            f"{headroom['factors'][-1]['factor']:g} times", self.text("#headroom-sentence")
        )

    # ---- addresses ----

    def test_the_map_shows_whose_a_cell_is(self) -> None:
        self.assertEqual(self.count("#map canvas"), len(self.survey["segments"]))
        rows = self.survey["segments"][0]["rows"]
        columns = sum(rows[0][3::4])
        names = {site["id"]: site["line"] for site in self.report["call_sites"]}
        titles = {LIVE: "live", HOLE: "backed hole"}
        canvas = "document.querySelector('#map canvas')"
        seen = set()
        for number, row in enumerate(rows):
            cells = [row[i : i + 3] for i in range(0, len(row), 4) for _ in range(row[i + 3])]
            for column in range(columns):
                state, share, site = cells[column]
                if state not in titles or state in seen:
                    continue
                seen.add(state)
                for _ in range(2):  # a readout that becomes higher moves the map, once
                    left, top, width, height = self.browser.box(canvas)
                    x = left + (column + 0.5) / columns * width
                    y = top + (len(rows) - number - 0.5) / len(rows) * height
                    self.browser.mouse("mouseMoved", x, y)
                told = self.browser.ask(MAP_READOUT)
                self.assertIn(titles[state], told, f"row {number}, column {column}")
                if share > 0 and names.get(site):
                    self.assertIn(names[site], told, f"row {number}, column {column}")
        self.assertEqual(seen, set(titles))

    def test_the_map_by_keyboard(self) -> None:
        self.browser.ask("document.querySelector('#map .segment').focus()")
        told = []
        for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
            self.browser.press(key)
            told.append(self.browser.ask(MAP_READOUT))
        self.assertEqual(len(set(told)), len(told))

    def test_the_map_has_the_colours_of_the_theme(self) -> None:
        pixels = (
            "[...document.querySelector('#map canvas').getContext('2d')"
            ".getImageData(0, 0, 8, 64).data].join()"
        )
        seen = {}
        for _ in range(3):
            self.browser.click("document.getElementById('theme')")
            seen[self.browser.ask("document.documentElement.dataset.theme")] = self.browser.ask(
                pixels
            )
        self.assertNotEqual(seen["light"], seen["dark"])

    def test_who_pins_free_memory(self) -> None:
        pins = self.survey["pins"]
        shown = self.column("pins", self.head("pins", "Free bytes pinned"))
        most = max(pins["sites"], key=lambda row: row["pinned_bytes"])
        self.assertEqual(shown[0], bytes_text(most["pinned_bytes"]))
        self.assertEqual(len(self.column("arenas", 0)), len(pins["arenas"]))
        self.choose("document.querySelector('#pins select')", 3)
        self.assertIn("forward", "".join(self.column("pins", 0)))

    # ---- tables ----

    def test_sizes_are_those_of_the_report(self) -> None:
        histogram = self.device["histogram"]
        self.assertEqual(self.column("sizes", 2), [f"{row['count']:,}" for row in histogram])
        self.assertEqual(
            self.column("sizes", 0), [bytes_text(row["from_bytes"]) for row in histogram]
        )

    def test_temporaries_by_tag(self) -> None:
        temporary = self.device["temporary"]
        self.assertIn(f"{temporary['allocations']:,}", self.text("#temporaries"))
        shown = self.column("temporaries", self.head("temporaries", "Times"))
        self.assertEqual(shown[0], f"{temporary['sites'][0]['allocations']:,}")
        self.choose("document.querySelector('#temporaries select')", 3)
        shown = self.column("temporaries", self.head("temporaries", "Times"))
        counts = sum(int(text.replace(",", "")) for text in shown)
        self.assertEqual(counts, sum(row["allocations"] for row in temporary["sites"]))

    def test_what_moved_by_tag(self) -> None:
        """Of the tensors that moved, by the tags at their birth; they may be of a part."""
        moved: dict[str, int] = {}
        for site in self.report["call_sites"]:
            if site["spilled_bytes"] > 0:
                tags = " / ".join(site["tags"]) or "(no tag)"
                moved[tags] = moved.get(tags, 0) + site["spilled_bytes"]
        self.assertGreater(len(moved), 0)
        self.choose("document.querySelector('#spilled select')", 3)
        shown = self.column("spilled", self.head("spilled", "Moved to the host"))
        names = self.column("spilled", 0)
        self.assertEqual(
            dict(zip(names, shown, strict=True)),
            {tags: bytes_text(part) for tags, part in moved.items()},
        )

    def test_ranges_are_rows_of_the_timeline(self) -> None:
        ranges = self.process["tag_ranges"]
        titles = self.browser.ask(
            "[...document.querySelectorAll('#timeline-chart .tag title')]"
            ".map((title) => title.textContent)"
        )
        self.assertEqual(len(titles), len(ranges))
        for told in ranges:
            self.assertTrue(any(title.startswith(f"{told['name']}: ") for title in titles))

    def head(self, table: str, title: str) -> int:
        heads = self.browser.ask(
            f"[...document.querySelectorAll('#{table} th')].map((th) => th.innerText.trim())"
        )
        index = heads.index(title)
        assert isinstance(index, int)
        return index

    def test_a_table_is_copied(self) -> None:
        self.browser.ask(
            "(() => { window.copied = null;"
            " navigator.clipboard.writeText = async (text) => { window.copied = text; }; })()"
        )
        self.browser.click("document.querySelector('#sizes .controls button')")
        self.browser.wait_for("window.copied !== null")
        lines = self.browser.ask("window.copied").split("\n")
        self.assertEqual(lines[0], "from_bytes\tto_bytes\tcount\tbytes")
        told = [tuple(int(text) for text in line.split("\t")) for line in lines[1:]]
        wanted = [
            (row["from_bytes"], 2 * row["from_bytes"], row["count"], row["bytes"])
            for row in self.device["histogram"]
        ]
        self.assertEqual(told, wanted)

    def test_rows_open_by_keyboard(self) -> None:
        row = "document.querySelector('#live-then tbody tr')"
        self.browser.ask(f"{row}.focus()")
        self.browser.press("Enter", "\r")
        self.assertEqual(self.browser.ask(f"{row}.getAttribute('aria-expanded')"), "true")
        self.assertIn("train.py", self.browser.ask(f"{row}.nextSibling.textContent"))

    def test_names_stay_text_in_every_view(self) -> None:
        for index in range(len(self.moments)):
            self.choose(MOMENT, index)
        for group in range(4):
            self.choose("document.querySelector('#live-then select')", group)
        self.assertEqual(
            self.count("main script, main img, main iframe, main a:not(#contents a)"), 0
        )
        self.assertEqual(self.count("script"), 3)


if __name__ == "__main__":
    unittest.main()
