# SPDX-License-Identifier: Apache-2.0
"""memshim run: what it sets, what it passes through, and what it says about a wrong call."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from machine import (
    BUILD,
    CLI,
    INSTALLED,
    ProcessTest,
    Result,
    finish,
    process_folders,
    program,
    run,
    run_folders,
    run_of_three,
)

SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "ALRM")
SAY_OPTIONS = "echo $MEMSHIM_LOG $MEMSHIM_OUTPUT $MEMSHIM_FRACTION"
PRINT_SIGNALS = """
import os, signal, sys, time
names = sys.argv[1:]
def note(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGTERM:
        sys.exit(7)
for name in names:
    signal.signal(getattr(signal, "SIG" + name), note)
os.write(1, b"ready\\n")
while True:
    time.sleep(1)
"""


class Run(ProcessTest):
    def memshim(self, *arguments: str | Path, **settings: Any) -> Result:
        return run([CLI, "run", "--output", self.output, *arguments], **settings)

    def shell(self, script: str, *arguments: str, **settings: Any) -> Result:
        return self.memshim(*arguments, "--", "bash", "-c", script, **settings)

    def test_environment(self) -> None:
        result = self.shell(
            "echo $LD_PRELOAD; echo $MEMSHIM_FRACTION $MEMSHIM_LIMIT $MEMSHIM_LOG $MEMSHIM_POOL;"
            "echo $MEMSHIM_OUTPUT; echo ${MEMSHIM_RUN_ID:+named}",
            *("--fraction", "0.5", "--limit=3GiB", "--log", "off", "--pool", "off"),
        ).check()
        self.assertEqual(
            result.stdout.splitlines(),
            [str(INSTALLED), "0.5 3GiB off off", str(self.output), "named"],
        )
        self.assertEqual(result.stderr, "")

    def test_preload_of_others_is_kept(self) -> None:
        other = "/lib/x86_64-linux-gnu/libm.so.6"
        if not Path(other).exists():
            self.skipTest(f"no {other}")
        result = self.shell("echo $LD_PRELOAD", LD_PRELOAD=other).check()
        self.assertEqual(result.stdout.strip(), f"{INSTALLED}:{other}")

    def test_exit_status(self) -> None:
        for status in (0, 1, 3, 127, 255):
            with self.subTest(status=status):
                self.shell(f"exit {status}").check(status)

    def test_the_runs_of_others_are_left_alone(self) -> None:
        """Runs of a sweep share an output folder: each completes and names its own reports."""
        hold = (program("verdict_job"), "hold", "10")
        trainer = (program("trainer"), "--steps", "1")

        def named(said: str) -> list[Path]:
            words = [line.split() for line in said.splitlines() if " process traced, " in line]
            return [Path(line[line.index("report:") + 1].rstrip(",")).parent for line in words]

        with self.running(CLI, "run", "--output", self.output, "--", *hold) as other:
            assert other.stdout and other.stderr
            self.assertEqual(other.stdout.readline(), "ready\n")
            (held,) = run_folders(self.output)
            seen: set[Path] = set()
            for _ in range(2):  # the second begins in the second in which the first has ended
                (own,) = named(self.memshim(*trainer).check().stderr)
                self.assertNotIn(own, {held, *seen})
                seen.add(own)
            self.assertEqual(list(held.glob("report.*")), [])
            other.send_signal(signal.SIGTERM)
            self.assertEqual(named(other.communicate()[1]), [held])

    def test_short_options(self) -> None:
        result = run(
            [CLI, "run", "-q", "-o", self.output, "-f", "0.5", "--", "bash", "-c", SAY_OPTIONS]
        ).check()
        self.assertEqual((result.stdout, result.stderr), (f"off {self.output} 0.5\n", ""))

    def test_switched_off(self) -> None:
        """Nothing is said, nothing is written, and the program's memory is the driver's."""
        job = [str(program("trainer")), "--steps", "1"]
        plain = run(job).check().stdout
        for call, shim in ((job, True), ([str(CLI), "run", "--limit", "1MiB", "--", *job], False)):
            result = run(call, shim=shim, cwd=self.folder, MEMSHIM="off").check()
            self.assertEqual((result.stdout, result.stderr), (plain, ""))
        self.assertEqual(list(self.folder.iterdir()), [])
        said = run(job, shim=True, cwd=self.folder, MEMSHIM="of", MEMSHIM_TRACE="off").check()
        self.assertIn("MEMSHIM=of is not usable", said.stderr)
        self.assertIn("(did you mean 'off'?); memshim stays on", said.stderr)

    def test_the_switch_is_named_where_nothing_can_run(self) -> None:
        alone = self.folder / "bin" / "memshim"
        alone.parent.mkdir()
        shutil.copy(CLI, alone)
        said = run([alone, "run", "--", "echo", "ran"]).check(2)
        self.assertEqual(said.stdout, "")
        self.assertIn("neither beside this executable", said.stderr)
        self.assertIn("MEMSHIM=off runs the program without memshim", said.stderr)
        told = run([alone, "run", "--", "echo", "ran"], MEMSHIM="off").check()
        self.assertEqual((told.stdout, told.stderr), ("ran\n", ""))

    def test_death_by_signal(self) -> None:
        for name in ("TERM", "KILL", "SEGV", "ABRT", "PIPE", "USR1"):
            with self.subTest(name):
                self.shell(f"kill -{name} $$").check(-getattr(signal, f"SIG{name}"))

    def test_command_that_cannot_run(self) -> None:
        self.assertIn("no-such-command", self.memshim("no-such-command").check(127).stderr)
        text = self.folder / "text"
        text.write_text("not a program")
        self.assertIn("denied", self.memshim("--", text).check(126).stderr)

    def test_report_is_completed(self) -> None:
        trainer = str(program("trainer"))
        result = self.shell(f"{trainer} & {trainer}; wait; {program('life_job')} quick").check(4)
        folders = process_folders(self.output)
        self.assertEqual(len(folders), 3, result.describe())
        self.assertEqual(len(run_folders(self.output)), 1)
        for folder in folders:
            self.assertTrue((folder / "report.txt").stat().st_size > 0)
        self.assertIn(str(run_folders(self.output)[0]), result.stderr.splitlines()[-1])
        self.assertEqual((self.output / "latest").resolve(), run_folders(self.output)[0])

    def test_interrupt_while_reports_are_made(self) -> None:
        """A Ctrl-C then ends it at once; the trace stays, and a line says what completes it."""
        events = 4000000  # of which a report takes most of a second, and more than it listens after
        job = (BUILD / "tests" / "bench" / "make_trace", self.output, str(events))
        with self.running(CLI, "run", "--output", self.output, "--", *job) as process:
            files = Path(f"/proc/{process.pid}/fd")
            while process.poll() is None:
                with contextlib.suppress(OSError):  # which are closed at any moment
                    opened = [str(file.readlink()) for file in files.iterdir()]
                    if any(name.endswith("trace.mshm") for name in opened):
                        process.send_signal(signal.SIGINT)
                time.sleep(0.02)
            result = finish(process)
        self.assertEqual(result.status, -signal.SIGINT, result.describe())
        (folder,) = process_folders(self.output)
        self.assertTrue((folder / "trace.mshm").exists())
        self.assertFalse((folder / "report.txt").exists())
        self.assertIn(f"memshim report {folder.parent} completes", result.stderr.splitlines()[-1])
        run([CLI, "report", folder.parent]).check()
        self.assertTrue((folder / "report.txt").exists())

    def test_torchrun_names_the_run(self) -> None:
        trainer = program("trainer")
        result = self.shell(f"TORCHELASTIC_RUN_ID=job7 {trainer}").check()
        self.assertEqual([path.name for path in run_folders(self.output)], ["job7"])
        self.assertIn("job7", result.stderr.splitlines()[-1])

    def test_no_device_is_said(self) -> None:
        result = self.memshim("true").check()
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertFalse(self.output.exists())

    def expect_line(self, process: subprocess.Popen[str], line: str) -> None:
        """The next line that it prints; where it is another, all that it has said."""
        assert process.stdout is not None
        seen = process.stdout.readline()
        if seen != f"{line}\n":
            process.kill()
            self.fail(f"{line!r} expected, but {seen!r}, and then {finish(process).describe()}")

    def test_signals_are_passed_on_once(self) -> None:
        command = (CLI, "run", "--", sys.executable, "-c", PRINT_SIGNALS, *SIGNALS)
        with self.running(*command) as process:
            self.expect_line(process, "ready")
            for name in (*SIGNALS[:1], *SIGNALS[2:]):
                process.send_signal(getattr(signal, f"SIG{name}"))
                self.expect_line(process, f"SIG{name}")
            # As a launcher does it that signals the process and then its group.
            process.send_signal(signal.SIGTERM)
            os.killpg(process.pid, signal.SIGTERM)
            result = finish(process)
            self.assertEqual((result.stdout, result.status), ("SIGTERM\n", 7))

    def test_command_ends_with_memshim(self) -> None:
        with self.running(CLI, "run", "--", "bash", "-c", "echo $$; sleep 300") as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            process.kill()
            process.wait()
            deadline = time.monotonic() + 20
            while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertFalse(Path(f"/proc/{child}").exists())

    def test_stop_and_continue(self) -> None:
        script = "echo ready; kill -STOP $$; echo went on"
        with self.running(CLI, "run", "--", "bash", "-c", script) as process:
            self.expect_line(process, "ready")
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            self.assertTrue(os.WIFSTOPPED(status))
            process.send_signal(signal.SIGCONT)
            self.expect_line(process, "went on")
            self.assertEqual(process.wait(30), 0)

    def test_terminal(self) -> None:
        """In a terminal's foreground the command can read from it, and Ctrl-C reaches it once."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(
                CLI, [str(CLI), "run", "--", sys.executable, "-c", PRINT_SIGNALS, "INT", "TERM"]
            )
        seen = b""

        def read_until(wanted: bytes) -> None:
            nonlocal seen
            deadline = time.monotonic() + 30
            while wanted not in seen and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.5)[0]:
                    seen += os.read(terminal, 4096)
            self.assertIn(wanted, seen)

        try:
            read_until(b"ready")
            os.write(terminal, b"\x03")
            read_until(b"SIGINT")
            os.kill(pid, signal.SIGTERM)
            read_until(b"SIGTERM")
            _, status = os.waitpid(pid, 0)
            self.assertEqual(os.WEXITSTATUS(status), 7)
            self.assertEqual(seen.count(b"SIGINT"), 1)
        finally:
            os.close(terminal)

    def test_wrong_calls(self) -> None:
        for arguments, named in (
            ((), "command"),
            (("--",), "command"),
            (("--fraction",), "--fraction"),
            (("--fraction", "1.5", "true"), "MEMSHIM_FRACTION"),
            (("--fracton", "0.5", "true"), "did you mean '--fraction'?"),
            (("--limit", "lots", "true"), "MEMSHIM_LIMIT"),
            (("-x", "true"), "-x"),
        ):
            with self.subTest(arguments=arguments):
                result = run([CLI, "run", *arguments]).check(2)
                self.assertIn(named, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_path_with_a_blank_is_refused(self) -> None:
        folder = self.folder / "my project"
        folder.mkdir()
        shutil.copy(CLI, folder / "memshim")
        shutil.copy(INSTALLED, folder / INSTALLED.name)
        result = run([folder / "memshim", "run", "true"]).check(2)
        self.assertIn("blank", result.stderr)


class OtherCommands(ProcessTest):
    def test_version(self) -> None:
        for argument in ("--version", "version"):
            said = run([CLI, argument]).check().stdout
            self.assertRegex(said, r"\Amemshim \d+\.\d+\.\d+\n(  .+\n)+\Z")

    def test_help(self) -> None:
        text = run([CLI, "help"]).check().stdout
        for command in ("run", "report", "options"):
            self.assertIn(f"  {command} ", text)
        for command in ("run", "report", "diff", "replay", "top", "doctor", "options", "coverage"):
            asked = run([CLI, "help", command]).check().stdout
            self.assertIn(f"Usage: memshim {command}", asked)
            self.assertEqual(run([CLI, command, "--help"]).check().stdout, asked)
        self.assertIn("'nonsense'", run([CLI, "help", "nonsense"]).check(2).stderr)

    def test_options(self) -> None:
        self.assertIn("MEMSHIM_FRACTION", run([CLI, "options"]).check().stdout)

    def test_unknown(self) -> None:
        self.assertIn("'nonsense'", run([CLI, "nonsense"]).check(2).stderr)
        run([CLI]).check(2)
        self.assertIn("--loud", run([CLI, "options", "--loud"]).check(2).stderr)

    def test_full_standard_output(self) -> None:
        run_of = run_of_three()
        for command in (
            "options",
            f"report {run_of}",
            f"diff {run_of} {run_of}",
            f"top --once {run_of}",
        ):
            for where in ("> /dev/full", ">&-"):
                result = run(["bash", "-c", f"{CLI} {command} {where}"]).check(1)
                self.assertIn("standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
