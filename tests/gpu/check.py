# SPDX-License-Identifier: Apache-2.0
"""Checks and measures memshim on the machine's GPU: scripts/gpu_check.sh starts it.

Each part is a program of its own with its own share of the time; what a part leaves unused goes to
those after it. A part that fails, hangs or breaks off costs what it had not found yet, and the next
begins. The results are written after every part.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvml import Nvml, NvmlError
from results import Case, PartResult, Results
from world import GIB, HERE, MIB, PREFIX, ROOT, World, adopt_orphans, end_descendants

# Names, in their order, and weights by which the time is shared out: some seconds of the default.
PARTS = {
    "doctor": 6,
    "semantics": 70,
    "torch": 60,
    "speed": 155,
    "fragmentation": 55,
    "spill": 85,
    "costs": 12,
    "gate": 3,
    "probes": 14,
    "others": 14,
    "workloads": 35,
    "dry": 45,
    "pytorch": 4,
}
DEFAULT_MINUTES = 9.0
DEFAULT_LIMIT_BYTES = 44 * GIB
SIMULATED_LIMIT_BYTES = 1 * GIB
# Of these nothing is left to do without PyTorch.
WANT_TORCH = ("torch", "speed", "fragmentation", "workloads", "dry", "pytorch")
# PyTorch's own tests take all that is given; where they are, they get so much.
OWN_TESTS_WEIGHT = 120
# At the end: for the last part's end, and for writing.
RESERVE_S = 5.0
# A first look at the machine may take so long, whatever the minutes.
LOOK_S = 60.0
GRACE_S = 2.0
# Parts are asked to end by themselves so long, or this share, before they would be ended.
SPARE_S, SPARE_SHARE = 2.0, 0.1
# What a carried build brings for machines that lack it.
CARRIED = "lib"
# Of nvidia-smi's names: read, never set.
CARD_STATE = (
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "pstate",
    "temperature.gpu",
    "power.draw",
    "utilization.gpu",
    "memory.used",
    "compute_mode",
    "mig.mode.current",
)
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB)?")
UNITS = {None: 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB, "TiB": 1 << 40}


class CheckError(Exception):
    """Said to the user as it is."""


def size(text: str) -> int:
    """A size as MEMSHIM_LIMIT takes it, for device 0."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        raise CheckError(f"MEMSHIM_LIMIT is a size such as 16GiB, not '{text}'")
    return int(float(found[1]) * UNITS[found[2]])


