# SPDX-License-Identifier: Apache-2.0
"""A process's life around the device: forks, execs, threads, libraries, and programs that have no
business with a device at all."""

from __future__ import annotations

import os
import signal
import sys
import unittest
from typing import Any

from machine import CLI, ProcessTest, process_folders, program, remove_output, report_of, run


class Life(ProcessTest):
    def scenario(self, name: str, traces: int, status: int = 0, **settings: Any) -> None:
        command = (program("life_job"), name)
        alone = run(command, **settings).check(status)
        under = self.run_under_shim(*command, **settings).check(status)
        self.assertEqual(alone.stdout, under.stdout)
        folders = process_folders(self.output)
        self.assertEqual(len(folders), traces, under.describe())

    def test_plain(self) -> None:
        self.scenario("plain", 1)

    def test_only_asking_about_devices_leaves_nothing(self) -> None:
        self.scenario("idle", 0)
        self.assertFalse(self.output.exists())

    def test_fork_children_are_silent(self) -> None:
        self.scenario("fork-after", 1)

    def test_child_forked_before_the_device_has_a_trace_of_its_own(self) -> None:
        self.scenario("fork-before", 2)

    def test_fork_while_threads_allocate(self) -> None:
        self.scenario("fork-busy", 1)

    def test_exec_starts_a_trace_of_its_own(self) -> None:
        self.scenario("exec", 2)

    def test_vfork_and_exec(self) -> None:
        self.scenario("vfork", 2)

    def test_a_wrong_option_is_named_once(self) -> None:
        """By one of the processes that have it from each other; the trace of each knows of it."""
        wrong = ("MEMSHIM_FRACTION=95 is not usable", "MEMSHIM_FRACTIONS is not an option")
        for scenario in ("exec", "vfork"):
            with self.subTest(scenario):
                remove_output(self.output)
                said = self.run_under_shim(
                    *(program("life_job"), scenario), MEMSHIM_FRACTION="95", MEMSHIM_FRACTIONS="1"
                ).check()
                reports = [report_of(folder) for folder in process_folders(self.output)]
                self.assertEqual(len(reports), 2)
                for sentence in wrong:
                    self.assertEqual(said.stderr.count(sentence), 1, said.describe())
                    for report in reports:
                        self.assertIn(sentence, " ".join(report["notes"]))

    def test_libraries_opened_and_closed(self) -> None:
        self.scenario("libraries", 1)

    def test_free_in_an_exit_handler(self) -> None:
        self.scenario("exit-handler", 1)

    def test_exit_in_a_thread(self) -> None:
        self.scenario("exit-in-thread", 1, 9)
        self.assertEqual(report_of(process_folders(self.output)[0])["process"]["exit"], 9)

    def test_abort(self) -> None:
        self.scenario("abort", 1, -signal.SIGABRT)

    def ends(self) -> list[tuple[str, int | None]]:
        """How each process ended, once memshim report has read what they left."""
        folders = process_folders(self.output)
        run([CLI, "report", *folders]).check()
        processes = [report_of(folder)["process"] for folder in folders]
        return [(process["state"], process["exit"]) for process in processes]

    def test_quick_exit(self) -> None:
        for name in ("quick", "quick-standard", "quick-daemon"):
            with self.subTest(name):
                remove_output(self.output)
                self.scenario(name, 1, 4)
                self.assertEqual(self.ends(), [("exited", 4)])
                text = (process_folders(self.output)[0] / "report.txt").read_text()
                self.assertIn("  exit 4, its trace left open\n", text)

    def test_quick_exit_where_files_may_not_be_written(self) -> None:
        """The status is what counts: no signal ends the process instead."""
        self.scenario("quick-limited", 1, 4)

    def test_quick_exits_of_children_are_not_the_parents(self) -> None:
        self.scenario("children-leave", 1, -signal.SIGKILL)
        self.assertEqual(self.ends(), [("killed", None)])

    def test_quick_exit_in_a_handler(self) -> None:
        self.scenario("quick-in-handler", 10)
        self.assertEqual(self.ends(), [("exited", 7)] * 10)

    def test_exit_in_a_handler(self) -> None:
        """What the interrupted call holds is never let go: the process must end all the same."""
        self.scenario("exit-in-handler", 10)
        self.assertLessEqual(set(self.ends()), {("ended", 0), ("exited", 0)})

    def test_fork_in_a_handler(self) -> None:
        self.scenario("fork-in-handler", 1)

    def test_cancelled_threads(self) -> None:
        self.scenario("cancel", 1)

    def test_all_keys_of_threads_taken(self) -> None:
        self.scenario("no-keys", 1)

    def test_environment_cleared(self) -> None:
        """With it went the output folder: what is written lies where the program started."""
        command = (program("life_job"), "no-environment")
        self.run_under_shim(*command, cwd=self.folder).check()
        self.assertEqual(len(process_folders(self.folder / "memshim-out")), 1)

    def test_device_used_before_main(self) -> None:
        """By a library's constructor, which runs before memshim's."""
        job = program("constructor_job")
        under = self.run_under_shim(job).check()
        self.assertEqual(under.stdout, "42\n")
        self.assertIn("memshim: version", under.stderr)
        report = report_of(process_folders(self.output)[0])
        self.assertEqual(report["devices"][0]["allocations"], 1)
        remove_output(self.output)
        off = self.run_under_shim(job, MEMSHIM="off").check()
        self.assertEqual((off.stdout, off.stderr), ("42\n", ""))
        self.assertFalse(self.output.exists())

    def test_started_without_stderr(self) -> None:
        """A file of the program's has its number: no line of ours goes there."""
        self.scenario("file-as-stderr", 1, preexec=lambda: os.close(2), cwd=self.folder)

    def test_stderr_closed_or_redirected(self) -> None:
        """Lines follow a redirection; a file for reading and writing is the program's data."""
        self.scenario("stderr-closed", 1, cwd=self.folder)
        command = (program("life_job"), "stderr-redirected")
        self.run_under_shim(*command, cwd=self.folder).check()
        self.assertIn("memshim: version", (self.folder / "log").read_text())

    def test_standard_streams_closed(self) -> None:
        """As by daemons: no descriptor of memshim's or libunwind's takes their place."""
        self.scenario("standard-streams-closed", 1)

    def test_nobody_reads_stderr(self) -> None:
        """The line's write meets a pipe without a reader, which ends a process by a signal."""
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)

        def onto_the_pipe() -> None:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.dup2(writer, 2)

        self.scenario("plain", 1, preexec=onto_the_pipe)


