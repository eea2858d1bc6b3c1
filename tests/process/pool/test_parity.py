# SPDX-License-Identifier: Apache-2.0
"""Every function that memshim stands in front of answers as the driver does, in every state."""

from __future__ import annotations

import tempfile
import unittest

import parity
from machine import program, run


def run_simulated(shim: bool, devices: int = 2) -> parity.Run:
    """Runs parity_job on the simulated GPU."""

    def run_job(arguments: tuple[str, ...]) -> tuple[int, str]:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            result = run(
                [program("parity_job"), *arguments],
                shim=shim,
                SIMGPU_DEVICES=devices,
                SIMGPU_MEMORY="2GiB",
                SIMGPU_CONTEXT="16MiB",
                MEMSHIM_LOG="off",
                MEMSHIM_TRACE="off",
                XDG_CACHE_HOME=folder,
            )
        return result.status, result.stdout

    return run_job


class Parity(unittest.TestCase):
    """parity.csv is what the simulated GPU answers; whoever changes that writes it anew."""

    def same(self, expected: parity.Answers, found: parity.Answers) -> None:
        lines = parity.differences(expected, found)
        self.assertFalse(lines, f"{len(lines)} differ:\n" + "\n".join(lines))

    def test_the_simulated_gpu(self) -> None:
        found = parity.ask(run_simulated(shim=False))
        self.same(parity.read_table(), found)
        self.assertFalse(parity.disproven(found))

    def test_the_simulated_gpu_answers_as_a_card(self) -> None:
        table = parity.read_table()
        cards = {case: answer for case, answer in parity.of_cards().items() if case in table}
        self.assertTrue(cards)
        expected = parity.with_rules(cards, parity.SIMULATED)
        self.same(expected, {case: table[case] for case in expected})

    def test_another_device_is_not_asked_for_where_there_is_one(self) -> None:
        self.assertEqual(run_simulated(shim=False, devices=1)(("other-device",)), (0, ""))

    def test_with_memshim(self) -> None:
        expected = parity.with_memshim(parity.read_table())
        self.same(expected, parity.ask(run_simulated(shim=True)))

    def test_what_differs_is_there(self) -> None:
        """A difference that no case has any more is one to take out of the list."""
        table = parity.read_table()
        for path, of in (
            (parity.PROOFS, None),
            (parity.DIFFERENCES, table),
            (parity.SIMULATED, parity.of_cards()),
        ):
            for rule in parity.rules(path):
                with self.subTest(path.stem, function=rule.function, state=rule.state):
                    self.assertTrue(rule.why)
                    self.assertTrue(any(rule.fits(case) for case in table))
                    if of is not None:
                        answers = {a.removeprefix("?") for case, a in of.items() if rule.fits(case)}
                        self.assertNotEqual(answers, {rule.answer})


if __name__ == "__main__":
    unittest.main()
