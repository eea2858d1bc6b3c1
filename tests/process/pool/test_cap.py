# SPDX-License-Identifier: Apache-2.0
"""The cap holds, by the device's own count, and a program recovers from running into it."""

from __future__ import annotations

import json
import unittest
from typing import Any

from machine import GIB, MIB, ProcessTest, only_report, program, remove_output, run

CONTEXT = 64 * MIB
# All of it is about refusals; what went to the host would not be refused (test_spill.py).
WORLD: dict[str, Any] = {
    "MEMSHIM_SPILL": "off",
    "SIMGPU_MEMORY": "2GiB",
    "SIMGPU_CONTEXT": CONTEXT,
}


class Pressed(ProcessTest):
    def press(self, *arguments: str, **settings: Any) -> dict[str, Any]:
        """Runs cap_job; what it saw on the device, and memshim's report beside it."""
        result = self.run_under_shim(
            program("cap_job"), *arguments, **{**WORLD, **settings}
        ).check()
        seen = json.loads(result.stdout)
        seen["report"] = only_report(self.output)["devices"][0]
        assert isinstance(seen, dict)
        return seen

    def check(self, seen: dict[str, Any], cap: int) -> None:
        self.assertEqual(seen["report"]["cap_bytes"], cap)
        self.assertEqual(seen["total_bytes"], cap)
        self.assertLessEqual(seen["peak_bytes"], cap)
        self.assertLessEqual(seen["report"]["peak_charged_bytes"], cap)
        # The device cannot hold more than memshim says that it charged.
        self.assertGreaterEqual(seen["report"]["peak_charged_bytes"], seen["peak_bytes"])
        self.assertGreater(seen["refusals"], 0)


