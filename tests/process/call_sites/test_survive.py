# SPDX-License-Identifier: Apache-2.0
"""Memory asked for from hard places: nothing crashes, hangs or waits for Python's lock, and what is
recorded of the stack is true as far as it goes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import sites
from documents import TEXT_FORMS
from machine import (
    CLI,
    PROGRAMS,
    ROOT,
    SIMGPU,
    ProcessTest,
    only_report,
    process_folders,
    program,
    remove_output,
    run,
)
from sites import BLOCK, NATIVE_CUT, NATIVE_LOST, PYTHON_CUT, Site, Trace

JOB = program("survive_job")
HELPER = program("survive_helper.so")
SCRIPT = ROOT / "tests" / "process" / "call_sites" / "survive.py"
# MEMSHIM_PYTHON names another interpreter to try, of any version from 3.9 on.
PYTHON = os.environ.get("MEMSHIM_PYTHON", sys.executable)
VENV = Path(os.environ.get("MEMSHIM_VENV", ROOT / ".venv"))
KIB = 1024
FORKS = 300 if os.environ.get("MEMSHIM_TEST_ALL") else 40
DEPTH = 64


class SurviveTest(ProcessTest):
    def trace(self) -> Trace:
        (folder,) = process_folders(self.output)
        return sites.read_trace(program("trace_sites"), folder / "trace.mshm")

    def used(self, trace: Trace) -> list[Site]:
        """The sites of all blocks: every block has one."""
        used = trace.sums(BLOCK)
        self.assertTrue(used)
        self.assertNotIn(0, used)
        return [trace.sites[number] for number in used]


def own(site: Site, module: Path = JOB) -> list[str]:
    """The functions of a stack that are the program's, innermost first."""
    return [
        name
        for name, (_, path) in zip(site.functions, site.native, strict=True)
        if path == str(module)
    ]


