"""Whether a device reaches host memory is tried once, apart, and remembered."""

from __future__ import annotations

import shutil
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, SHIM, ProcessTest, program, run

YES, NO, UNKNOWN = 0, 3, 4
MAY = "may use up to"


class HostRoad(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.cache = self.folder / "cache"
        self.cache.mkdir()

    def start(self, *arguments: str, **settings: Any) -> str:
        """A program that would notice a child; what memshim says."""
        result = run(
            [program("probe_job"), *arguments],
            shim=True,
            **{
                "MEMSHIM_OUTPUT": self.output,
                "MEMSHIM_LOG": "info",
                "XDG_CACHE_HOME": self.cache,
                **settings,
            },
        ).check()
        self.assertEqual(result.stdout, "signals 0, No child processes\n")
        return result.stderr

    def remembered(self) -> list[str]:
        return [path.read_text() for path in self.cache.glob("memshim/host-*")]

    def test_it_is_tried_and_remembered(self) -> None:
        self.assertIn(MAY, self.start())
        self.assertEqual(self.remembered(), [str(YES)])
        # What is remembered is not tried again, whatever a trial would say now.
        self.assertIn(MAY, self.start(SIMGPU_FAIL="cuMemsetD32@*=999"))

    def test_not_for_one_who_only_asks_what_there_is(self) -> None:
        self.assertEqual(self.start("ask"), "")
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_a_device_that_fails_at_it(self) -> None:
        # These calls are made by the trial alone.
        for failing in ("cuMemsetD32@1=999", "cuMemcpyDtoD@2=700", "cuMemMap@1=801"):
            with self.subTest(failing):
                shutil.rmtree(self.cache / "memshim", ignore_errors=True)
                stderr = self.start(SIMGPU_FAIL=failing, MEMSHIM_POOL="on")
                self.assertIn("the driver offers it, but a test of it failed", stderr)
                self.assertEqual(self.remembered(), [str(NO)])

    def test_no_room_to_try_is_not_remembered(self) -> None:
        stderr = self.start(SIMGPU_FAIL="cuMemAlloc@1=2")
        self.assertIn("it could not be tested", stderr)
        self.assertNotIn(str(NO), self.remembered())
        self.assertIn(MAY, self.start())

    def test_a_driver_that_offers_none(self) -> None:
        self.assertIn("its driver offers none", self.start(SIMGPU_HOST_NUMA=0))
        self.assertEqual(self.remembered(), [])

    def test_a_library_without_its_command(self) -> None:
        alone = Path(shutil.copy(SHIM, self.folder))
        self.assertIn("is the memshim command beside", self.start(LD_PRELOAD=alone))

    def test_a_cache_that_cannot_be_written(self) -> None:
        (self.cache / "memshim").write_text("not a folder")
        self.assertIn(MAY, self.start())

    def test_only_its_own_folder_is_made(self) -> None:
        missing, home = self.folder / "missing", self.folder / "home"
        home.mkdir()
        for places in (
            {"XDG_CACHE_HOME": missing, "HOME": home},
            {"XDG_CACHE_HOME": "", "HOME": missing},
            {"XDG_CACHE_HOME": "missing", "HOME": missing},
        ):
            with self.subTest(places):
                self.assertIn(MAY, self.start(cwd=self.folder, **places))
                self.assertFalse(missing.exists())
                self.assertEqual(list(home.iterdir()), [])
        self.assertIn(MAY, self.start(XDG_CACHE_HOME="", HOME=home))
        self.assertEqual([path.name for path in (home / ".cache").iterdir()], ["memshim"])

    def test_the_pool_is_off(self) -> None:
        self.assertNotIn("host memory", self.start(MEMSHIM_POOL="off"))
        self.assertEqual(self.remembered(), [])

    def test_the_trial_itself(self) -> None:
        self.assertEqual(run([CLI, "probe-host", "00" * 16]).status, UNKNOWN)
        self.assertEqual(run([CLI, "probe-host"]).status, 2)
        self.assertNotIn("probe-", run([CLI, "help"]).check().stdout)

    def test_the_other_question(self) -> None:
        self.assertEqual(run([CLI, "probe-mapping"]).status, YES)
        self.assertEqual(run([CLI, "probe-mapping"], SIMGPU_NO_VMM=1).status, NO)
        self.assertEqual(run([CLI, "probe-mapping"], LD_LIBRARY_PATH="/none").status, UNKNOWN)


if __name__ == "__main__":
    unittest.main()
