# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check.sh on the simulated GPU, without PyTorch: it runs through, keeps to its time,
and leaves results that say what is so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from machine import BUILD, ROOT, TIMEOUT_S, ProcessTest, Result

sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import targets  # noqa: E402
from part_fragmentation import GRANULE, Search  # noqa: E402
from world import Fail, World  # noqa: E402

SCRIPT = ROOT / "scripts" / "gpu_check.sh"
# Far more than it takes: how fast it is on a busy machine is nothing to fail for.
MINUTES = "15"
PARTS = ("doctor", "semantics", "spill", "costs", "gate", "probes", "others")
WITHOUT_TORCH = ("torch", "speed", "fragmentation", "workloads", "dry", "pytorch")
# Cases that are left out on the simulated GPU, and nothing else may be.
LEFT_OUT = (
    "assumption: a kernel's parameters are told",
    "assumption: atomics of 32 and 64 bits, whole and not, work on host-located chunks",
    "assumption: reductions work on host-located chunks",
    "assumption: textures read host-located chunks",
    "assumption: atomics of two bfloat16 work on host-located chunks",
    "assumption: 128 bits are compared and swapped on host-located chunks",
    "assumption: bulk copies (TMA) work on host-located chunks",
    "assumption: tensor maps (TMA) read host-located chunks",
    "gate: all that CUPTI knows to start work passes it",
    "spill: a training job",
    "spill: back up, contents as written",  # where it cannot be told from the way down
    "NCCL: two communicators of one rank, captured in a graph",  # without PyTorch
    "cuFile: a buffer of the pool is registered",
    "MIG",
    "MPS",
    "cgroups' limit of device memory (dmem)",
    "GDRCopy",
    "UCX",
    "other frameworks: cupy",
    "other frameworks: jax, as memshim chooses",
    "other frameworks: jax, its own allocator",
    "other frameworks: numba",
)


FIGURES = {
    "speed/fixed/memshim native, tags full over PyTorch native": 0.995,
    "speed/variable/memshim native, tags full over PyTorch native": 1.012,
    "speed/many kernels/memshim native, tags full over PyTorch native": 0.991,
    "speed/variable/memshim native at 1.05 x live over memshim native, tags full": 0.93,
    "fragmentation/memshim native, tags full": 1.012,
    "fragmentation/PyTorch native": 1.11,
    "fragmentation/PyTorch expandable": 1.015,
    "spill/pinned copy down": 20.0,
    "spill/pinned copy up": 22.0,
    "spill/copy down": 19.0,
    "spill/copy up": 20.0,
    "spill/spill down": 15.0,
    "spill/spill up": 16.0,
    "spill/step at 0.9 x need": 40.0,
    "spill/step managed at 0.9 x need": 100.0,
}


class Targets(unittest.TestCase):
    """The figures to reach: which of them tell that one is reached, missed, or not known."""

    def status(self, cases: dict[str, str] | None = None, **changed: float | None) -> list[str]:
        """With these figures changed, or left out where None; '_' stands for what no name has."""
        figures = dict(FIGURES)
        for name, value in changed.items():
            (known,) = [figure for figure in FIGURES if figure.replace(" ", "_").endswith(name)]
            figures.pop(known)
            if value is not None:
                figures[known] = value
        given = {"losses: native": "pass"} if cases is None else cases
        return [row["status"] for row in targets.rows(figures, given)]

    def test_all_reached(self) -> None:
        self.assertEqual(self.status(), ["pass"] * 7)

    def test_missed_and_unknown(self) -> None:
        missed = ("fail", "unknown")
        for row, change in enumerate(
            (
                {"fixed/memshim_native,_tags_full_over_PyTorch_native": 0.989},
                {"at_1.05_x_live_over_memshim_native,_tags_full": 0.89},
                {"fragmentation/memshim_native,_tags_full": 1.016},
                {"spill/spill_up": 15.3},
                {"spill/copy_up": 19.7},
                {"spill/step_at_0.9_x_need": 51.0},
            )
        ):
            (name,) = change
            for value, status in zip((change[name], None), missed, strict=True):
                with self.subTest(name, value=value):
                    self.assertEqual(self.status(None, **{name: value})[row], status)

    def test_between_two_limits(self) -> None:
        """A search that broke off knows a limit that is enough, and one that is not."""
        ours, other = "fragmentation/memshim native, tags full", "fragmentation/PyTorch expandable"
        for least, most, others_least, others_most, status in (
            (1.008, 1.012, 1.030, 1.060, "pass"),
            (1.008, 1.024, 1.030, 1.060, "unknown"),
            (1.021, 1.040, 1.050, 1.060, "fail"),
            (1.008, 1.012, 1.010, 1.060, "unknown"),
            (1.016, 1.018, 1.010, 1.015, "fail"),
        ):
            figures = {
                **FIGURES,
                ours: most,
                targets.at_least(ours): least,
                other: others_most,
                targets.at_least(other): others_least,
            }
            with self.subTest(figures):
                self.assertEqual(targets.rows(figures, {})[2]["status"], status)

    def test_losses(self) -> None:
        for statuses, wanted in (
            (("pass", "fail"), "fail"),
            (("pass", "skipped"), "unknown"),
            ((), "unknown"),
        ):
            cases = {f"losses: {n}": status for n, status in enumerate(statuses)}
            self.assertEqual(self.status(cases)[-1], wanted)


