# SPDX-License-Identifier: Apache-2.0
"""One call of the driver fails, whichever: the cap holds, and the next attempt serves."""

from __future__ import annotations

import os
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from machine import ProcessTest, Result, program

WORLD: dict[str, Any] = {
    "SIMGPU_MEMORY": "256MiB",
    "SIMGPU_CONTEXT": "32MiB",
    "MEMSHIM_TRACE": "off",
    "MEMSHIM_LOG": "off",
}
# Without these the program itself does not come to the driver's functions.
RESOLVERS = ("cuGetProcAddress", "cuGetProcAddress_v2")


class Failing(ProcessTest):
    def press(self, fail: str, *arguments: str, **settings: Any) -> Result:
        own: dict[str, Any] = {"SIMGPU_FAIL": fail, "XDG_CACHE_HOME": self.folder / "cache"}
        return self.run_under_shim(program("failing_job"), *arguments, **WORLD, **own, **settings)

    def each_call(self, *how: str, cap_mib: int = 56, **settings: Any) -> None:
        settings["MEMSHIM_LIMIT"] = f"{cap_mib}MiB"
        counted = self.press("", "calls", *how, **settings).check().stdout.split()
        calls = dict(zip(counted[::2], map(int, counted[1::2]), strict=True))
        fails = [
            f"{name}@{number}=CUDA_ERROR_UNKNOWN"
            for name, count in calls.items()
            if name not in RESOLVERS
            for number in range(1, count + 1)
        ]
        self.assertGreater(len(fails), 100)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = pool.map(lambda fail: self.press(fail, str(cap_mib), *how, **settings), fails)
            wrong = [
                f"{fail}: status {result.status}, {result.stdout.strip()} {result.stderr.strip()}"
                for fail, result in zip(fails, results, strict=True)
                if result.status != 0
            ]
        self.assertFalse(wrong, f"{len(wrong)} of {len(fails)}:\n" + "\n".join(wrong))

    def test_pool(self) -> None:
        self.each_call()

    def test_while_something_captures(self) -> None:
        self.each_call("captured")

    def test_without_the_pool(self) -> None:
        # The driver's own pool grows by 32 MiB at once.
        self.each_call(MEMSHIM_POOL="off", cap_mib=72)


if __name__ == "__main__":
    unittest.main()
