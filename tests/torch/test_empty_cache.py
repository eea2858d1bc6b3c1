#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop that empties PyTorch's cache: whose line it is, and what it costs."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any

import harness

JOB = """
    import torch

    EVERY = EVERY_STEPS
    layer = torch.nn.Linear(1024, 1024).cuda()
    for step in range(20):
        layer(torch.zeros(4096, 1024, device="cuda")).mean().backward()
        layer.zero_grad()
        # PyTorch has a pool of its own for 1 MiB and less.
        small = [torch.zeros(1 << 18, device="cuda") for _ in range(8)]
        del small
        if EVERY and step % EVERY == 0:
            torch.cuda.empty_cache()  # here
"""


def run(every: int, **settings: object) -> tuple[str, dict[str, Any]]:
    script = textwrap.dedent(JOB).replace("EVERY_STEPS", str(every))
    with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
        harness.run(
            script,
            preload=harness.SHIM,
            MEMSHIM_OUTPUT=Path(folder) / "out",
            MEMSHIM_REPORT_WAIT="300",
            SIMGPU_MEMORY="2GiB",
            SIMGPU_CONTENTS="none",
            **settings,
        ).check()
        (made,) = harness.folders_in(Path(folder) / "out")
        report = json.loads((made / "report.json").read_text())
        return (made / "report.txt").read_text(), report["devices"][0]


@harness.needs_torch
class EmptyCache(unittest.TestCase):
    line = 1 + next(
        at for at, line in enumerate(textwrap.dedent(JOB).splitlines()) if line.endswith("# here")
    )

    def test_who_empties_it_and_what_that_costs(self) -> None:
        _, kept = run(0)
        for conf in ("expandable_segments:True", "expandable_segments:False"):
            with self.subTest(conf):
                text, device = run(1, PYTORCH_ALLOC_CONF=conf)
                emptied = device["emptied_cache"]
                (site,) = emptied["sites"]
                self.assertEqual((emptied["calls"], site["calls"]), (20, 20))
                self.assertRegex(site["line"], rf":{self.line} in ")
                # An input of 16 MiB and what comes of it, at least, each time.
                self.assertGreaterEqual(site["bytes"], 20 * (32 << 20))
                self.assertRegex(text, rf":{self.line} in .* emptied PyTorch's cache 20 times")
                since = emptied["driver_calls_since"]
                self.assertEqual("no chunk had to be created again" in text, since == 0)
                if conf.endswith("True"):
                    # All that such a run does more than one that keeps its cache.
                    more = [sum(of["driver_calls"].values()) for of in (device, kept)]
                    self.assertGreater(since, 0.9 * (more[0] - more[1]))
                    self.assertLessEqual(since, more[0])

    def test_nothing_where_nobody_does_it_or_seldom(self) -> None:
        text, device = run(0)
        self.assertEqual(device["emptied_cache"]["sites"], [])
        self.assertEqual(device["emptied_cache"]["calls"], 0)
        self.assertNotIn("emptied PyTorch's cache", text)
        text, device = run(10)
        self.assertEqual(device["emptied_cache"]["calls"], 2)
        self.assertIsNone(re.search("emptied PyTorch's cache", text))


if __name__ == "__main__":
    unittest.main()