def text_of(command: Sequence[str | Path], **settings: Any) -> str:
    """What a command says; "" where it cannot, or fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **settings,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit_of(build: Path) -> str:
    """A carried build says it, whatever the tree is in which it is checked; else the tree's."""
    with contextlib.suppress(OSError):
        return (build / "commit").read_text().strip()
    found = text_of(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"])
    if found:
        changed = text_of(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"])
        return found + (", changed" if changed else "")
    return "unknown"


def missing_libraries(build: Path, work: Path) -> str:
    """A folder with those of the carried libraries that this machine has not got; "": none. Its own
    come first where it has them: others of its programs stand on them."""
    folder = work / "libraries"
    folder.mkdir()
    for library in sorted((build / CARRIED).glob("*.so*")):
        # In a process of its own: what is loaded once is always found.
        probe = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
        if subprocess.run(
            [sys.executable, "-c", probe, library.name], capture_output=True, check=False
        ).returncode:
            (folder / library.name).symlink_to(library.resolve())
    return str(folder) if any(folder.iterdir()) else ""


def card_state(simulated: bool) -> dict[str, str]:
    """What the card does at this moment, which tells whether it is this check's alone."""
    if simulated:
        return {}
    asked = ",".join(CARD_STATE)
    said = text_of(["nvidia-smi", "--id=0", f"--query-gpu={asked}", "--format=csv,noheader"])
    found = [value.strip() for value in said.split(",")]
    if len(found) != len(CARD_STATE):
        return {}
    processes = text_of(
        ["nvidia-smi", "--id=0", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    )
    state = dict(zip(CARD_STATE, found, strict=True))
    return {**state, "processes": "; ".join(processes.splitlines()) or "none"}


def has_torch(python: str) -> bool:
    probe = "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"
    return subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0


def find_python(wanted: str) -> str:
    """The interpreter with PyTorch: the one asked for, the project's, python3; or ""."""
    if wanted:
        if not shutil.which(wanted):
            raise CheckError(f"there is no {wanted}")
        if not has_torch(wanted):
            raise CheckError(f"{wanted} has no PyTorch")
        return str(shutil.which(wanted))
    venv = os.environ.get("MEMSHIM_VENV", str(ROOT / ".venv"))
    for name in (f"{venv}/bin/python", "python3"):
        path = shutil.which(name)
        if path and has_torch(path):
            return path
    return ""


def tell(case: Case) -> None:
    why = f": {case.reason}" if case.reason else ""
    print(f"  {case.status:<8}{case.name}{why}", flush=True)


class Check:
    """One run of everything."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.start = time.monotonic()
        self.end = self.start + options.minutes * 60 - RESERVE_S
        self.options = options
        build: Path = options.build
        limit = os.environ.get("MEMSHIM_LIMIT", "")
        default = SIMULATED_LIMIT_BYTES if options.simulated else DEFAULT_LIMIT_BYTES
        self.world = World(
            build=build,
            work=work,
            out=work,
            python=find_python(options.python) if options.python != "none" else "",
            libraries=missing_libraries(build, work),
            simulated=options.simulated,
            limit_bytes=size(limit) if limit else default,
            deadline=max(self.end, self.start + LOOK_S),
            torch_tests=str(options.torch_tests or ""),
        )
        machine = self.machine()
        self.world = World(**{**vars(self.world), "out": self.make_out(machine)})
        self.results = Results(
            when=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            commit=commit_of(build),
            machine=machine,
            minutes=options.minutes,
            limit_bytes=self.world.limit_bytes,
            parts=[PartResult(name, 0) for name in PARTS if name in options.only],
        )

    def machine(self) -> dict[str, Any]:
        """What there is, as memshim's doctor and NVML tell it."""
        python = self.world.python or "python3"
        said = self.world.run([self.world.cli, "doctor", "--json", "--python", python])
        try:
            doctor = json.loads(said.stdout)
        except ValueError:
            raise CheckError(f"memshim doctor said nothing: {said.last_words()}") from None
        devices = doctor["devices"]
        if not devices:
            raise CheckError("there is no CUDA device here; --simulated takes the simulated GPU")
        self.uuid = str(devices[0]["uuid"])
        driver = "unknown"
        try:
            folder = self.world.build / "simgpu" if self.world.simulated else None
            driver = Nvml("", folder).driver_version()
        except NvmlError as error:
            print(f"gpu_check: NVML: {error}", file=sys.stderr)
        torch = doctor["python"]["torch"]
        return {
            "device": devices[0]["name"],
            "uuid": self.uuid,
            "driver": driver,
            "simulated": self.world.simulated,
            "command": self.command(),
            "memshim": doctor["memshim"],
            "cuda": f"{doctor['cuda_version'] // 1000}.{doctor['cuda_version'] % 1000 // 10}",
            "total_bytes": devices[0]["total_bytes"],
            "kernel": platform.release(),
            "glibc": platform.libc_ver()[1],
            "python": doctor["python"]["version"],
            "torch": torch,
            "cpus": len(os.sched_getaffinity(0)),
            "card_before": card_state(self.world.simulated),
        }

    def command(self) -> str:
        limit = os.environ.get("MEMSHIM_LIMIT")
        words = [f"MEMSHIM_LIMIT={limit}"] if limit else []
        words += ["scripts/gpu_check.sh", "--minutes", f"{self.options.minutes:g}"]
        if self.options.simulated:
            words.append("--simulated")
        if len(self.options.only) < len(PARTS):
            words += [f"--only {name}" for name in self.options.only]
        return " ".join(words)

    def make_out(self, machine: dict[str, Any]) -> Path:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{machine['device']}-{machine['driver']}").strip("-")
        default = self.world.build / "gpu-check" if self.world.simulated else HERE / name
        out: Path = self.options.out or default
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / ".results.json").write_text("")
        except OSError as error:
            raise CheckError(f"--out: {error}") from None
        return out.resolve()

    def run(self) -> None:
        without = () if self.world.python else WANT_TORCH
        shares: dict[str, float] = {**PARTS}
        shares["pytorch"] = OWN_TESTS_WEIGHT if self.options.torch_tests else 0.1
        weights = [
            0.1 if part.name in without else shares[part.name] for part in self.results.parts
        ]
        for i, part in enumerate(self.results.parts):
            left_s = self.end - time.monotonic()
            part.budget_s = round(left_s * weights[i] / sum(weights[i:]), 1)
            if part.budget_s < 1:
                part.ended = "not run: no time left"
                continue
            self.run_part(part)
            self.results.write(self.world.out)
        self.results.machine["card_after"] = card_state(self.world.simulated)
        self.results.write(self.world.out)

    def run_part(self, part: PartResult) -> None:
        """Everything that the part started is ended with it."""
        begin = time.monotonic()
        deadline = begin + part.budget_s - min(SPARE_S, SPARE_SHARE * part.budget_s)
        print(f"gpu_check: {part.name} (at most {part.budget_s:.0f} s)", flush=True)
        world = World(**{**vars(self.world), "deadline": deadline})
        with (self.world.work / f"{part.name}.log").open("w+") as log:
            process = subprocess.Popen(
                [sys.executable, HERE / f"part_{part.name}.py"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **world.exported(), PREFIX + "UUID": self.uuid},
            )
            reader = threading.Thread(target=self.read, args=(part, process))
            reader.start()
            try:
                process.wait(timeout=part.budget_s)
                part.ended = "done" if process.returncode == 0 else "failed"
            except subprocess.TimeoutExpired:
                part.ended = "cut off"
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=GRACE_S)
                process.kill()
            end_descendants()
            reader.join()
            log.seek(0)
            words = log.read()
        part.seconds = round(time.monotonic() - begin, 1)
        whole: Case | None = None
        if part.ended == "failed":
            last = (words.strip().splitlines() or ["it said nothing"])[-1][:300]
            whole = Case(f"{part.name} as a whole", "fail", last, part.seconds)
        if part.ended == "cut off":
            why = f"its {part.budget_s:.0f} s were over"
            whole = Case(f"the rest of {part.name}", "skipped", why, part.seconds)
        if whole:
            part.cases.append(whole)
            tell(whole)

    def read(self, part: PartResult, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            case = part.take(line)
            if case:
                tell(case)


def known_part(text: str) -> str:
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"there is no part '{text}'; there are {', '.join(PARTS)}")
    return text


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0.1 <= value <= 24 * 60 or math.isnan(value):
        raise argparse.ArgumentTypeError(f"it takes minutes, 0.1 to 1440, not '{text}'")
    return value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", allow_abbrev=False)
    parser.add_argument(
        "--minutes", type=minutes, default=DEFAULT_MINUTES, help="the whole may take (9)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for the results (tests/gpu/<device>-<driver>)"
    )
    parser.add_argument("--build", type=Path, metavar="DIR", required=True, help="what is checked")
    parser.add_argument("--python", default="", help="an interpreter with PyTorch; none: without")
    parser.add_argument(
        "--only", action="append", type=known_part, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--torch-tests", type=Path, metavar="DIR", help="the folder test/ of PyTorch's sources"
    )
    parser.add_argument("--simulated", action="store_true", help="on the simulated GPU")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="work there, and leave it: what jobs said and left"
    )
    options = parser.parse_args(arguments)
    options.only = options.only or list(PARTS)
    options.build = options.build.resolve()
    if options.torch_tests:
        if not (options.torch_tests / "test_cuda.py").exists():
            parser.error(f"--torch-tests: there is no test_cuda.py in {options.torch_tests}")
        options.torch_tests = options.torch_tests.resolve()
    return options


