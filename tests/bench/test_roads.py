# SPDX-License-Identifier: Apache-2.0
"""Hot roads take no more instructions than roads.json says."""

from __future__ import annotations

import json
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import roads

# The machine that decides whether a change is taken.
CI = "x86-64, gcc 12.2, glibc 2.36"
WORLD = "x86-64, gcc 1.2, glibc 3.4"
TABLE: roads.Table = {WORLD: {"pair": {"instructions": 1000.0, "why": "first measured"}}}


def measured(**counts: float) -> roads.Measured:
    return roads.Measured(WORLD, counts)


class FindingsTest(unittest.TestCase):
    def test_two_percent_is_the_limit(self) -> None:
        self.assertEqual(roads.findings(measured(pair=1019.9), TABLE), [])
        self.assertEqual(
            roads.findings(measured(pair=1021.0), TABLE),
            ["pair: 1021.0 instructions, 2.1% more than the 1000.0 known"],
        )

    def test_fewer_is_no_fault(self) -> None:
        self.assertEqual(roads.findings(measured(pair=10.0), TABLE), [])

    def test_a_road_of_one_side_alone(self) -> None:
        said = " ".join(roads.findings(measured(event=1.0), TABLE))
        self.assertIn("event: 1.0 instructions, which roads.json does not know", said)
        self.assertIn("pair: no program walks it", said)

    def test_another_version_of_python_is_no_fault(self) -> None:
        rows: dict[str, dict[str, float | str]] = {
            "python 3.1": {"instructions": 1.0, "why": "first measured"}
        }
        known: roads.Table = {WORLD: TABLE[WORLD] | rows}
        now = roads.Measured(WORLD, {"pair": 1000.0, roads.PYTHON: 5.0})
        self.assertEqual(roads.findings(now, known), [])
        known[WORLD][roads.PYTHON] = {"instructions": 4.0, "why": "first measured"}
        self.assertEqual(len(roads.findings(now, known)), 1)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "roads.json"
            path.write_text(json.dumps(known))
            with mock.patch.object(roads, "KNOWN", path):
                self.assertEqual(roads.write(now, "a reason", path), [roads.PYTHON])
                self.assertEqual(set(roads.known()[WORLD]), {"pair", "python 3.1", roads.PYTHON})

    def test_what_is_written_is_known(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "roads.json"
            path.write_text(json.dumps(TABLE))
            with mock.patch.object(roads, "KNOWN", path):
                changed = roads.write(measured(pair=1200.0, event=7.0), "a second lock", path)
                self.assertEqual(sorted(changed), ["event", "pair"])
                self.assertEqual(roads.write(measured(pair=1200.0, event=7.0), "no", path), [])
                table = roads.known()
        self.assertEqual(table[WORLD]["pair"], {"instructions": 1200.0, "why": "a second lock"})
        self.assertEqual(roads.findings(measured(pair=1220.0, event=7.0), table), [])


class PartTest(unittest.TestCase):
    def total(self, *lines: str) -> int:
        with tempfile.TemporaryDirectory() as name:
            part = Path(name) / "part.1"
            part.write_text("\n".join(lines))
            total: int = roads.total_of(part)
        return total

    def test_calls_and_the_simulated_gpu_are_left_out(self) -> None:
        lines = [
            *("ob=/build/libmemshim.so.1", "fn=alloc", "12 30", "13 4"),
            *("cob=/build/simgpu/libcuda.so.1", "cfn=cuMemAlloc", "calls=5 90", "13 700"),
            *("14 6", "ob=/build/simgpu/libcuda.so.1", "fn=cuMemAlloc", "90 700", "totals: 740"),
        ]
        self.assertEqual(self.total(*lines), 40)

    def test_what_the_simulated_gpu_calls_is_left_out(self) -> None:
        """The C library's part is counted as far as memshim called it."""
        lines = [
            *("ob=/build/libmemshim.so.1", "fn=alloc", "12 30"),
            *("cob=/libc.so.6", "cfn=lock", "calls=1 7", "12 20"),
            *("cob=/build/simgpu/libcuda.so.1", "cfn=cuMemAlloc", "calls=5 90", "13 760"),
            *("cfn=other", "calls=1 3", "14 8"),
            *("ob=/build/simgpu/libcuda.so.1", "fn=cuMemAlloc", "90 700"),
            *("cfn=own", "calls=1 95", "91 10", "cob=/libc.so.6", "cfn=lock", "calls=2 7", "92 40"),
            *("fn=own", "95 10", "cob=/libc.so.6", "cfn=lock", "calls=1 7", "96 10"),
            *("ob=/build/libmemshim.so.1", "fn=other", "3 8", "ob=/libc.so.6", "fn=lock", "7 70"),
        ]
        self.assertEqual(self.total(*lines), 30 + 20 + 8)


class RoadsTest(unittest.TestCase):
    def test_every_known_count_has_a_reason(self) -> None:
        table = roads.known()
        self.assertIn(CI, table)
        for world, rows in table.items():
            for road, row in rows.items():
                self.assertTrue(row["why"], f"{world}: {road}")

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_no_road_takes_more(self) -> None:
        table = roads.known()
        now = roads.measure(table)
        if now.world not in table:
            record = roads.PROGRAMS / "roads-recorded.json"
            roads.write(now, "first measured", record)
            self.skipTest(f"roads.json does not know {now.world}; its counts are in {record}")
        roads.show(now, table)
        more = roads.findings(now, table)
        how = 'with a reason: tests/bench/roads.py --write "REASON"'
        self.assertEqual(more, [], f"\nwhere that is meant, {how}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
