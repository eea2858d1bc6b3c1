# SPDX-License-Identifier: Apache-2.0
"""What cuMemFree waits for, with memshim as without."""

from __future__ import annotations

import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from machine import MIB, ProcessTest, Result, only_report, program, run

AT_ONCE = 8  # they wait for the device, not for a processor
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without the pool": {"MEMSHIM_POOL": "off"},
    "without virtual memory management": {"SIMGPU_NO_VMM": 1},
    "a driver without cuCtxRecordEvent": {"SIMGPU_DRIVER_VERSION": 12040},
}


class Frees(ProcessTest):
    def test_every_kind_of_memory(self) -> None:
        names = run([program("free_job"), "list"]).check().stdout.split()
        self.assertTrue(names)
        settings: dict[str, Any] = {
            "SIMGPU_DEVICES": 2,
            "SIMGPU_DELAY_US": 10000,
            "MEMSHIM_TRACE": "off",
            "XDG_CACHE_HOME": self.folder / "cache",
        }
        settled_by_the_driver = ("framework", "without the pool")
        names = [name for name in names if not name.startswith("born")]  # memshim alone can

        def run_case(case: tuple[str, str | None]) -> Result:
            name, world = case
            job = (program("free_job"), name)
            if world is None:
                return run(job, **settings)
            return self.run_under_shim(*job, **settings, **WORLDS[world])

        cases = [
            (name, world)
            for name in names
            for world in (None, *WORLDS)
            if (name, world) != settled_by_the_driver
        ]
        with ThreadPoolExecutor(AT_ONCE) as workers:
            results = dict(zip(cases, workers.map(run_case, cases), strict=True))
        for (name, world), result in results.items():
            with self.subTest(name, world=world):
                self.assertEqual(results[name, None].check().stdout, result.check().stdout)

    def test_an_earlier_error_is_reported(self) -> None:
        """As the driver does: and the memory is still there for the next attempt."""
        settings: dict[str, Any] = {"MEMSHIM_TRACE": "off", "XDG_CACHE_HOME": self.folder / "cache"}
        under = self.run_under_shim(
            program("free_job"),
            "no-context",
            **settings,
            SIMGPU_FAIL="cuEventQuery@1=CUDA_ERROR_ILLEGAL_ADDRESS",
        ).check()
        results = [int(line.rsplit(" ", 1)[1]) for line in under.stdout.splitlines()[:3]]
        self.assertEqual(results, [700, 0, 1])

    def test_an_address_that_the_driver_serves_again(self) -> None:
        """A free is recorded before another thread may be given its address."""
        result = self.run_under_shim(
            program("free_job"), "served-again", MEMSHIM_POOL="off", SIMGPU_DESTROY_US=400000
        ).check()
        self.assertIn("same address", result.stderr)
        sites = only_report(self.output)["call_sites"]
        for site in sites:
            if site["device"] == 0:
                self.assertEqual(site["frees"], site["allocations"], site)
                self.assertEqual(site["live_bytes"], 0, site)

    def test_host_memory_that_the_driver_serves_again(self) -> None:
        """Recorded before the driver frees it: never is more pinned than was, and the second
        allocation is not the one that was freed."""
        full: dict[str, Any] = {
            "SIMGPU_NO_VMM": 1,
            "SIMGPU_CONTEXT": "8MiB",
            "MEMSHIM_LIMIT": "40MiB",
            "MEMSHIM_SPILL": "auto",
        }
        cases = {"pinned": {}, "registered": {}, "born-on-the-host": full}
        for case, settings in cases.items():
            with self.subTest(case):
                output = self.folder / case
                run(
                    [program("free_job"), f"{case}-again"],
                    shim=True,
                    MEMSHIM_OUTPUT=output,
                    SIMGPU_DESTROY_US=400000,
                    **settings,
                ).check()
                report = only_report(output)
                pinned = sorted(
                    (site["peak_pinned_host_bytes"], site["pinned_host_bytes"])
                    for site in report["call_sites"]
                    if site["peak_pinned_host_bytes"] > 0
                )
                self.assertEqual(pinned, [(4 * MIB, 0), (4 * MIB, 4 * MIB)])
                self.assertEqual(report["devices"][0]["peak_host_pinned_bytes"], 4 * MIB)

    def test_host_memory_that_is_not_freed(self) -> None:
        """What was recorded as freed is recorded as there again."""
        result = self.run_under_shim(
            program("free_job"),
            "pinned-kept",
            SIMGPU_FAIL="cuMemFreeHost@1=CUDA_ERROR_ILLEGAL_ADDRESS",
        ).check()
        self.assertIn("700", result.stdout)
        sites = only_report(self.output)["call_sites"]
        self.assertEqual(sum(site["pinned_host_bytes"] for site in sites), 4 * MIB)

    def test_a_free_that_fails_without_the_pool(self) -> None:
        """What was recorded as freed is recorded as there again."""
        self.run_under_shim(
            program("free_job"),
            "linear",
            MEMSHIM_POOL="off",
            SIMGPU_FAIL="cuMemFree_v2@1=CUDA_ERROR_ILLEGAL_ADDRESS",
        ).check(1)
        sites = only_report(self.output)["call_sites"]
        self.assertEqual(sum(site["live_bytes"] for site in sites), 4 * MIB)


if __name__ == "__main__":
    unittest.main()
