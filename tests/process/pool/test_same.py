# SPDX-License-Identifier: Apache-2.0
"""The same programs, on every road to the driver, give the same with and without memshim."""

from __future__ import annotations

import unittest
from typing import Any

from machine import MIB, ProcessTest, Result, only_report, process_folders, program, run

ROADS = {
    "linked": "the driver, linked directly",
    "resolved": "the driver by dlopen, dlsym and cuGetProcAddress",
}
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "delayed": {"SIMGPU_DELAY_US": "0-300"},
    "without virtual memory management": {"SIMGPU_NO_VMM": 1},
    "two devices": {"SIMGPU_DEVICES": 2},
}


class SameResults(ProcessTest):
    def compare(self, name: str, **settings: Any) -> Result:
        alone = run([program(name)], **settings).check()
        under = self.run_under_shim(program(name), **settings).check()
        self.maxDiff = None
        self.assertEqual(alone.stdout, under.stdout, under.stderr)
        self.assertTrue(process_folders(self.output), under.describe())
        return under

    def test_driver_interface(self) -> None:
        for road in ROADS:
            for world, settings in WORLDS.items():
                with self.subTest(ROADS[road], world=world):
                    self.compare(f"driver_{road}_job", **settings)

    def test_runtime_interface(self) -> None:
        for linking in ("dynamic", "static", "dynamic12"):
            for world, settings in WORLDS.items():
                with self.subTest(linking=linking, world=world):
                    self.compare(f"runtime_{linking}_job", **settings)

    def test_without_the_pool(self) -> None:
        for name in ("driver_resolved_job", "runtime_dynamic_job"):
            with self.subTest(name):
                self.compare(name, MEMSHIM_POOL="off")

    def test_trainer(self) -> None:
        settings: dict[str, Any] = {"SIMGPU_DELAY_US": "0-50"}
        alone = run([program("trainer")], **settings).check()
        under = self.run_under_shim(program("trainer"), **settings).check()
        self.assertEqual(alone.stdout, under.stdout)
        device = only_report(self.output)["devices"][0]
        live = int(alone.stdout.rsplit('"peak_bytes": ', 1)[1].rstrip("}\n"))
        self.assertEqual(device["peak_live_bytes"], live)
        self.assertGreaterEqual(device["peak_reserved_bytes"], live)

    def test_trainer_out_of_memory(self) -> None:
        under = self.run_under_shim(
            program("trainer"), "--layers", "64", SIMGPU_MEMORY="2GiB", MEMSHIM_LIMIT="1GiB"
        ).check(3)
        self.assertIn("out of memory", under.stderr)
        events = only_report(self.output)["oom_events"]
        self.assertEqual(len(events), 1)
        self.assertEqual(events[0]["verdict"], "cap")
        self.assertGreater(events[0]["requested_bytes"], 0)
        self.assertFalse(events[0]["recovered"])


class ManyStreams(ProcessTest):
    """Contents checked after every reuse, under random delays."""

    def test_contents(self) -> None:
        for seed in range(1, 7):
            for road in ROADS:
                with self.subTest(seed=seed, road=road):
                    settings: dict[str, Any] = {
                        "SIMGPU_DELAY_US": "0-400",
                        "SIMGPU_SEED": seed,
                        "SIMGPU_MEMORY": "1GiB",
                        "SIMGPU_CONTEXT": "64MiB",
                    }
                    command = (program(f"streams_{road}_job"), str(seed), "150")
                    alone = run(command, **settings).check()
                    under = self.run_under_shim(*command, **settings).check()
                    self.assertEqual(alone.stdout, under.stdout)

    def test_contents_where_memory_is_short(self) -> None:
        for seed in range(10, 13):
            with self.subTest(seed=seed):
                self.run_under_shim(
                    program("streams_resolved_job"),
                    str(seed),
                    "150",
                    SIMGPU_DELAY_US="0-400",
                    SIMGPU_SEED=seed,
                    SIMGPU_CONTEXT=64 * MIB,
                    MEMSHIM_LIMIT="512MiB",
                ).check()


if __name__ == "__main__":
    unittest.main()