class Cap(Pressed):
    def refuse(self, cap: int, **settings: Any) -> None:
        self.check(self.press("refuse", **settings), cap)

    def test_fraction(self) -> None:
        self.refuse(GIB // 2, MEMSHIM_FRACTION="0.25")

    def test_fraction_by_device(self) -> None:
        self.refuse(GIB // 2, MEMSHIM_FRACTION="0:0.25,1:0.9")

    def test_limit(self) -> None:
        self.refuse(700 * MIB, MEMSHIM_LIMIT="700MiB")

    def test_smaller_of_both(self) -> None:
        self.refuse(GIB // 2, MEMSHIM_LIMIT="700MiB", MEMSHIM_FRACTION="0.25")

    def test_without_the_pool(self) -> None:
        self.refuse(700 * MIB, MEMSHIM_LIMIT="700MiB", MEMSHIM_POOL="off")

    def test_without_virtual_memory_management(self) -> None:
        self.refuse(700 * MIB, MEMSHIM_LIMIT="700MiB", SIMGPU_NO_VMM=1)

    def test_no_cap_is_the_whole_device(self) -> None:
        self.refuse(2 * GIB)


class Words(ProcessTest):
    """What no device can grant is refused as the driver refuses it, room or no room; what the
    driver grants all the same is given back."""

    def test_are_the_drivers(self) -> None:
        small: dict[str, Any] = {"SIMGPU_MEMORY": "512MiB", "SIMGPU_CONTEXT": CONTEXT}
        plain = run([program("refusal_job")], **small).check().stdout
        self.assertIn("a plane,2", plain)
        self.assertIn("too wide,1", plain)
        self.same_words("refusal_job", plain, small)

    def same_words(self, job: str, plain: str, small: dict[str, Any]) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                under = self.run_under_shim(
                    program(job),
                    MEMSHIM_LIMIT="256MiB",
                    MEMSHIM_SPILL="off",
                    MEMSHIM_POOL=pool,
                    **small,
                ).check()
                self.assertEqual(under.stdout, plain)

    def test_sizes_near_the_ends_of_their_types(self) -> None:
        small: dict[str, Any] = {"SIMGPU_MEMORY": "512MiB", "SIMGPU_CONTEXT": CONTEXT}
        plain = run([program("extreme_job")], **small).check().stdout
        self.same_words("extreme_job", plain, small)


class Race(Pressed):
    """Eight threads at once; nobody ever sees more in use than the cap."""

    def race(self, seed: int, **settings: Any) -> None:
        cap = 300 * MIB
        seen = self.press("race", str(seed), MEMSHIM_LIMIT=cap, **settings)
        self.check(seen, cap)
        # Where room came back after the last try, that was not the last one.
        verdicts = {event["verdict"] for event in only_report(self.output)["oom_events"]}
        self.assertNotIn("not_device", verdicts)

    def test_pool(self) -> None:
        self.race(1)

    def test_pool_with_delays(self) -> None:
        self.race(2, SIMGPU_DELAY_US="0-200")

    def test_forwarded(self) -> None:
        self.race(3, MEMSHIM_POOL="off")

    def test_plain_chunks(self) -> None:
        self.race(4, SIMGPU_NO_VMM=1)


class SecondContext(Pressed):
    """What one context takes is known from the first; another one gets no more than there is."""

    def check_second(self, how: str, **settings: Any) -> None:
        cap = CONTEXT + 128 * MIB
        self.check(self.press("second-context", how, MEMSHIM_LIMIT=cap, **settings), cap)

    def test_refused_where_nothing_can_go(self) -> None:
        self.check_second("refused")

    def test_refused_without_the_pool(self) -> None:
        self.check_second("refused", MEMSHIM_POOL="off")

    def test_room_is_made_for_it(self) -> None:
        self.check_second("served", MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="512MiB")


class Graph(Pressed):
    """A graph's allocation nodes get memory from the driver with the first launch or upload."""

    def test_what_it_takes_is_charged(self) -> None:
        for how in ("launch", "upload"):
            for pool in ("on", "off"):
                with self.subTest(how, pool=pool):
                    remove_output(self.output)
                    cap = CONTEXT + 256 * MIB
                    seen = self.press("graph", "120", how, MEMSHIM_LIMIT=cap, MEMSHIM_POOL=pool)
                    self.check(seen, cap)

    def test_a_launch_beyond_the_cap_leaves_nothing(self) -> None:
        """The job sees to it: nothing is free then, and nothing more is served."""
        settings = {**WORLD, "MEMSHIM_LIMIT": CONTEXT + 128 * MIB}
        self.run_under_shim(program("cap_job"), "graph", "240", "launch", **settings).check()

    def test_room_is_made_for_it(self) -> None:
        cap = CONTEXT + 128 * MIB
        seen = self.press(
            "graph-room", MEMSHIM_LIMIT=cap, MEMSHIM_SPILL="auto", MEMSHIM_SPILL_LIMIT="512MiB"
        )
        self.assertLessEqual(seen["peak_bytes"], cap)

    def later(self, *arguments: str, **settings: Any) -> dict[str, Any]:
        cap = CONTEXT + 128 * MIB
        settings = {"MEMSHIM_SPILL": "auto", "MEMSHIM_SPILL_LIMIT": "512MiB", **settings}
        seen = self.press(*arguments, MEMSHIM_LIMIT=cap, **settings)
        self.assertLessEqual(seen["peak_bytes"], cap)
        return seen

    def test_room_is_made_for_it_after_a_trim(self) -> None:
        for memory in ("2GiB", CONTEXT + 128 * MIB):
            with self.subTest(memory=memory):
                remove_output(self.output)
                seen = self.later("graph-later", "trim", SIMGPU_MEMORY=memory)
                self.assertGreater(seen["report"]["spill"]["spills"], 0)

    def test_a_later_launch_that_ran_out_is_made_again(self) -> None:
        self.later("graph-later", SIMGPU_FAIL="cuGraphLaunch@3=2")

    def test_the_driver_twice_does_not_say(self) -> None:
        for nth in range(1, 13):
            with self.subTest(nth=nth):
                remove_output(self.output)
                fail = f"cuDeviceGetGraphMemAttribute@{nth}-{nth + 1}=CUDA_ERROR_UNKNOWN"
                self.later("graph-asked", MEMSHIM_SPILL="off", SIMGPU_FAIL=fail)

    def test_what_was_uploaded_is_not_made_room_for_again(self) -> None:
        seen = self.later("graph-uploaded")
        self.assertEqual(seen["report"]["spill"]["spills"], 0)

    def test_what_the_driver_gives_back_is_there_for_others(self) -> None:
        cap = CONTEXT + 128 * MIB
        self.check(self.press("graph-trimmed", MEMSHIM_LIMIT=cap), cap)

    def test_a_refused_launch_was_not_the_first(self) -> None:
        self.press("graph-again", SIMGPU_MEMORY="512MiB")


class Kept(Pressed):
    """What the driver's own pools keep for nobody is given back before anything is refused, or
    moved to the host."""

    def test_for_every_kind_of_request(self) -> None:
        for how in ("block", "ordered", "managed", "chunk"):
            for settings in ({}, {"MEMSHIM_SPILL": "auto"}, {"MEMSHIM_CAP_OF": "run"}):
                with self.subTest(how, **settings):
                    remove_output(self.output)
                    cap = CONTEXT + 128 * MIB
                    seen = self.press("kept", how, MEMSHIM_LIMIT=cap, **settings)
                    self.assertLessEqual(seen["peak_bytes"], cap)
                    self.assertEqual(seen["report"]["spill"]["spills"], 0)


class Told(Pressed):
    """What the trace tells of charges never passes the cap either, at no moment."""

    def test_pools_that_are_destroyed(self) -> None:
        cap = CONTEXT + 48 * MIB
        seen = self.press("pools", MEMSHIM_LIMIT=cap, MEMSHIM_POOL="off")
        self.check(seen, cap)


class Pieces(Pressed):
    def test_what_lacked_room_is_what_was_refused(self) -> None:
        """The request would have fitted: the piece that the driver takes for it did not."""
        cap = CONTEXT + 40 * MIB
        seen = self.press("piece", MEMSHIM_LIMIT=cap, MEMSHIM_POOL="off")
        self.check(seen, cap)
        (refusal,) = only_report(self.output)["oom_events"]
        self.assertEqual(refusal["verdict"], "cap")
        self.assertEqual(refusal["requested_bytes"], 32 * MIB)

    def test_a_request_that_fits_lies_beside_the_pool(self) -> None:
        cap = CONTEXT + 40 * MIB
        seen = self.press("apart", MEMSHIM_LIMIT=cap, MEMSHIM_POOL="off")
        self.check(seen, cap)
        self.assertEqual(seen["refusals"], 8)
        verdicts = {event["verdict"] for event in only_report(self.output)["oom_events"]}
        self.assertEqual(verdicts, {"cap"})


class WholeDevice(Pressed):
    """Without a cap below the device, the driver refuses what is not there, and nothing else."""

    def test_a_pool_has_room_though_it_cannot_grow(self) -> None:
        device = CONTEXT + 64 * MIB
        self.check(self.press("held", SIMGPU_MEMORY=device, MEMSHIM_POOL="off"), device)

    def test_a_small_block_needs_no_slab_of_its_own(self) -> None:
        """The device is full but for a slab of the driver's, which small blocks share."""
        device = CONTEXT + 64 * MIB
        self.check(self.press("slab", SIMGPU_MEMORY=device, MEMSHIM_POOL="off"), device)


class BadValues(ProcessTest):
    def test_named_and_default_kept(self) -> None:
        for name, value in (("FRACTION", "1.5"), ("LIMIT", "lots"), ("FRACTON", "0.5")):
            with self.subTest(name):
                result = self.run_under_shim(
                    program("life_job"), "plain", **{f"MEMSHIM_{name}": value}
                ).check()
                lines = [line for line in result.stderr.splitlines() if f"MEMSHIM_{name}" in line]
                self.assertEqual(len(lines), 1, result.stderr)
                self.assertTrue(lines[0].startswith("memshim: "), lines[0])
                if name != "FRACTON":
                    self.assertIn(value, lines[0])


if __name__ == "__main__":
    unittest.main()
