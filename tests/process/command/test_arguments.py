# SPDX-License-Identifier: Apache-2.0
"""The command line: every option of the tables is in --help, wrong calls are named with what was
meant, and what belongs to another command is left alone."""

from __future__ import annotations

import re
import unittest
from dataclasses import dataclass

from machine import CLI, ROOT, ProcessTest, Result, run

TABLE = ROOT / "shim" / "cli" / "arguments" / "commands.def"
VARIABLES = ROOT / "shim" / "tables" / "options.def"


@dataclass(frozen=True)
class Option:
    command: str
    name: str
    letter: str  # empty: none
    takes_value: bool


def commands() -> list[str]:
    return re.findall(r'^MS_COMMAND\(\w+, \w+, "([a-z-]+)"', TABLE.read_text(), re.MULTILINE)


def options() -> list[Option]:
    rows = re.findall(
        r'^MS_CLI_OPTION\((\w+), \w+, "([a-z-]+)", (0|\'.\'), (NULL|"[^"]*")',
        TABLE.read_text(),
        re.MULTILINE,
    )
    found = [
        Option(command.lower().replace("_", "-"), name, letter.strip("0'"), value != "NULL")
        for command, name, letter, value in rows
    ]
    variables = re.findall(r"^MS_OPTION\(\s*(\w+),", VARIABLES.read_text(), re.MULTILINE)
    letters = dict(re.findall(r"^MS_RUN_LETTER\((\w+), '(.)'\)", TABLE.read_text(), re.MULTILINE))
    return found + [
        Option("run", name.lower().replace("_", "-"), letters.get(name, ""), takes_value=True)
        for name in variables
    ]


def memshim(*arguments: str) -> Result:
    return run([CLI, *arguments])


class Help(unittest.TestCase):
    def test_every_command(self) -> None:
        text = memshim("--help").check().stdout
        self.assertGreater(len(commands()), 10)
        for command in commands():
            with self.subTest(command):
                self.assertRegex(text, rf"(?m)^  {command} ")
                said = memshim(command, "--help").check().stdout
                self.assertIn(f"Usage: memshim {command}", said)
                for asked in ((command, "-h"), ("help", command)):
                    self.assertEqual(memshim(*asked).check().stdout, said)
                self.assertLessEqual(max(map(len, said.splitlines())), 100)

    def test_every_option(self) -> None:
        texts = {command: memshim(command, "--help").check().stdout for command in commands()}
        self.assertGreater(len(options()), 50)
        for option in options():
            with self.subTest(option):
                letter = f"-{option.letter}, " if option.letter else "    "
                value = " [A-Z]" if option.takes_value else "(\n|  )"
                self.assertRegex(
                    texts[option.command], rf"(?m)^  {letter}--{re.escape(option.name)}{value}"
                )