class Native(SurviveTest):
    def survived(self, *arguments: object, **settings: object) -> Trace:
        result = self.run_under_shim(JOB, *map(str, arguments), **settings).check()
        self.assertTrue(result.stdout.endswith("survived\n"), result.describe())
        return self.trace()

    def test_fork_while_threads_capture(self) -> None:
        """Its children exit, leave without a word, or execute another program."""
        self.survived("fork", FORKS, MEMSHIM_TRACE_LIMIT="64MiB")

    def check_handlers(self, scenario: str, interrupted: str = "handlers") -> None:
        trace = self.survived(scenario)
        chains = [own(site) for site in self.used(trace)]
        through = [chain for chain in chains if "allocate_in_handler" in chain]
        self.assertTrue(through)
        for chain in chains:
            self.assertEqual(chain[0], "allocate")
        for chain in through:
            self.assertEqual(chain[1], "allocate_in_handler")
            self.assertIn("main", chain, "the stack goes on in what was interrupted")
            self.assertIn(interrupted, chain)

    def test_handlers(self) -> None:
        self.check_handlers("handlers")

    def test_handlers_on_a_stack_of_their_own(self) -> None:
        self.check_handlers("handlers-on-a-stack")

    @unittest.skipUnless(os.uname().machine == "x86_64", "needs the processor's trap flag")
    def test_a_signal_at_each_instruction(self) -> None:
        """Of memshim, in the course of an allocation and a free."""
        for scenario in ("each-instruction", "each-instruction-on-a-stack"):
            with self.subTest(scenario):
                remove_output(self.output)
                self.check_handlers(scenario, "each_instruction")

    def test_near_the_guard_page(self) -> None:
        """As little stack as a thread may be made with, of which nothing was used."""
        for left_bytes in (65536, 32768, 16384):
            with self.subTest(left_bytes):
                remove_output(self.output)
                (site,) = self.used(self.survived("guard-page", left_bytes))
                self.assertEqual(site.flags, NATIVE_CUT)
                self.assertEqual(own(site), ["allocate"] + ["down_to"] * (DEPTH - 1))

    def test_least_stack(self) -> None:
        """On threads with the least stack that there is: the first use of a device, with the test
        of its host memory, the first launch, a new place, an out-of-memory, the end."""
        for spill in ("off", "auto"):
            with self.subTest(spill):
                remove_output(self.output)
                result = self.run_under_shim(
                    program("small_stack_job"),
                    "16",
                    SIMGPU_MEMORY="1GiB",
                    MEMSHIM_STACKS="full",
                    MEMSHIM_SPILL=spill,
                    MEMSHIM_SPILL_LIMIT="64MiB",
                    XDG_CACHE_HOME=self.folder / spill,
                ).check(3)
                self.assertEqual(result.stdout, "survived\n")
                self.assertEqual(result.stderr.count("OUT OF MEMORY"), 1, result.stderr)
                self.assertEqual(only_report(self.output)["process"]["exit"], 3)
                self.assertGreaterEqual(len(self.used(self.trace())), 3)

    def test_deep_recursion(self) -> None:
        (site,) = self.used(self.survived("deep", 60000))
        self.assertEqual(site.flags, NATIVE_CUT)
        self.assertEqual(own(site), ["allocate"] + ["deep"] * (DEPTH - 1))

    def test_code_made_at_run_time(self) -> None:
        for site in self.used(self.survived("made-code")):
            self.assertEqual(site.flags, NATIVE_LOST)
            self.assertEqual(own(site), ["allocate"])
            self.assertLessEqual({path for _, path in site.native[1:]}, {""})

    def test_frame_pointers_that_lie(self) -> None:
        for site in self.used(self.survived("frame-pointers")):
            self.assertEqual(own(site)[0], "allocate")
            self.assertIn(own(site)[1], ("call_with_rbp", "call_with_false_tables"))

    def test_plugins_that_take_each_others_place(self) -> None:
        first, second = PROGRAMS / "sites_plugin.so", PROGRAMS / "sites_plugin_again.so"
        plugins = [first, second] * 50
        self.run_under_shim(program("sites_job"), "libraries", *plugins).check()
        trace = self.trace()
        for number, (_, size) in trace.sums(BLOCK).items():
            site = trace.sites[number]
            self.assertEqual(site.functions[0], "plugin_allocate")
            self.assertEqual(site.native[0][1], str(plugins[size // (KIB * KIB) - 1]))

    def test_without_libunwind(self) -> None:
        """A file of that name that is no library ends the loader's search."""
        (self.folder / "libunwind.so.8").write_text("not a library")
        path = f"{self.folder}:{SIMGPU}"
        settings = {"LD_LIBRARY_PATH": path, "MEMSHIM_LOG": "info"}
        result = self.run_under_shim(JOB, "deep", "10", **settings).check()
        self.assertEqual(result.stderr.count("libunwind"), 1, result.stderr)
        (site,) = self.used(self.trace())
        self.assertEqual(own(site)[:13], ["allocate"] + ["deep"] * 11 + ["main"])


class Python(SurviveTest):
    interpreter: str | Path = PYTHON

    def run_python(self, scenario: str, status: int = 0) -> dict[int, list[tuple[str, int]]]:
        """What the program itself says of each allocation, by its KiB."""
        result = self.run_under_shim(self.interpreter, SCRIPT, scenario, HELPER).check(status)
        self.assertNotIn("Traceback", result.stderr)
        lines = [json.loads(line) for line in result.stdout.splitlines() if line]
        return {size: [(name, line) for name, line in told] for size, told in lines}

    def check_python(self, scenario: str) -> dict[int, Site]:
        told = self.run_python(scenario)
        self.assertGreater(len(told), 2)
        trace = self.trace()
        found = {
            size // KIB: trace.sites[number]
            for kind, size, number in trace.allocations
            if kind == BLOCK and size % KIB == 0
        }
        for size, frames in told.items():
            site = found[size]
            self.assertEqual(site.thread, sites.THREAD_PYTHON)
            got = [(frame.function.rpartition(".")[2], frame.line) for frame in site.python]
            self.assertEqual(got, frames[:DEPTH], f"{size} KiB")
            cut = PYTHON_CUT if len(frames) > DEPTH else 0
            self.assertEqual(site.flags & ~(NATIVE_CUT | NATIVE_LOST), cut)
        return {size: found[size] for size in told}

    def test_generators_and_coroutines(self) -> None:
        self.check_python("generators")

    def test_deep(self) -> None:
        found = self.check_python("deep")
        self.assertTrue(any(site.flags & PYTHON_CUT for site in found.values()))

    def test_sub_interpreters(self) -> None:
        self.check_python("interpreters")

    def test_greenlets(self) -> None:
        """By the first interpreter that has them: the project's own where it is set up."""
        for python in (PYTHON, VENV / "bin" / "python"):
            if shutil.which(python) and run([python, "-c", "import greenlet"]).status == 0:
                self.interpreter = python
                break
        else:
            self.skipTest("greenlet is not installed")
        self.check_python("greenlets")

    def test_handlers(self) -> None:
        found = self.check_python("handlers")
        functions = {frame.function for site in found.values() for frame in site.python}
        self.assertTrue(any(name.endswith("handler") for name in functions))

    def test_threads_that_python_has_not_seen(self) -> None:
        self.run_python("strangers")
        for site in self.used(self.trace()):
            self.assertEqual((site.thread, site.python), (sites.THREAD_OTHER, []))
            self.assertIn("allocate_there", own(site, HELPER))

    def test_the_lock_is_never_waited_for(self) -> None:
        self.run_python("held", status=9)
        trace = self.trace()
        self.assertEqual(
            {site.thread for site in self.used(trace)}, {sites.THREAD_OTHER, sites.THREAD_PYTHON}
        )
        self.assertEqual(sum(count for count, _ in trace.sums(BLOCK).values()), 400)

    def test_while_the_interpreter_goes(self) -> None:
        for _ in range(5):
            remove_output(self.output)
            self.run_python("finalizing")
            self.used(self.trace())

    def test_forks(self) -> None:
        self.run_python("forks")
        self.used(self.trace())


def strings(value: object) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


class Names(SurviveTest):
    """A file, a function, a library and a folder whose names do not stay in their place."""

    def reports(self) -> dict[str, bytes]:
        (folder,) = process_folders(self.output)
        forms = {}
        for form in TEXT_FORMS:
            target = self.folder / f"report.{form}"
            run([CLI, "report", folder, "--format", form, "--output", target]).check()
            forms[form] = target.read_bytes()
        return forms

    def check_inert(self, forms: dict[str, bytes], word: str) -> None:
        for form, text in forms.items():
            with self.subTest(form):
                text.decode("utf-8", "strict")
                self.assertEqual({byte for byte in text if byte < 32 or byte == 127} - {10}, set())
                if form in ("json", "timeline"):
                    self.assertNotIn(b"<", text)
                    json.loads(text)
        self.assertIn(word, " ".join(strings(json.loads(forms["json"]))))
        for line in forms["folded"].decode().splitlines():
            stack, _, count = line.rpartition(" ")
            self.assertTrue(stack)
            self.assertTrue(count.isdecimal(), line)

    def test_of_python(self) -> None:
        self.run_under_shim(PYTHON, SCRIPT, "names", HELPER).check()
        forms = self.reports()
        self.check_inert(forms, "</script><b>&amp;.py")
        folded = forms["folded"].decode()
        for part in ("quotes", "line", "script", "colon", "alone", "[31m"):
            self.assertIn(part, folded)

    def test_of_libraries(self) -> None:
        place = self.folder / os.fsdecode(b'quote" <b>\n\xff;')
        place.mkdir()
        plugin = shutil.copy(PROGRAMS / "sites_plugin.so", place / "plugin' .so")
        self.run_under_shim(program("sites_job"), "libraries", plugin).check()
        self.check_inert(self.reports(), "plugin' .so")


class Without(SurviveTest):
    """The command, where libraries are missing that it would use."""

    def test_libraries(self) -> None:
        self.run_under_shim(JOB, "deep", "10").check()
        (folder,) = process_folders(self.output)
        command: list[str | Path] = [CLI, "report", folder, "--format", "folded", "--output", "-"]
        whole = run(command).check().stdout
        for name in ("libstdc++.so.6", "libunwind.so.8"):
            (self.folder / name).write_text("not a library")
        lacking = run(command, LD_LIBRARY_PATH=self.folder).check().stdout
        (self.folder / "libdw.so.1").write_text("not a library")
        nameless = run(command, LD_LIBRARY_PATH=self.folder).check().stdout

        def functions(folded: str) -> list[str]:
            (line,) = folded.splitlines()
            return [frame.partition(" ")[0] for frame in line.rpartition(" ")[0].split(";")]

        self.assertEqual(functions(whole).count("deep"), 11)
        self.assertEqual(functions(lacking), functions(whole))
        # Offsets instead of names, and a frame for each but those that were inlined.
        self.assertGreater(sum("survive_job+0x" in name for name in functions(nameless)), 10)


if __name__ == "__main__":
    unittest.main()