class Half(Search):
    """Of a job that completes from some limit on, with 1000 granules alive."""

    def __init__(self, enough_bytes: int, at_once: int) -> None:
        self.figures: dict[str, float] = {}
        self.enough_bytes = enough_bytes
        part: Any = SimpleNamespace(
            world=SimpleNamespace(left_s=lambda: 1000.0),
            figure=lambda name, value, unit: self.figures.update({name: value}),
        )
        server: Any = SimpleNamespace(configuration=SimpleNamespace(name="half"))
        ample: Any = SimpleNamespace(live_bytes=1000 * GRANULE)
        super().__init__(part, server, ample, at_once)

    def completes(self, limit_bytes: int) -> bool | None:
        return limit_bytes >= self.enough_bytes


class SmallestLimit(unittest.TestCase):
    def test_it_lies_between_what_is_told(self) -> None:
        for share in (0.9995, 1.0, 1.004, 1.2, 2.9):
            for at_once in (1, 2, 3):
                with self.subTest(share, at_once=at_once):
                    search = Half(int(share * 1000 * GRANULE), at_once)
                    search.go()
                    most = search.figures["fragmentation/half"]
                    least = search.figures[targets.at_least("fragmentation/half")]
                    self.assertLess(least, share)
                    self.assertGreaterEqual(most, share)
                    self.assertLessEqual(most - least, 0.005)

    def test_what_never_completes_fails(self) -> None:
        with self.assertRaisesRegex(Fail, "does not complete"):
            Half(1 << 60, 2).go()


class Silence(ProcessTest):
    def test_what_says_nothing_more_is_ended(self) -> None:
        world = World(BUILD, self.folder, self.folder, "", "", True, 0, time.monotonic() + 300)
        result = world.run_until_silent(["sh", "-c", "echo one; sleep 0.1; echo two; sleep 200"], 5)
        self.assertEqual((result.stdout, result.timed_out), ("one\ntwo\n", True))
        self.assertNotEqual(result.status, 0)
        result = world.run_until_silent(["sh", "-c", "echo one; exit 3"], 60)
        self.assertEqual((result.stdout, result.status, result.timed_out), ("one\n", 3, False))