class Wrong(unittest.TestCase):
    def refused(self, *arguments: str) -> str:
        result = memshim(*arguments).check(2)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr

    def test_unknown_option_of_every_command(self) -> None:
        for command in commands():
            for option in ("--no-such", "-Z", "--help=x"):
                with self.subTest(command, option=option):
                    said = self.refused(command, option)
                    self.assertTrue(said.startswith(f"memshim {command}: "), said)
                    self.assertIn(f"'{option}'", said)
                    self.assertIn(f"memshim {command} --help", said)

    def test_words_too_many_or_too_few(self) -> None:
        for arguments, said in (
            (("doctor", "x"), "it takes only options, and 'x' is none"),
            (("man", "report", "x"), "it takes one word, and 'x' is a second"),
            (("completion",), "name the shell: bash, zsh or fish"),
            (("top", "a", "x"), "it shows one folder or process, and 'x' is a second"),
            (("replay", "a", "x"), "it replays one trace, and 'x' is a second"),
            (("diff",), "name the two runs, ranks or moments to compare"),
        ):
            self.assertIn(f"memshim {arguments[0]}: {said} (", self.refused(*arguments))

    def test_value_missing_of_every_option(self) -> None:
        for option in options():
            with self.subTest(option):
                if option.takes_value:
                    said = self.refused(option.command, f"--{option.name}")
                    self.assertIn("; nothing follows it (", said)
                    self.assertNotIn("''", said)
                else:
                    said = self.refused(option.command, f"--{option.name}=x")
                    self.assertIn("it takes no value", said)
                self.assertIn(f"--{option.name}", said)

    def test_empty_value_of_every_option(self) -> None:
        """As a script's variable that is not set gives it: no default stands in for it."""
        for option in options():
            if option.takes_value:
                with self.subTest(option):
                    said = self.refused(option.command, f"--{option.name}=", "true")
                    self.assertIn(f"--{option.name}", said)
                    self.assertIn("not ''", said)

    def test_names_are_not_shortened(self) -> None:
        """One that is unique today may be another option's tomorrow."""
        for arguments, meant in (
            (("report", "--form", "json"), "--format"),
            (("report", "--form=json"), "--format"),
            (("run", "--trace-l", "1GiB", "true"), "--trace-limit"),
            (("run", "--qui", "true"), "--quiet"),
        ):
            said = self.refused(*arguments)
            self.assertIn(f"there is no option '{arguments[1]}' (did you mean '{meant}'?)", said)

    def test_a_letter_is_called_as_it_was_typed(self) -> None:
        for arguments, said in (
            (("report", "-o"), "-o is a file"),
            (("report", "-f", "pdf"), "-f is text"),
            (("run", "-f", "2", "true"), "-f (MEMSHIM_FRACTION) is"),
            (("run", "-f2", "true"), "-f (MEMSHIM_FRACTION) is"),
            (("run", "-q=1", "true"), "there is no option '-=': a letter's value follows without"),
        ):
            self.assertIn(f"memshim {arguments[0]}: {said}", self.refused(*arguments))

    def test_nearest_name(self) -> None:
        for arguments, meant in (
            (("rport",), "'report'"),
            (("help", "repaly"), "'replay'"),
            (("report", "--formta", "json"), "'--format'"),
            (("run", "--fracton", "0.5", "true"), "'--fraction'"),
            (("run", "--tracelimit=1GiB", "true"), "'--trace-limit'"),
            (("top", "--intervall", "1"), "'--interval'"),
            (("--versoin",), "'--version'"),
            (("-v",), "'--version'"),
            (("--limit", "20GiB", "true"), "'run --limit'"),
            (("--limit=20GiB", "true"), "'run --limit=20GiB'"),
            (("true",), "'run -- true'"),
        ):
            with self.subTest(arguments):
                self.assertIn(f"did you mean {meant}?", self.refused(*arguments))
        for arguments, meant in (
            (("report", "--format", "jsno"), "'json'"),
            (("report", "-f", "htm"), "'html'"),
            (("run", "--stacks", "pyton", "true"), "'python'"),
            (("run", "--pool=of", "true"), "'off'"),
            (("run", "--limit", "20", "true"), "'20GiB'"),
            (("run", "--limit", "20000", "true"), "'20000MiB'"),
            (("run", "--spill-limit", "64", "true"), "'64GiB'"),
            (("run", "--fraction", "95", "true"), "'0.95'"),
            (("run", "--fraction", "95%", "true"), "'0.95'"),
            (("replay", "trace.mshm", "--cap", "20"), "'20GiB'"),
            (("replay", "trace.mshm", "--spill", "4"), "'4GiB'"),
            (("dry-run", "--gpu", "80", "true"), "'80GiB'"),
            (("dry-run", "--gpu", "h100", "true"), "'h100-80gb'"),
            (("dry-run", "--gpu", "rtx490", "true"), "'rtx4090'"),
            (("run", "--limit", "100", "MiB"), "'100MiB'"),
            (("replay", "--cap", "1.5", "GiB"), "'1.5GiB'"),
            (("completion", "bsh"), "'bash'"),
        ):
            with self.subTest(arguments):
                self.assertIn(f"did you mean {meant}?", self.refused(*arguments))
        for value in ("0", "-3", "95GiB", "950%", "%"):
            self.assertNotIn("did you mean", self.refused("run", "--fraction", value, "true"))
        self.assertNotIn("did you mean", self.refused("report", "--format", "frobnicate"))
        self.assertNotIn("did you mean", self.refused("frobnicate"))
        self.assertNotIn("did you mean", self.refused("report", "--frobnicate"))
        self.assertNotIn("did you mean", self.refused("probe-hos"))
        self.assertNotIn("did you mean", self.refused("-x"))
        self.assertNotIn("did you mean", self.refused("dry-run", "--gpu", "frobnicate", "true"))

    def test_what_cannot_be(self) -> None:
        for option, way in (
            ("--attach=12", "memshim top PID"),
            ("--pid", "memshim top PID"),
            ("--duration", "timeout SECONDS"),
            ("--memory", "--limit SIZE"),
            ("--gpu", "CUDA_VISIBLE_DEVICES"),
            ("--cap", "--limit SIZE"),
            ("--verbose", "--log info"),
        ):
            said = self.refused("run", option, "12", "true")
            self.assertIn(f"there is no option '{option}': ", said)
            self.assertIn(way, said)
        for command in ("report", "diff"):
            self.assertIn("--format json", self.refused(command, "--json"))
        for option, way in (("--limit", "--gpu SIZE"), ("--batch-size=8", "--batch-arg")):
            self.assertIn(way, self.refused("dry-run", option, "true"))
        for command, way in (
            ("attach", "memshim top PID"),
            ("record", "memshim run"),
            ("live", "memshim top"),
            ("flamegraph", "memshim report --open"),
            ("stats", "memshim report"),
        ):
            said = self.refused(command, "12")
            self.assertTrue(said.startswith(f"memshim: there is no command '{command}': "), said)
            self.assertIn(way, said)
            self.assertIn(way, self.refused("help", command))

    def test_help_for_what_is_no_command(self) -> None:
        for command in ("help", "man"):
            said = self.refused(command, "frobnicate")
            self.assertIn("there is no command 'frobnicate'; memshim help lists them", said)
            self.assertNotIn("--help", said)

    def test_no_command(self) -> None:
        result = memshim().check(2)
        self.assertIn("Usage: memshim", result.stdout)

    def test_names_are_shown_and_not_obeyed(self) -> None:
        for arguments in (("\033[2J",), ("report", "--\033[2J"), ("top", "--sites", "\033[2J")):
            self.assertIn("\\x1b[2J", self.refused(*arguments))


