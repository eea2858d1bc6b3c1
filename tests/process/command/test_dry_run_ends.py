# SPDX-License-Identifier: Apache-2.0
"""memshim dry-run that a signal ends: it says what was seen until then, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path

from dry_run import CLI, MIB, PROGRAM, DryRunTest
from machine import TIMEOUT_S

MANY_TRACES = 400

WAITS = """
import os, time
print("waits", os.environ["SIMGPU_SHARED"], flush=True)
time.sleep(600)
"""

# Begins another process, in a session of its own as torchrun's workers are; both wait.
LAUNCHER = f"""
import subprocess, sys
command = [sys.executable, "-c", {PROGRAM + WAITS!r}]
subprocess.Popen(command, start_new_session=True).wait()
"""

# Heeds no signal that asks for an end.
DEAF = f"""
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
{PROGRAM + WAITS}
"""


class DryRunEnds(DryRunTest):
    def test_no_step(self) -> None:
        """A command that never comes to one is ended by Ctrl-C, with a report of what was seen."""
        code = PROGRAM + "import time; print('waits', flush=True); time.sleep(60)"
        running = self.until("waits", "--schedules", "one", "--", sys.executable, "-c", code)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=TIMEOUT_S)[0].decode()
        self.assertEqual(running.returncode, 1, said)
        self.assertIn("no step of an optimizer was seen", said)
        self.assertIn("interrupted: the answer covers what was seen until then", said)
        self.assertIn("live 96.00 MiB", said.replace("96.0 MiB", "96.00 MiB"))

    def test_a_signal_that_was_passed_on(self) -> None:
        """Of a scheduler's SIGTERM or a closed terminal the command has not ended by itself."""
        for number, how in (
            (signal.SIGTERM, "signal.SIG_DFL"),
            (signal.SIGTERM, "lambda number, frame: sys.exit(128 + number)"),
            (signal.SIGHUP, "signal.SIG_DFL"),
        ):
            with self.subTest(number.name, how=how):
                code = (
                    f"import signal, sys, time\nsignal.signal({int(number)}, {how})\n{PROGRAM}\n"
                    "print('waits', flush=True); time.sleep(60)"
                )
                running = self.until(
                    "waits", "--schedules", "one", "--", sys.executable, "-c", code
                )
                running.send_signal(number)
                said = running.communicate(timeout=TIMEOUT_S)[0].decode()
                self.assertIn("interrupted: the answer covers what was seen until then", said)
                self.assertNotIn("the command failed", said)

    def test_ended_while_it_reads(self) -> None:
        """The command is gone, and there are traces enough for seconds."""
        code = f"""
import os, pathlib, subprocess, sys
subprocess.run([sys.executable, "-c", {PROGRAM!r}], check=True)
trace, = pathlib.Path(os.environ["MEMSHIM_OUTPUT"]).glob("2*/*/trace.mshm")
for i in range({MANY_TRACES}):
    folder = trace.parent.with_name(f"copy-{{i}}")
    folder.mkdir()
    os.link(trace, folder / "trace.mshm")
print("linked", file=sys.stderr, flush=True)
"""
        running = self.until("linked", "--schedules", "one", "--", sys.executable, "-c", code)
        for _ in range(100):  # one that comes at once is the command's, which has just ended
            running.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.3)
                break
        said = running.communicate(timeout=TIMEOUT_S)[1].decode()
        self.assertEqual(running.returncode, -signal.SIGTERM, said)
        self.assertIn("interrupted while it read", said)

    def waiting(self, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A dry run whose command waits, and the folder that its processes share."""
        running = self.begin(*arguments)
        assert running.stderr
        words = [b""]
        while words[0] != b"waits":
            words = running.stderr.readline().split() or [b""]
        return running, Path(words[1].decode()).parent

    def processes_of(self, shared: Path) -> list[str]:
        """Of the dry run with that folder."""
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"SIMGPU_SHARED={shared}/".encode() in place.read_bytes():
                    found.append(place.parent.name)
        return found

    def check_nothing_left(self, running: subprocess.Popen[bytes], shared: Path) -> str:
        said = running.communicate(timeout=TIMEOUT_S)[0].decode()
        self.assertEqual(running.returncode, 1, said)
        self.assertFalse(shared.exists())
        self.assertEqual(self.processes_of(shared), [])
        self.assertIn("interrupted: the answer covers what was seen until then", said)
        self.assertIn("live 96.0 MiB", said)
        return said

    def test_nothing_is_left(self) -> None:
        """No process, also none in a session of its own, nor one that does not listen."""
        for program, number in (
            (LAUNCHER, signal.SIGINT),
            (LAUNCHER, signal.SIGTERM),
            (DEAF, signal.SIGTERM),
        ):
            with self.subTest(number.name, program=program):
                command = ("--schedules", "one", "--", sys.executable, "-c", program)
                running, shared = self.waiting(*command)
                running.send_signal(number)
                self.check_nothing_left(running, shared)

    def test_on_a_terminal(self) -> None:
        """Where Ctrl-C reaches the command and us alike, once or again and again."""
        for program in (LAUNCHER, DEAF):
            for times in (1, 2):
                with self.subTest(times=times, program=program):
                    said, status, shared = self.at_terminal(program, times)
                    self.assertEqual(status, 1, said)
                    self.assertIn("interrupted: the answer covers what was seen until then", said)
                    self.assertFalse(shared.exists())
                    self.assertEqual(self.processes_of(shared), [])

    def at_terminal(self, program: str, times: int) -> tuple[str, int, Path]:
        """Presses Ctrl-C so often, once for each time that the terminal has something new."""
        child, terminal = pty.fork()
        if child == 0:
            os.environ["XDG_CACHE_HOME"] = str(self.cache())
            os.chdir(self.folder)
            command = (str(CLI), "dry-run", "--schedules", "one", "--", sys.executable, "-c")
            os.execv(command[0], (*command, program))
        attributes = termios.tcgetattr(terminal)
        attributes[3] |= termios.NOFLSH  # otherwise Ctrl-C discards output that nobody has read yet
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        said, shared = b"", self.folder
        with contextlib.suppress(OSError):  # the terminal is gone with the last of its processes
            while piece := os.read(terminal, 4096):
                said += piece
                if times > 0 and (line := re.search(rb"waits (\S+)\r\n", said)):
                    shared = Path(line[1].decode()).parent
                    os.write(terminal, b"\x03")
                    times -= 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(terminal)
        return said.decode(), status, shared

    def test_batches_end(self) -> None:
        """With the batch at which somebody ended it: the others are not run."""
        code = PROGRAM + "import os, time; print('waits', os.environ['SIMGPU_SHARED'], flush=True)"
        code += "\nif os.environ['B'] == '16': time.sleep(600)"
        options = ("--batch-env", "B=8,16,32", "--find-batch", "--gpu", "1GiB")
        running, first = self.waiting(*options, "--", sys.executable, "-c", code)
        assert running.stderr
        words = [b""]
        while words[0] != b"waits":
            words = running.stderr.readline().split() or [b""]
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=TIMEOUT_S)[0].decode()
        self.assertEqual(running.returncode, 1, said)
        lines = said.splitlines()
        self.assertTrue(any(line.split()[:3] == ["8", "96.0", "MiB"] for line in lines), said)
        self.assertIn("16  interrupted: no further batch was run", said)
        self.assertFalse(any(line.split()[:1] == ["32"] for line in lines), said)
        for shared in (first, Path(words[1].decode()).parent):
            self.assertFalse(shared.exists())

    def test_before_it_begins(self) -> None:
        """While the doubles of libraries are made: what makes them ends, too, and it is said."""
        helper = self.folder / "python-slow"
        helper.write_text("#!/bin/sh\necho begun $$ >&2\nexec sleep 600\n")
        helper.chmod(0o700)
        there = sorted(self.folder.glob("memshim-out/*"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                running = self.begin("--", str(helper))
                assert running.stderr
                words = [b""]
                while words[0] != b"begun":
                    words = running.stderr.readline().split() or [b""]
                running.send_signal(number)
                said = running.communicate(timeout=TIMEOUT_S)[1].decode()
                self.assertEqual(running.returncode, -number, said)
                self.assertIn("interrupted: the command was not begun", said)
                self.assertFalse(Path(f"/proc/{int(words[1])}").exists())
                self.assertEqual(sorted(self.folder.glob("memshim-out/*")), there)

    def test_second_schedule(self) -> None:
        """Ended in it: the answer is of the first, and the exit status tells."""
        code = PROGRAM + "import os, time; print('waits', os.environ['SIMGPU_SHARED'], flush=True)"
        code += "\nif os.environ['SIMGPU_SCHEDULE'] == 'late': time.sleep(600)"
        running, _ = self.waiting("--schedules", "both", "--", sys.executable, "-c", code)
        assert running.stderr
        while not running.stderr.readline().startswith(b"waits"):
            pass
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=TIMEOUT_S)[0].decode()
        self.assertEqual(running.returncode, 1, said)
        self.assertIn("the command ended normally", said)
        self.assertIn("--schedules both runs the command a second time", said)

    def test_each_run_can_be_signaled(self) -> None:
        """A command blocks no signals in any run but what memshim itself was started with."""
        code = PROGRAM + "print(*[l for l in open('/proc/self/status') if 'SigBlk' in l])"
        result = self.dry_run("--", sys.executable, "-c", code, schedules="both").check()
        lines = [line.split() for line in result.stderr.splitlines() if "SigBlk" in line]
        self.assertEqual(lines, [["SigBlk:", "0" * 16]] * 2)

    def test_who_reads_the_answer_lives(self) -> None:
        """A process that was there before the command is none of its: a shell's substitution."""
        read = f"{self.folder}/read"
        dry_run = f"{CLI} dry-run --schedules one -- {sys.executable} -c '{PROGRAM}'"
        script = f"mkfifo pipe; (cat < pipe > {read}; echo end >> {read}) & exec {dry_run} > pipe"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache())},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        while not (said := Path(read).read_text()).endswith("end\n"):
            time.sleep(0.01)
        self.assertIn(f"live {96 * MIB >> 20}.0 MiB", said)


if __name__ == "__main__":
    unittest.main()
