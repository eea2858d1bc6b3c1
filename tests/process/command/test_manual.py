# SPDX-License-Identifier: Apache-2.0
"""The manual pages and completions that are made of the tables: they say all of it, tools accept
them, and a shell really completes by them."""

from __future__ import annotations

import re
import shutil
import unittest
from pathlib import Path

from command.test_arguments import VARIABLES, commands, options
from machine import BUILD, CLI, ProcessTest, Result, run

SHARE = BUILD / "share"
BASH = SHARE / "bash-completion" / "completions" / "memshim"
ZSH = SHARE / "zsh" / "site-functions" / "_memshim"
FISH = SHARE / "fish" / "vendor_completions.d" / "memshim.fish"
COMPLETE = """
source "$1"; shift
COMP_WORDS=(memshim "$@"); COMP_CWORD=$#; COMPREPLY=()
_memshim
printf '%s\\n' "${COMPREPLY[@]}"
"""


def page(command: str = "") -> Path:
    return SHARE / "man" / "man1" / f"memshim{'-' if command else ''}{command}.1"


def tool(case: unittest.TestCase, name: str) -> str:
    found = shutil.which(name)
    if found is None:
        case.skipTest(f"{name} is not installed")
    return found


class Pages(unittest.TestCase):
    def shown(self, path: Path) -> str:
        """As a terminal has it, without a warning."""
        groff = tool(self, "groff")
        result = run([groff, "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=200n", path]).check()
        self.assertEqual(result.stderr, "", path)
        return result.stdout.replace("\u2010", "-").replace("\u2212", "-")

    def test_each_command(self) -> None:
        overview = self.shown(page())
        for command in commands():
            with self.subTest(command):
                text = self.shown(page(command))
                self.assertRegex(text, rf"(?m)^ +memshim-{command} - ")
                self.assertIn(f"memshim-{command}(1)", overview)
                for option in options():
                    if option.command == command:
                        self.assertRegex(text, rf"(?m)^ +(-\w, )?--{option.name}\b")

    def test_each_variable(self) -> None:
        text = self.shown(page())
        environment = text[text.index("ENVIRONMENT") :]
        names = re.findall(r"^MS_OPTION\(\s*(\w+),", VARIABLES.read_text(), re.MULTILINE)
        self.assertGreater(len(names), 15)
        for name in names:
            self.assertRegex(environment, rf"(?m)^ +MEMSHIM_{name}\b")

    def test_mandoc(self) -> None:
        mandoc = tool(self, "mandoc")
        for path in sorted(page().parent.iterdir()):
            run([mandoc, "-T", "lint", "-W", "error", path]).check()

    def test_command_prints_what_is_installed(self) -> None:
        self.assertEqual(run([CLI, "man"]).check().stdout, page().read_text())
        self.assertEqual(run([CLI, "man", "top"]).check().stdout, page("top").read_text())
        for shell, path in (("bash", BASH), ("zsh", ZSH), ("fish", FISH)):
            self.assertEqual(run([CLI, "completion", shell]).check().stdout, path.read_text())
        self.assertIn("tcsh", run([CLI, "completion", "tcsh"]).check(2).stderr)
        self.assertIn("probe-host", run([CLI, "man", "probe-host"]).check(2).stderr)


