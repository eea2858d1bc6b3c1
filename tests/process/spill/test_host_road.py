# SPDX-License-Identifier: Apache-2.0
"""Whether a device reaches host memory is tried once, apart, and remembered."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, SHIM, ProcessTest, finish, program, run, start

# The statuses of shim/tables/probe_codes.h.
WORKS, NO_MAPPING, NO_DEVICE, REFUSED, FAULT, WRONG, ERROR = 0, 3, 4, 5, 6, 7, 9
KILLED, HUNG, DIFFERED = 22, 23, 24
MAY = "may use up to"
UNKNOWN = "whether it works could not be found out"


class HostRoad(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.cache = self.folder / "cache"
        self.cache.mkdir()

    def settings(self, **settings: Any) -> dict[str, Any]:
        return {
            "MEMSHIM_OUTPUT": self.output,
            "MEMSHIM_LOG": "info",
            "XDG_CACHE_HOME": self.cache,
            **settings,
        }

    def start(self, *arguments: str, **settings: Any) -> str:
        """A program that would notice a child; what memshim says."""
        result = run(
            [program("probe_job"), *arguments], shim=True, **self.settings(**settings)
        ).check()
        self.assertEqual(result.stdout, "signals 0, No child processes\n")
        return result.stderr

    def files(self) -> list[Path]:
        return [
            path
            for path in sorted(self.cache.glob("memshim/host-*"))
            if path.suffix not in (".lock", ".new")
        ]

    def remembered(self) -> list[int]:
        """The status in each answer's file."""
        return [int(path.read_text().split()[2]) for path in self.files()]

    def with_command(self, script: str) -> Path:
        """A copy of the library, with this shell script in the place of the memshim command."""
        beside = self.folder / "beside"
        beside.mkdir(exist_ok=True)
        command = beside / "memshim"
        command.write_text(
            f'#!/bin/sh\n[ $1 = finish ] && exec {CLI} "$@"\necho >>{self.folder}/tries\n{script}\n'
        )
        command.chmod(0o755)
        return Path(shutil.copy(SHIM, beside))

    def tries(self) -> int:
        path = self.folder / "tries"
        count = len(path.read_text()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count

    def test_it_is_tried_and_remembered(self) -> None:
        library = self.with_command(f'exec {CLI} "$@"')
        self.assertIn(MAY, self.start(LD_PRELOAD=library))
        self.assertEqual((self.remembered(), self.tries()), ([WORKS], 1))
        self.assertIn(MAY, self.start(LD_PRELOAD=library))
        self.assertEqual(self.tries(), 0)

    def test_a_program_that_ignores_its_children(self) -> None:
        """Theirs are reaped by the kernel; the test's process is waited for all the same."""
        library = self.with_command(f'exec {CLI} "$@"')
        self.assertIn(MAY, self.start("ignore", LD_PRELOAD=library))
        self.assertEqual((self.remembered(), self.tries()), ([WORKS], 1))

    def test_a_program_that_waits_for_every_child(self) -> None:
        """It may take the status of memshim's child (waitpid, __WALL), but not the answer."""
        for _ in range(5):
            self.assertIn(MAY, self.start("reap"))
            shutil.rmtree(self.cache / "memshim")

    def test_the_test_is_never_tested(self) -> None:
        """Its process would begin another one, and so on, without end."""
        library = self.with_command(f"env >{self.folder}/environment; exit {NO_DEVICE}")
        renamed = library.rename(library.with_name("other.so"))
        self.assertIn(UNKNOWN, self.start(LD_PRELOAD=renamed))
        given = (self.folder / "environment").read_text().splitlines()
        self.assertIn("MEMSHIM_PROBING=1", given)
        self.assertNotIn(str(renamed), "".join(given))
        self.tries()
        # Preloaded there all the same (/etc/ld.so.preload), it does nothing.
        said = self.start(LD_PRELOAD=renamed, MEMSHIM_PROBING="1")
        self.assertEqual((said, self.tries()), ("", 0))

    def test_another_device_or_driver_is_tried_anew(self) -> None:
        self.start()
        for settings in (
            {"SIMGPU_DRIVER_VERSION": 12080},
            {"SIMGPU_CONTENTS": "none"},
            {"SIMGPU_FAIL": "cuMemsetD32@*=801"},
        ):
            with self.subTest(settings):
                before = len(self.files())
                self.start(**settings)
                self.assertEqual(len(self.files()), before + 1)
        self.assertIn(MAY, self.start())

    def test_whoever_could_not_find_out_remembers_no_no(self) -> None:
        endings = {
            "kill -INT $$": "was killed",
            "kill -KILL $$": "was killed",
            "kill -TERM $$": "was killed",
            "kill -ALRM $$": "did not end in time",
            "exit 127": "in a way that is not known",
            f"exit {NO_DEVICE}": "no context on it",
        }
        for script, why in endings.items():
            with self.subTest(script):
                library = self.with_command(script)
                said = self.start(LD_PRELOAD=library, MEMSHIM_LOG="warn")
                self.assertIn(UNKNOWN, said)
                self.assertIn(why, said)
                self.assertNotIn("cannot use host memory", said)
                self.assertEqual(self.tries(), 1)
                # The next process tries again, and finds out.
                self.with_command(f'exec {CLI} "$@"')
                self.assertIn(MAY, self.start(LD_PRELOAD=library))
                self.assertEqual((self.remembered(), self.tries()), ([WORKS], 1))
                shutil.rmtree(self.cache / "memshim")

    def test_one_error_of_the_driver_is_no_no(self) -> None:
        for failing in ("cuMemsetD32@1=999", "cuMemcpyDtoD@2=719", "cuMemAlloc@1=2"):
            with self.subTest(failing):
                said = self.start(SIMGPU_FAIL=failing, MEMSHIM_LOG="warn")
                self.assertIn(UNKNOWN, said)
        self.assertIn(MAY, self.start())

    def test_a_no_must_come_twice(self) -> None:
        marker = self.folder / "once"
        library = self.with_command(
            f"[ -e {marker} ] && exit {WORKS}; touch {marker}; exit {FAULT}"
        )
        self.assertIn("two tests of it in a row differed", self.start(LD_PRELOAD=library))
        self.assertEqual(self.tries(), 2)
        self.assertIn(MAY, self.start(LD_PRELOAD=library))

    def test_a_no_is_said_each_time_and_has_an_end(self) -> None:
        library = self.with_command(f"exit {FAULT}")
        for again in (2, 0):
            said = self.start(LD_PRELOAD=library, MEMSHIM_LOG="warn")
            self.assertEqual(said.count("the device's access to mapped host memory faults"), 1)
            self.assertEqual(self.tries(), again)
        (answer,) = self.files()
        words = answer.read_text().split()
        words[3] = str(time.time_ns() - 86401 * 10**9)
        answer.write_text(" ".join(words) + "\n")
        self.with_command(f"exit {WORKS}")
        self.assertIn(MAY, self.start(LD_PRELOAD=library))
        self.assertEqual(self.remembered(), [WORKS])

    def asks(self, rank: subprocess.Popen[str]) -> bool:
        """Whether it has come to the lock of the answer; or has ended."""
        for file in Path(f"/proc/{rank.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # it is closed at any moment
                if file.readlink().match("memshim/*.lock"):
                    return True
        return rank.poll() is not None

    def test_ranks_that_start_together_try_once(self) -> None:
        for script, says in ((f"exit {WORKS}", MAY), ("kill -KILL $$", UNKNOWN)):
            with self.subTest(script):
                all_ask = self.folder / "all-ask"
                wait = f"while [ -d {self.folder} ] && ! [ -e {all_ask} ]; do sleep 0.02; done"
                library = self.with_command(f"{wait}\n{script}")
                ranks = [
                    start([program("probe_job")], shim=True, **self.settings(LD_PRELOAD=library))
                    for _ in range(4)
                ]
                while not all(self.asks(rank) for rank in ranks):
                    time.sleep(0.02)
                all_ask.touch()
                for rank in ranks:
                    self.assertIn(says, finish(rank).check().stderr)
                self.assertEqual(self.tries(), 1)
                self.assertEqual(len(self.files()), 1)
                self.assertEqual(list(self.cache.glob("memshim/*.new")), [])
                shutil.rmtree(self.cache / "memshim")
                all_ask.unlink()

    def test_a_file_that_cannot_be_trusted(self) -> None:
        self.start()
        (answer,) = self.files()
        target = self.folder / "elsewhere"
        for what, says in (
            ("", "damaged"),
            ("memshim-probe 1 5", "damaged"),
            (f"memshim-probe 1 {FAULT} 1 and more\n", "damaged"),
            (f"{REFUSED}", "damaged"),
            ("\0" * 4096, "damaged"),
            (None, "a symbolic link"),
        ):
            with self.subTest(what):
                answer.unlink()
                target.write_text(f"memshim-probe 1 {FAULT} {time.time_ns()}\n")
                if what is None:
                    answer.symlink_to(target)
                else:
                    answer.write_text(what)
                said = self.start(MEMSHIM_LOG="info")
                self.assertIn(f"is {says}", said)
                self.assertIn(MAY, said)
                self.assertFalse(answer.is_symlink())
                self.assertEqual(self.remembered(), [WORKS])
                self.assertIn(str(FAULT), target.read_text())

    def test_a_folder_that_cannot_be_trusted(self) -> None:
        folder = self.cache / "memshim"
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        folder.symlink_to(elsewhere)
        self.assertIn("it is a symbolic link", self.start())
        self.assertEqual(list(elsewhere.iterdir()), [])
        folder.unlink()
        folder.mkdir()
        folder.chmod(0o777)
        self.assertIn("other users may write to it", self.start())
        self.assertEqual(list(folder.iterdir()), [])
        if os.getuid() == 0:
            folder.chmod(0o700)
            os.chown(folder, 12345, 12345)
            self.assertIn("it belongs to another user", self.start())
            self.assertEqual(list(folder.iterdir()), [])

    def test_a_simulated_device_without_contents_answers_truly(self) -> None:
        self.assertIn(MAY, self.start(SIMGPU_CONTENTS="none"))
        self.assertEqual(self.remembered(), [WORKS])

    def test_not_for_one_who_only_asks_what_there_is(self) -> None:
        self.assertEqual(self.start("ask"), "")
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_a_device_that_fails_at_it(self) -> None:
        # These calls are made by the trial alone.
        for failing, status, why in (
            ("cuMemsetD32@1=801", REFUSED, "but refuses it"),
            ("cuMemcpyDtoD@2=700", FAULT, "faults"),
            ("cuMemMap@1=801", REFUSED, "but refuses it"),
        ):
            with self.subTest(failing):
                shutil.rmtree(self.cache / "memshim", ignore_errors=True)
                stderr = self.start(SIMGPU_FAIL=failing, MEMSHIM_POOL="on", MEMSHIM_LOG="warn")
                self.assertIn(why, stderr)
                self.assertEqual(self.remembered(), [status])

    def test_a_driver_that_offers_none(self) -> None:
        self.assertIn("its driver offers none", self.start(SIMGPU_HOST_NUMA=0))
        self.assertEqual(self.remembered(), [])

    def test_a_library_without_its_command(self) -> None:
        alone = Path(shutil.copy(SHIM, self.folder))
        self.assertIn("the memshim command is not beside", self.start(LD_PRELOAD=alone))

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
        self.assertEqual(run([CLI, "probe-host", "00" * 16]).status, NO_DEVICE)
        self.assertEqual(run([CLI, "probe-host"]).status, 2)
        self.assertNotIn("probe-", run([CLI, "help"]).check().stdout)

    def test_the_other_question(self) -> None:
        def ask(**settings: Any) -> int:
            return run([CLI, "probe-mapping"], **settings).status

        self.assertEqual(ask(), WORKS)
        self.assertEqual(ask(SIMGPU_NO_VMM=1), NO_MAPPING)
        self.assertEqual(ask(LD_LIBRARY_PATH="/none"), NO_DEVICE)
        self.assertEqual(ask(SIMGPU_FAIL="cuDeviceGetAttribute@*=999"), ERROR)

    def doctor(self, *arguments: str, **settings: Any) -> list[str]:
        """What doctor says of what is remembered."""
        result = run([CLI, "doctor", "--json", *arguments], XDG_CACHE_HOME=self.cache, **settings)
        findings = json.loads(result.check().stdout)["findings"]
        return [f["says"] for f in findings if f["topic"] == "remembered"]

    def test_doctor_names_a_no_and_repairs_it(self) -> None:
        library = self.with_command(f"exit {FAULT}")
        self.assertEqual(self.doctor(), [])
        self.start(LD_PRELOAD=library)
        self.assertEqual(self.remembered(), [FAULT])
        # The device fails doctor's trial too: the answer stays, and is named.
        (says,) = self.doctor(SIMGPU_FAIL="cuMemcpyDtoD@2=700")
        self.assertIn("mapped host memory faults; it is tested again after a day", says)
        self.assertEqual(self.remembered(), [FAULT])
        # It works: the answer goes.
        (says,) = self.doctor()
        self.assertIn("was outdated and has been forgotten", says)
        self.assertEqual(self.remembered(), [])
        self.assertEqual(self.doctor(), [])

    def test_doctor_repairs_what_is_damaged_and_forgets_on_request(self) -> None:
        self.start()
        (answer,) = self.files()
        answer.write_text("3")
        (says,) = self.doctor()
        self.assertIn("was damaged and has been removed", says)
        self.assertFalse(answer.exists())
        self.start()
        self.assertEqual(self.doctor(), [])
        other = self.cache / "memshim" / "mine"
        other.touch()
        self.assertEqual(self.doctor("--forget"), ["1 result of earlier tests forgotten"])
        self.assertEqual(list((self.cache / "memshim").iterdir()), [other])
        (self.cache / "memshim").chmod(0o777)
        self.assertIn("other users may write to it", self.doctor()[0])


if __name__ == "__main__":
    unittest.main()