class Operands(ProcessTest):
    def test_options_may_follow_operands(self) -> None:
        for setting in ("", "1"):
            result = run(
                [CLI, "replay", self.folder / "none.csv", "--json"], POSIXLY_CORRECT=setting
            ).check(1)
            self.assertIn("none.csv", result.stderr)

    def test_a_name_with_a_dash_follows_two(self) -> None:
        result = run([CLI, "replay", "--json", "--", "-odd.csv"], cwd=self.folder).check(1)
        self.assertIn("-odd.csv", result.stderr)

    def test_a_commands_own_words_are_left_alone(self) -> None:
        words = ["--fraction", "9", "--", "--help", "-h", "--no-such", "", "a b", "--json=x"]
        show = ["bash", "-c", 'printf "[%s]" "$@"', "show"]
        for between in ([], ["--"], ["--log", "off"], ["--log=off", "--"]):
            with self.subTest(between):
                result = run([CLI, "run", "--output", self.output, *between, *show, *words]).check()
                self.assertEqual(result.stdout, "".join(f"[{word}]" for word in words))

    def test_a_script_that_is_no_program(self) -> None:
        (self.folder / "train.py").touch()
        (self.folder / "job").touch(0o755)
        for name, status, meant in (
            ("train.py", 127, "python train.py"),
            ("./train.py", 126, "python ./train.py"),
            ("job", 127, "./job"),
        ):
            said = run([CLI, "run", "--", name], cwd=self.folder).check(status).stderr
            self.assertIn(f"cannot run '{name}'", said)
            self.assertIn(f"did you mean '{meant}'?", said)

    def test_a_file_that_is_no_trace(self) -> None:
        for name, contents in (("short", "root:x:0:0\n"), ("long", "no trace\n" * 10000)):
            (self.folder / name).write_text(contents)
            said = run([CLI, "report", self.folder / name]).check(1).stderr
            self.assertIn("is not a memshim trace", said)

    def test_a_command_that_begins_with_a_dash(self) -> None:
        result = run([CLI, "run", "--output", self.output, "--", "--no-such"]).check(127)
        self.assertIn("cannot run '--no-such'", result.stderr)


class NoRun(ProcessTest):
    def test_a_dry_run_is_no_run_and_is_named(self) -> None:
        for name in ("dry-run-20260101-000000-1", "dry-run-20260102-000000-2"):
            for part in ("", "-late"):
                (self.output / (name + part)).mkdir(parents=True)
        said = run([CLI, "report"], MEMSHIM_OUTPUT=self.output).check(1).stderr
        self.assertIn("no run is found in", said)
        self.assertIn("a dry run is: " + str(self.output / "dry-run-20260102-000000-2;"), said)


if __name__ == "__main__":
    unittest.main()