class Bystanders(ProcessTest):
    """Programs without a device give the same and leave nothing, not a byte on stderr."""

    def check_bystander(self, *command: str) -> None:
        alone = run(command, cwd=self.folder)
        under = run(command, shim=True, cwd=self.folder)
        self.assertEqual(
            (alone.status, alone.stdout, alone.stderr), (under.status, under.stdout, under.stderr)
        )
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ls(self) -> None:
        self.check_bystander("ls", "-la", "/usr")

    def test_bash(self) -> None:
        self.check_bystander("bash", "-c", "for i in 1 2 3; do echo $i | cat; done; exit 7")

    def test_python(self) -> None:
        source = "import json, ssl, ctypes, threading, subprocess; print(json.dumps({'a': 1}))"
        self.check_bystander(sys.executable, "-c", source)

    def test_python_pool(self) -> None:
        source = (
            "from concurrent.futures import ProcessPoolExecutor as P\n"
            "with P(2) as pool: print(sum(pool.map(abs, range(-50, 50))))"
        )
        self.check_bystander(sys.executable, "-c", source)

    def test_ctypes_finds_what_it_found(self) -> None:
        source = (
            "import ctypes\n"
            "c = ctypes.CDLL(None)\n"
            "print(hasattr(c, 'printf'), hasattr(c, 'cuMemAllocNever'))\n"
            "m = ctypes.CDLL('libm.so.6')\n"
            "m.cos.restype = ctypes.c_double\n"
            "print(m.cos(ctypes.c_double(0)))\n"
        )
        self.check_bystander(sys.executable, "-c", source)

    def test_bad_options_say_nothing_there(self) -> None:
        alone = run(["ls", "/usr"])
        under = run(["ls", "/usr"], shim=True, MEMSHIM_FRACTION="7", MEMSHIM_NONSENSE="1")
        self.assertEqual((alone.stdout, ""), (under.stdout, under.stderr))


if __name__ == "__main__":
    unittest.main()