class GpuCheck(ProcessTest):
    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SIMGPU_", "MEMSHIM_", "LD_"))
        }

    def check(self, *arguments: str | Path, build: Path = BUILD, **settings: str) -> Result:
        command = [SCRIPT, "--simulated", "--build", build, "--python", "none", *arguments]
        words = [str(part) for part in command]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=1000,
            env={**self.environment(), **settings},
            check=False,
        )
        return Result(words, done.returncode, done.stdout, done.stderr)

    def results(self) -> dict[str, Any]:
        value = json.loads((self.folder / "out" / "results.json").read_text())
        assert isinstance(value, dict)
        return value

    def test_everything_that_needs_no_pytorch(self) -> None:
        wanted = [word for name in PARTS for word in ("--only", name)]
        result = self.check("--minutes", MINUTES, "--out", self.folder / "out", *wanted)
        result.check()
        found = self.results()
        self.assertEqual(found["schema"], "memshim-gpu-check/1")
        self.assertTrue(found["machine"]["simulated"])
        self.assertEqual(found["machine"]["device"], "Simulated GPU")
        self.assertEqual([part["name"] for part in found["parts"]], list(PARTS))
        cases = {case["name"]: case for part in found["parts"] for case in part["cases"]}
        for part in found["parts"]:
            self.assertEqual(part["ended"], "done", result.describe())
            self.assertTrue(part["cases"], part["name"])
        skipped = {name for name, case in cases.items() if case["status"] == "skipped"}
        self.assertLessEqual(skipped, set(LEFT_OUT), result.describe())
        self.assertTrue(all(cases[name]["reason"] for name in skipped))
        self.assertGreaterEqual(
            sum(name.startswith("assumption: ") for name in cases), 55, sorted(cases)
        )
        for name in ("same account: driver linked", "contents after every reuse, memory short"):
            self.assertEqual(cases[name]["status"], "pass")
        figures = found["figures"]
        for call in ("create", "map", "set_access", "unmap", "release"):
            for mebibytes in (2, 16, 32, 128):
                for where in ("device", "host"):
                    self.assertGreater(
                        figures[f"costs/{call} {mebibytes} MiB, {where}"]["value"], 0
                    )
        question = "is access over a hole between mappings given?"
        self.assertEqual(found["answers"][question], {"saw": "yes", "value": None, "unit": ""})
        # What was measured where no kernel runs reaches no target and misses none.
        self.assertEqual({row["status"] for row in found["targets"]}, {"unknown"})
        self.assertEqual(len(found["targets"]), 7)
        page = (self.folder / "out" / "results.md").read_text()
        self.assertIn("**simulated GPU**", page)
        self.assertIn("| doctor |", page)
        self.assertIn(f"| {question} | yes |", page)
        costs = (self.folder / "out" / "costs.csv").read_text()
        self.assertIn("call,bytes,median_ns,p99_ns\n", costs)

    def test_what_differs_fails_by_its_name(self) -> None:
        """A device that says otherwise than the simulated one does."""
        result = self.check(
            *("--minutes", MINUTES, "--out", self.folder / "out", "--only", "semantics"),
            SIMGPU_FAIL="cuMemGetAddressRange_v2@*=1",
        )
        result.check(1)
        (part,) = self.results()["parts"]
        failed = {case["name"] for case in part["cases"] if case["status"] == "fail"}
        self.assertIn("assumption: the range of a mapped address is its mapping", failed)
        self.assertNotIn("assumption: contents move with the chunk", failed)

    def test_time_is_kept_and_what_was_found_is_written(self) -> None:
        start = time.monotonic()
        result = self.check("--minutes", "0.15", "--out", self.folder / "out")
        took_s = time.monotonic() - start
        self.assertIn(result.status, (0, 1), result.describe())
        # Nine seconds, and a machine that is busy with other tests.
        self.assertLess(took_s, 300)
        found = self.results()
        self.assertEqual(len(found["parts"]), 13)
        for part in found["parts"]:
            if part["name"] in WITHOUT_TORCH and part["ended"] == "done":
                self.assertEqual({case["status"] for case in part["cases"]}, {"skipped"})

    def test_stopped(self) -> None:
        out = self.folder / "out"
        command = [str(SCRIPT), "--simulated", "--build", str(BUILD), "--python", "none"]
        process = subprocess.Popen(
            [*command, "--minutes", MINUTES, "--out", str(out), "--only", "semantics"],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "pass" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        (part,) = self.results()["parts"]
        self.assertTrue(part["cases"])

    def test_wrong_calls(self) -> None:
        for arguments, words in (
            (("--minutes", "soon"), "takes minutes"),
            (("--minutes", "0"), "takes minutes"),
            (("--only", "everything"), "there is no part 'everything'"),
            (("--frobnicate",), "--frobnicate"),
            (("--out", "/proc/nowhere"), "--out"),
        ):
            with self.subTest(arguments):
                result = self.check(*arguments).check(2)
                self.assertIn(words, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
        self.assertIn("there is no folder", self.check(build=self.folder / "none").check(2).stderr)
        self.assertIn("has no libmemshim.so", self.check(build=self.folder).check(2).stderr)
        self.assertIn("MEMSHIM_LIMIT is a size", self.check(MEMSHIM_LIMIT="much").check(2).stderr)

    def test_no_device(self) -> None:
        """Where there is no driver, it says so and how to try without one."""
        if Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU here")
        done = subprocess.run(
            [SCRIPT, "--build", BUILD, "--python", "none", "--out", self.folder / "out"],
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--simulated", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


@unittest.skipUnless(shutil.which("ldconfig") or Path("/sbin/ldconfig").exists(), "no ldconfig")
class CarriedBuild(ProcessTest):
    def test_it_runs_from_anywhere(self) -> None:
        folder = self.folder / "carried"
        made = subprocess.run(
            [SCRIPT, "--make-build", folder, "--build", BUILD],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": "/sbin:" + os.environ["PATH"]},
            timeout=300,
            check=False,
        )
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertTrue(list((folder / "lib").glob("libunwind.so.8*")))
        parts = ("--only", "doctor", "--only", "gate", "--minutes", "4")
        where = ("--build", str(folder), "--out", str(self.folder / "out"))
        checked = subprocess.run(
            [str(SCRIPT), "--simulated", "--python", "none", *where, *parts],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
