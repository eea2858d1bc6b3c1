# SPDX-License-Identifier: Apache-2.0
"""What the driver's functions answer in every state of context and capture.

`pool/parity.csv` has what the simulated GPU answers without memshim: a row for each function
and kind of arguments, a column for each state, and in it `RESULT`, or `RESULT/RESULT of the
capture's end` (a CUresult by number; `died`: the call ended the program). A `?` before it says that
nothing proves it. What proves the others is a card's answer, in the `parity.csv` that a run on it
has left below `tests/gpu`, or a sentence of cuda.h, in `pool/parity_proofs.csv`.
`pool/parity_simulated.csv` has what a card answers and the simulated GPU does not (yet);
`pool/parity_differences.csv` what memshim answers otherwise than the driver, and why.

    python3 tests/process/parity.py     writes parity.csv anew, from the simulated GPU
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "pool" / "parity.csv"
CARDS = HERE.parent / "gpu"
PROOFS = HERE / "pool" / "parity_proofs.csv"
SIMULATED = HERE / "pool" / "parity_simulated.csv"
DIFFERENCES = HERE / "pool" / "parity_differences.csv"
DEATHS_MOST = 50

Case = tuple[str, str, str]  # function, variant, state
Answers = dict[Case, str]
# Runs parity_job with these arguments: exit status and standard output.
Run = Callable[[tuple[str, ...]], tuple[int, str]]


@dataclass(frozen=True)
class Rule:
    """A row of PROOFS, SIMULATED or DIFFERENCES; the first three are patterns."""

    function: str
    variant: str
    state: str
    answer: str
    why: str

    def fits(self, case: Case) -> bool:
        patterns = (self.function, self.variant, self.state)
        return all(fnmatchcase(part, pattern) for part, pattern in zip(case, patterns, strict=True))


def rules(path: Path) -> list[Rule]:
    with path.open(newline="") as file:
        return [Rule(**row) for row in csv.DictReader(file)]


def _lines_of(run: Run, state: str) -> Iterator[str]:
    """All lines of a state; after a call that ended the program it goes on behind that function."""
    first = 0
    for _ in range(DEATHS_MOST):
        status, text = run((state, str(first)))
        lines = text.splitlines()
        if status == 0:
            yield from lines
            return
        if not lines:
            break
        yield from lines[:-1]
        last = lines[-1]
        yield last + "died" if last.endswith(",") else last
        first = int(last.split(",", 1)[0]) + 1
    raise RuntimeError(f"parity_job {state} ended with {status} from function {first} on")


def ask(run: Run, at_once: int = 1) -> Answers:
    """What every function answers in every state; the processes of so many states at a time."""
    status, listed = run(("list",))
    if status != 0:
        raise RuntimeError(f"parity_job list ended with {status}")
    answers: Answers = {}
    with ThreadPoolExecutor(at_once) as threads:
        for lines in threads.map(lambda state: list(_lines_of(run, state)), listed.split()):
            for line in lines:
                _, function, variant, of_state, answer = line.split(",")
                answers[function, variant, of_state] = answer
    return answers


def read_table(path: Path = TABLE) -> Answers:
    with path.open(newline="") as file:
        return {
            (row["function"], row["variant"], state): answer
            for row in csv.DictReader(file)
            for state, answer in row.items()
            if state not in ("function", "variant") and answer
        }


def of_cards() -> Answers:
    """What real cards answered. What ended the program there, or never came back, is no answer."""
    return {
        case: answer.removeprefix("?")
        for path in sorted(CARDS.glob("*/parity.csv"))
        for case, answer in read_table(path).items()
        if not answer.endswith("died")
    }


def write_table(answers: Answers, path: Path = TABLE) -> None:
    """With a question mark where neither a card nor a rule of PROOFS says that answer."""
    states = list(dict.fromkeys(state for _, _, state in answers))
    proofs = rules(PROOFS)
    cards = of_cards()
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["function", "variant", *states])
        for function, variant in dict.fromkeys(case[:2] for case in answers):
            row = [function, variant]
            for state in states:
                case = (function, variant, state)
                answer = answers.get(case, "")
                proven = cards.get(case) == answer or any(
                    rule.fits(case) and rule.answer == answer for rule in proofs
                )
                row.append(answer if proven or not answer else f"?{answer}")
            writer.writerow(row)


def differences(expected: Answers, found: Answers) -> list[str]:
    """A line for each case that one of them lacks, or answers otherwise."""
    lines = []
    for case in dict.fromkeys([*expected, *found]):
        one = expected.get(case, "nothing").removeprefix("?")
        other = found.get(case, "nothing").removeprefix("?")
        if one != other:
            lines.append(f"{', '.join(case)}: {other}, not {one}")
    return lines


def with_rules(answers: Answers, path: Path) -> Answers:
    """These answers, where no rule of that file says another."""
    known = rules(path)
    return {
        case: next((rule.answer for rule in known if rule.fits(case)), answer)
        for case, answer in answers.items()
    }


def with_memshim(answers: Answers) -> Answers:
    """What memshim should answer where the driver answers this."""
    return with_rules(answers, DIFFERENCES)


def disproven(found: Answers) -> list[str]:
    """Where the answers contradict what is proven. A driver may lack functions."""
    lines = []
    for rule in rules(PROOFS):
        for case, answer in found.items():
            if rule.fits(case) and answer != rule.answer:
                lines.append(f"{', '.join(case)}: {answer}, not {rule.answer} ({rule.why})")
    return lines


def _main() -> None:
    from pool.test_parity import run_simulated

    write_table(ask(run_simulated(shim=False)))


if __name__ == "__main__":
    _main()
