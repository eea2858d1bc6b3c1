# SPDX-License-Identifier: Apache-2.0
"""The process that makes the report of one that ended: what the program, and who started it, may
notice of it, which is nothing but the report."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    SHIM,
    ProcessTest,
    Result,
    finish,
    process_folders,
    program,
    remove_output,
    run,
    start,
)

STATUS = 5  # end_job's
PATIENCE_S = 60.0
FILES = {"report.txt", "report.json", "report.html", "timeline.json", "trace.mshm"}
JOB = program("end_job")


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


class ReaderProcess(ProcessTest):
    def job(self, name: str = "plain", **settings: Any) -> Result:
        return self.run_under_shim(JOB, name, **settings).check(STATUS)

    def with_command(self, script: str) -> Path:
        """A copy of the library, with this script in the place of the memshim command."""
        place = self.folder / "place"
        place.mkdir(exist_ok=True)
        command = place / "memshim"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        return Path(shutil.copy(SHIM, place))

    def held(self) -> Path:
        """With a command that begins no report before `let_go` (or the end of the test)."""
        held = f"[ -d {self.folder} ] && ! [ -e {self.folder}/go ]"
        wait = f"touch {self.folder}/begun; while {held}; do sleep 0.02; done"
        return self.with_command(f'if [ $1 = finish ]; then {wait}; fi; exec {CLI} "$@"')

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def trace_folder(self) -> Path:
        folders = process_folders(self.output)
        self.assertEqual(len(folders), 1)
        return folders[0]

    def expect_report(self, folder: Path) -> None:
        self.assertTrue(wait_until((folder / "report.txt").exists), list(folder.iterdir()))
        self.assertTrue(wait_until(lambda: {path.name for path in folder.iterdir()} == FILES))

    # --- the report, and the wait for it ---

    def test_default(self) -> None:
        """The preload alone leaves all the files, and nothing else."""
        result = run([JOB, "plain"], shim=True, MEMSHIM_OUTPUT=self.output, MEMSHIM_REPORT_WAIT="")
        self.assertIn("report.txt", result.check(STATUS).stderr)
        folder = self.trace_folder()
        self.expect_report(folder)
        self.assertIn("exit 5", (folder / "report.txt").read_text())
        self.assertTrue(wait_until(lambda: list(folder.parent.iterdir()) == [folder]))

    def test_all_files_stand_at_the_end_of_the_wait(self) -> None:
        self.assertIn("memshim: report: ", self.job().stderr)
        self.assertEqual({path.name for path in self.trace_folder().iterdir()}, FILES)

    def test_the_wait_has_an_end(self) -> None:
        result = self.job(LD_PRELOAD=self.held(), MEMSHIM_REPORT_WAIT="")
        self.assertIn("is being made by another process", result.stderr)
        self.assertFalse((self.trace_folder() / "report.txt").exists())
        self.let_go()
        self.expect_report(self.trace_folder())

    def test_no_wait(self) -> None:
        self.job(LD_PRELOAD=self.held(), MEMSHIM_REPORT_WAIT="0")
        self.assertFalse((self.trace_folder() / "report.txt").exists())
        self.let_go()
        self.expect_report(self.trace_folder())

    def test_a_pipe_behind_the_job(self) -> None:
        """Whoever reads what the job writes reads its end when the job ends."""
        settings: dict[str, Any] = {"LD_PRELOAD": self.held(), "MEMSHIM_REPORT_WAIT": "0"}
        self.job(**settings)  # captures both
        pipes = f"{JOB} plain | cat; {JOB} plain 2>&1 | tee"
        self.run_under_shim("bash", "-c", pipes, **settings).check()
        folders = process_folders(self.output)
        self.assertEqual(len(folders), 3)
        self.let_go()
        for folder in folders:
            self.expect_report(folder)

    # --- what the program itself may notice ---

    def test_no_child_and_no_signal(self) -> None:
        """Of a program that reaps whatever ends, and is told of each end."""
        for script in ("exit 1", f'exec {CLI} "$@"'):
            result = self.job("reaping", LD_PRELOAD=self.with_command(script))
            self.assertEqual(result.stdout, "")

    def test_signals_ignored_and_blocked(self) -> None:
        library = self.with_command(
            f'grep Sig /proc/self/status >{self.folder}/signals; exec {CLI} "$@"'
        )
        self.job("ignoring", LD_PRELOAD=library)
        self.expect_report(self.trace_folder())
        signals = dict(line.split() for line in (self.folder / "signals").read_text().splitlines())
        self.assertEqual((int(signals["SigBlk:"], 16), int(signals["SigIgn:"], 16)), (0, 0))

    def test_what_it_is_given(self) -> None:
        library = self.with_command(
            f"cd {self.folder}; env >environment; cut -d' ' -f1,6 </proc/$$/stat >session\n"
            f"(for fd in /proc/$$/fd/*; do echo ${{fd##*/}} $(readlink $fd); done) >files\n"
            f'exec {CLI} "$@"'
        )
        self.job(
            LD_PRELOAD=f"{library}:/lib/x86_64-linux-gnu/libm.so.6",
            LD_AUDIT="",
            preexec=lambda: os.dup2(2, 77) and None,
        )
        names = re.findall(r"^(\w+)=", (self.folder / "environment").read_text(), re.MULTILINE)
        self.assertIn("PATH", names)
        self.assertFalse({"LD_PRELOAD", "LD_AUDIT"} & set(names))
        self.assertIn("LD_LIBRARY_PATH", names)  # where libdw may lie alone
        pid, session = (self.folder / "session").read_text().split()
        self.assertEqual(pid, session)
        files = dict(
            line.split(maxsplit=1) for line in (self.folder / "files").read_text().splitlines()
        )
        self.assertEqual((files["0"], files["1"]), ("/dev/null", "/dev/null"))
        self.assertTrue(files["2"].endswith("/report.log"), files)
        self.assertTrue(files["3"].startswith("pipe:"), files)
        own = {number for number, path in files.items() if path.endswith("place/memshim")}
        self.assertEqual(set(files) - own, {"0", "1", "2", "3"})

    def test_restart_at_the_same_port(self) -> None:
        result = self.job("listening", LD_PRELOAD=self.held(), MEMSHIM_REPORT_WAIT="0")
        with socket.socket() as again:
            again.bind(("127.0.0.1", int(result.stdout)))
            again.listen()
        self.let_go()
        self.expect_report(self.trace_folder())

    def test_modest(self) -> None:
        """Nice, first in line where memory runs out, of bounded memory."""
        with self.reports_held("held"):
            self.job(MEMSHIM_RUN_ID="held", MEMSHIM_REPORT_WAIT="0.2")
            folder = self.trace_folder()

            def found() -> list[Path]:
                wanted = f"finish\0{self.version()}\0{folder}\0".encode()
                return [
                    p for p in Path("/proc").glob("[0-9]*") if self.command_of(p).endswith(wanted)
                ]

            self.assertTrue(wait_until(found))
            process = found()[0]
            self.assertTrue(
                wait_until(lambda: (process / "oom_score_adj").read_text().strip() == "1000")
            )
            self.assertTrue(
                wait_until(lambda: os.getpriority(os.PRIO_PROCESS, int(process.name)) > 0)
            )
            limits = (process / "limits").read_text()
            self.assertRegex(limits, r"Max data size +4294967296 ")
            self.assertEqual((process / "cwd").readlink(), Path("/"))

    @staticmethod
    def command_of(process: Path) -> bytes:
        with contextlib.suppress(OSError):
            return (process / "cmdline").read_bytes()
        return b""

    @staticmethod
    def version() -> str:
        return run([CLI, "version"]).stdout.split()[1]

    def test_library_named_from_the_folder_of_the_start(self) -> None:
        """The program is in another folder when memshim first needs its command."""
        result = run(
            [program("life_job"), "elsewhere"],
            shim=True,
            cwd=SHIM.parent,
            LD_PRELOAD=f"./{SHIM.name}",
            MEMSHIM_OUTPUT=self.output,
        ).check()
        self.assertNotIn("not beside the library", result.stderr)
        self.expect_report(self.trace_folder())

    # --- where there is trouble ---

    def test_no_command(self) -> None:
        library = self.with_command("exit 0")
        (library.parent / "memshim").chmod(0o644)
        said = self.job(LD_PRELOAD=library).stderr
        self.assertIn("the memshim command is not beside the library", said)
        self.completed_by_hand(said)

    def test_command_that_cannot_run(self) -> None:
        library = self.with_command("exit 0")
        (library.parent / "memshim").write_bytes(b"\x7fELF nonsense")
        said = self.job(LD_PRELOAD=library).stderr
        self.assertIn("no process could be started: Exec format error", said)
        self.completed_by_hand(said)

    def test_no_permission_to_start_anything(self) -> None:
        result = self.job("no-processes")
        if result.stdout:
            self.skipTest("no seccomp here")
        self.assertIn("no process could be started: Resource temporarily", result.stderr)
        self.completed_by_hand(result.stderr)

    def test_reader_that_dies(self) -> None:
        for script in ("kill -SEGV $$", "kill -KILL $$", "exit 0"):
            with self.subTest(script):
                remove_output(self.output)
                said = self.job(LD_PRELOAD=self.with_command(script)).stderr
                self.assertIn("the process that makes it ended early", said)
                self.completed_by_hand(said)

    def test_command_of_another_version(self) -> None:
        library = self.with_command(f'shift; exec {CLI} finish 9.9.9 "$2"')
        said = self.job(LD_PRELOAD=library).stderr
        self.assertIn("the library 9.9.9", said)
        log = self.trace_folder() / "report.log"
        self.assertIn("9.9.9", log.read_text())

    def completed_by_hand(self, said: str) -> None:
        command = re.search(r"make it with: memshim (report .*)", said)
        assert command, said
        run([CLI, *command[1].split()]).check()
        self.assertTrue((self.trace_folder() / "report.txt").exists())

    def test_noexec_mount(self) -> None:
        place = self.folder / "place"
        (place / "lib").mkdir(parents=True)
        (place / "bin").mkdir()
        shutil.copy(SHIM, place / "lib")
        script = (
            f"mount -t tmpfs -o noexec none {place}/bin && cp {CLI} {place}/bin/memshim && "
            f"exec env LD_PRELOAD={place}/lib/{SHIM.name} {JOB} plain"
        )
        result = self.in_namespace("--mount", script)
        self.assertIn("the memshim command is not beside the library", result.check(STATUS).stderr)
        self.completed_by_hand(result.stderr)

    def in_namespace(self, kind: str, script: str, **settings: Any) -> Result:
        if run(["unshare", "--user", "--map-root-user", "--fork", kind, "true"]).status != 0:
            self.skipTest(f"unshare {kind} is not permitted")
        command = ["unshare", "--user", "--map-root-user", "--fork", kind, "bash", "-c", script]
        return run(command, MEMSHIM_OUTPUT=self.output, **settings)

    # --- who ends with whom ---

    def test_first_process_of_a_container(self) -> None:
        """The kernel ends all others with it: what was not made in time is made later."""
        script = f"exec env LD_PRELOAD={SHIM} {JOB} plain"
        result = self.in_namespace("--pid", script).check(STATUS)
        self.assertIn("memshim: report: ", result.stderr)
        self.assertTrue((self.trace_folder() / "report.txt").exists())
        remove_output(self.output)
        script = f"exec env LD_PRELOAD={self.held()} {JOB} reaping"
        result = self.in_namespace("--pid", script, MEMSHIM_REPORT_WAIT="0.2").check(STATUS)
        folder = self.trace_folder()
        run([CLI, "report", folder]).check()
        self.assertTrue((folder / "report.txt").exists())

    def test_interrupt_from_the_terminal(self) -> None:
        """It ends the job that waits, and not the process that makes the report."""
        with self.running(
            JOB, "plain", LD_PRELOAD=self.held(), MEMSHIM_OUTPUT=self.output
        ) as process:
            self.assertTrue(wait_until((self.folder / "begun").exists))
            os.killpg(process.pid, signal.SIGINT)
            self.assertEqual(finish(process).status, -signal.SIGINT)
        self.let_go()
        self.expect_report(self.trace_folder())

    def test_little_memory(self) -> None:
        group = memory_group()
        if group is None:
            self.skipTest("no control group of memory can be made")
        self.addCleanup(lambda: wait_until(lambda: removed(group)))

        def join() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        self.job(preexec=join, SIMGPU_CONTENTS="none")
        self.assertTrue((self.trace_folder() / "trace.mshm").exists())

    # --- several processes ---

    @contextlib.contextmanager
    def reports_held(self, run_id: str) -> Iterator[None]:
        """As if another process of the run, on this host, made reports."""
        folder = self.output / run_id
        folder.mkdir(parents=True)
        path = folder / f".report-{socket.gethostname()[:64]}.lock"
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
            path.unlink()

    def test_one_reads_at_a_time(self) -> None:
        with self.reports_held("one"):
            result = self.job(MEMSHIM_RUN_ID="one", MEMSHIM_REPORT_WAIT="0.5")
            self.assertIn("is being made by another process", result.stderr)
            time.sleep(0.5)
            self.assertFalse((self.trace_folder() / "report.txt").exists())
        self.expect_report(self.trace_folder())

    def test_eight_ranks_end_together(self) -> None:
        settings: dict[str, Any] = {"MEMSHIM_RUN_ID": "eight", "MEMSHIM_OUTPUT": self.output}
        ranks = [
            start([JOB, "plain"], shim=True, RANK=rank, WORLD_SIZE=8, **settings)
            for rank in range(8)
        ]
        for rank in ranks:
            self.assertIn("memshim: report: ", finish(rank).check(STATUS).stderr)
        folders = process_folders(self.output)
        self.assertEqual(len(folders), 8)
        for folder in folders:
            self.expect_report(folder)
        run_folder = folders[0].parent
        self.assertTrue(wait_until(lambda: sorted(run_folder.iterdir()) == folders))

    def test_next_to_end_reports_who_was_killed(self) -> None:
        self.run_under_shim(program("life_job"), "quick", MEMSHIM_RUN_ID="both").check(4)
        killed = self.trace_folder()
        self.assertFalse((killed / "report.txt").exists())
        self.job(MEMSHIM_RUN_ID="both")
        self.expect_report(killed)

    def test_report_makes_those_of_the_run(self) -> None:
        """No process knows when the last one of its run has ended. A part of a run has no page."""
        for _ in range(3):
            self.job(MEMSHIM_RUN_ID="three")
        folders = process_folders(self.output)
        run_folder = self.output / "three"
        part = run([CLI, "report", *folders[:2]]).check().stdout
        self.assertNotIn("report.html", part)
        opened = run([CLI, "report", "--open", *folders[:2]], BROWSER="true").check(1)
        self.assertIn("these are not all processes of one run", opened.stderr)
        self.assertEqual(sorted(run_folder.iterdir()), folders)
        told = run([CLI, "report", run_folder, self.output / "latest"]).check().stdout
        self.assertIn("  3 processes on 1 host", told)
        self.assertIn("report.html, beside them, is the page of all", told)
        files = {path for path in run_folder.iterdir() if path.is_file()}
        self.assertEqual({path.name for path in files}, FILES - {"timeline.json", "trace.mshm"})
        self.assertEqual((run_folder / "report.txt").read_text(), told)

    def test_run_makes_the_reports(self) -> None:
        """And then no process of the command starts one."""
        library = self.with_command(f'echo "$@" >>{self.folder}/called; exec {CLI} "$@"')
        command = library.parent / "own"
        shutil.copy(CLI, command)
        said = run([command, "run", "--output", self.output, "--", JOB, "plain"]).check(STATUS)
        self.expect_report(self.trace_folder())
        self.assertIn("memshim run makes the reports", said.stderr)
        called = self.folder / "called"
        self.assertNotIn("finish", called.read_text() if called.exists() else "")

    def test_run_that_is_gone_makes_none(self) -> None:
        """A process that outlives it, or is on another host, looks after its own."""
        for supervisor in (f"{gone()} {socket.gethostname()}", f"{os.getpid()} elsewhere", "x"):
            with self.subTest(supervisor):
                remove_output(self.output)
                self.job(_MEMSHIM_SUPERVISOR=supervisor)
                self.expect_report(self.trace_folder())


def gone() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def memory_group() -> Path | None:
    """A new control group that has 64 MiB."""
    for root, file in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"memshim-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(64 << 20))
        except OSError:
            removed(group)
            continue
        return group
    return None


def removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


if __name__ == "__main__":
    unittest.main()