def need_build(options: argparse.Namespace) -> None:
    wanted = ["libmemshim.so", "memshim", "tests/gpu/gpu_assumptions"]
    if options.simulated:
        wanted.append("simgpu/libcuda.so.1")
    for name in wanted:
        if not (options.build / name).exists():
            raise CheckError(f"--build: {options.build} has no {name}")


def work_folder(kept: Path | None) -> contextlib.AbstractContextManager[str]:
    if kept is None:
        return tempfile.TemporaryDirectory(prefix="memshim-gpu-check.")
    kept.mkdir(parents=True, exist_ok=True)
    if any(kept.iterdir()):
        raise CheckError(f"--keep: {kept} is not empty")
    return contextlib.nullcontext(str(kept.resolve()))


def main() -> int:
    options = parse(sys.argv[1:])
    adopt_orphans()
    try:
        need_build(options)
        folder = work_folder(options.keep)
    except (CheckError, OSError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    with folder as name:
        try:
            if options.simulated:
                os.environ["SIMGPU_SHARED"] = f"{name}/devices"
            check = Check(options, Path(name))
        except CheckError as error:
            print(f"gpu_check: {error}", file=sys.stderr)
            return 2

        def stop(number: int, _: object) -> None:
            end_descendants()
            check.results.write(check.world.out)
            os._exit(128 + number)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        check.run()
        results = check.results
        for row in results.targets():
            print(f"  {row['status']:<8}{row['what']}: {row['reached']} ({row['target']})")
        counted = ", ".join(f"{results.count(s)} {s}" for s in ("pass", "fail", "skipped"))
        print(f"gpu_check: {counted}; {check.world.out / 'results.md'}", flush=True)
        return 1 if results.count("fail") else 0


if __name__ == "__main__":
    sys.exit(main())