class Completions(ProcessTest):
    def bash(self, *words: str) -> list[str]:
        result: Result = run(
            ["bash", "--norc", "-c", COMPLETE, "complete", BASH, *words], cwd=self.folder
        ).check()
        self.assertEqual(result.stderr, "")
        return sorted(set(result.stdout.split()))

    def test_bash(self) -> None:
        (self.folder / "a-trace.mshm").touch()
        (self.folder / "a-folder").mkdir()
        for words, wanted in (
            (("rep",), ["replay", "report"]),
            (("report", "--fo"), ["--format"]),
            (("report", "--format", "t"), ["text", "timeline", "torch-snapshot"]),
            (("report", "--format", "=", "ht"), ["html"]),
            (("report", "-f", "c"), ["csv"]),
            (("report", "a-t"), ["a-trace.mshm"]),
            (("report", "--modules", "a-"), ["a-folder"]),
            (("report", "--output", "a-t"), ["a-trace.mshm"]),
            (("run", "--tor"), ["--torch"]),
            (("run", "--torch", "n"), ["native"]),
            (("run", "--limit", "2GiB", "--", "mkfif"), ["mkfifo"]),
            (("run", "--limit", "=", "2GiB", "mkfif"), ["mkfifo"]),
            (("run", "--", "mkfifo", "a-t"), ["a-trace.mshm"]),
            (("dry-run", "--gpu", "h200", "--", "mkfif"), ["mkfifo"]),
            (("dry-run", "--find-batch", "--gpu", "=", "h200", "mkfif"), ["mkfifo"]),
            (("dry-run", "--json", "mkfifo", "a-t"), ["a-trace.mshm"]),
            (("dry-run", "--json", "--only"), ["--only"]),
            (("dry-run", "--gpu", "rtx"), ["rtx3090", "rtx4090", "rtx5090"]),
            (("dry-run", "--gpu", "=", "a-t"), ["a-trace.mshm"]),
            (("dry-run", "--offline-weights", "a-"), ["a-folder"]),
            (("help", "stat"), ["statistics"]),
            (("completion", ""), ["bash", "fish", "zsh"]),
            (("doctor", "a"), []),
        ):
            with self.subTest(words):
                self.assertEqual(self.bash(*words), wanted)
        self.assertEqual(self.bash(""), sorted([*commands(), "--help", "--version"]))

    def test_every_option_in_every_shell(self) -> None:
        zsh, fish = ZSH.read_text(), FISH.read_text()
        for option in options():
            with self.subTest(option):
                self.assertIn(f"--{option.name}", self.bash(option.command, f"--{option.name}"))
                self.assertIn(f"--{option.name}{'=[' if option.takes_value else '['}", zsh)
                self.assertIn(f"from {option.command}' -l {option.name} ", fish)

    def test_syntax_of_bash(self) -> None:
        run([tool(self, "bash"), "-n", BASH]).check()

    def test_syntax_of_zsh(self) -> None:
        run([tool(self, "zsh"), "-n", ZSH]).check()

    def test_syntax_of_fish(self) -> None:
        run([tool(self, "fish"), "-n", FISH]).check()

    def test_commands_of_zsh_and_fish(self) -> None:
        """What begins a command completes its name and its arguments, as that command does."""
        self.assertEqual(ZSH.read_text().count("1:command: _command_names -e"), 2)
        for command in ("run", "dry-run"):
            line = f"from {command}' -x -a '(__fish_complete_subcommand --fcs-skip=2)'"
            self.assertIn(line, FISH.read_text())

    def test_what_fish_offers_for_a_value(self) -> None:
        """Not with the option's description beside each of them."""
        for words, offered in (
            ("run --torch ", ["native", "off", "tensor"]),
            ("dry-run --gpu rtx", ["rtx3090", "rtx4090", "rtx5090"]),
            ("dry-run --gpu /etc/host", ["/etc/hostname", "/etc/hosts"]),
        ):
            asked = f"source {FISH}; complete -C 'memshim {words}'"
            said = run([tool(self, "fish"), "-c", asked]).check().stdout
            self.assertLessEqual(set(offered), set(said.splitlines()), said)
            self.assertNotIn("\t", said)

    def test_cards_of_zsh(self) -> None:
        """Beside files: a file may describe one."""
        (line,) = (line for line in ZSH.read_text().splitlines() if "--gpu=" in line)
        self.assertIn(" h100-80gb ", line)
        self.assertIn("_files", line)


class Installed(ProcessTest):
    def test_tree(self) -> None:
        run(["cmake", "--install", BUILD], DESTDIR=self.folder).check()
        places = [path for path in self.folder.rglob("share") if path.is_dir()]
        self.assertEqual(len(places), 1)
        installed = {
            path.relative_to(places[0])
            for path in places[0].rglob("*")
            if path.is_file() and "doc" not in path.relative_to(places[0]).parts
        }
        wanted = [BASH, ZSH, FISH, page(), *(page(command) for command in commands())]
        self.assertEqual(installed, {path.relative_to(SHARE) for path in wanted})


if __name__ == "__main__":
    unittest.main()
