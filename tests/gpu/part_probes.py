# SPDX-License-Identifier: Apache-2.0
"""Part 9: what other libraries and processes do with memory of the pool, and what is set on this
machine beside: NCCL, cudaIpc, cuFile, the wait of cudaFree, MIG, MPS, cgroups. What is not
installed or not set is left out by its name."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jobs import EXPANDABLE, FULL, Configuration
from world import HERE, Fail, Part, Result, Skip, World, expect, main, package_folders

HANG_S = 30.0
# By name, where they may lie; none of them is a part of CUDA's toolkit.
OTHER_LIBRARIES = {"GDRCopy": "libgdrapi.so.2", "UCX": "libucp.so.0"}
MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
MPS_DEFAULT = "/tmp/nvidia-mps"


def find(world: World, name: str) -> Path:
    """A library, beside PyTorch or the toolkit's."""
    if world.simulated:
        found = world.build / "simgpu" / name
        if found.exists():
            return found
        raise Skip(f"the simulated GPU has no {name}")
    for folder in package_folders(world):
        for path in sorted(Path(folder).glob(f"{name}*")):
            return path
    raise Skip(f"no {name} here")


def runtime(world: World) -> Path:
    for version in (13, 12):
        try:
            return find(world, f"libcudart.so.{version}")
        except Skip:
            continue
    raise Skip("no libcudart here")


def probe(world: World, name: str, *more: object, shim: bool, **settings: Any) -> Result:
    command: list[str | Path] = [sys.executable, HERE / "probes.py", name, runtime(world)]
    command += [str(word) for word in more]
    if shim:
        settings["MEMSHIM_OUTPUT"] = world.output(name)
    return world.run(command, shim=shim, timeout_s=HANG_S, **settings)


def two_communicators(part: Part) -> None:
    """Expandable segments on both sides: those of PyTorch, and those under memshim."""
    found: dict[str, object] = {}
    problems: dict[str, Exception] = {}

    def one(configuration: Configuration) -> None:
        name = configuration.name
        settings: dict[str, Any] = {**configuration.settings, "SIMGPU_CONTENTS": "full"}
        if configuration.shim:
            settings["MEMSHIM_OUTPUT"] = part.world.output("communicators")
        try:
            result = part.world.run_python(
                "features.py",
                "two-communicators",
                shim=configuration.shim,
                timeout_s=HANG_S,
                **settings,
            )
            found[name] = result.check().lines("feature")
        except (Fail, Skip) as problem:
            problems[name] = problem

    with part.case("NCCL: two communicators of one rank, captured in a graph"):
        part.world.need(5)
        part.side_by_side([partial(one, EXPANDABLE), partial(one, FULL)])
        if EXPANDABLE.name in problems:
            raise Skip(f"nor does it run without memshim: {problems[EXPANDABLE.name]}")
        if FULL.name in problems:
            raise problems[FULL.name]
        expect(found[EXPANDABLE.name] == found[FULL.name], "other results than without memshim")
        part.needs_kernels()


def ipc(part: Part) -> None:
    with part.case("cudaIpc: memory of the pool in another process"):
        part.world.need(3)
        alone = probe(part.world, "ipc", shim=False)
        if alone.status != 0:
            raise Skip(f"nor does it run without memshim: {alone.last_words()}")
        under = probe(part.world, "ipc", shim=True).check()
        expect(all(row["same"] for row in under.lines("ipc")), "other contents than were written")
        expect(alone.lines("ipc") == under.lines("ipc"), "another account than without memshim")


def cufile(part: Part) -> None:
    with part.case("cuFile: a buffer of the pool is registered"):
        part.world.need(5)
        library = find(part.world, "libcufile.so.0")
        try:
            cupti: Path | str = find(part.world, "libcupti.so")
        except Skip:
            cupti = ""
        alone = probe(part.world, "cufile", library, cupti, shim=False)
        under = probe(part.world, "cufile", library, cupti, shim=True)
        for who, result in (("without memshim", alone), ("with memshim", under)):
            rows = result.lines("cufile")
            for row in rows:
                functions = ", ".join(row.get("functions", ())) or "none that CUPTI tells"
                called = f"; calls {functions}" if "functions" in row else ""
                text = f"error {row['error']}, of the driver {row['driver']}{called}"
                part.answer(f"{row['call']}, {who}", text)
            if not rows:
                part.answer(f"cuFile, {who}", result.last_words())
        if alone.status != 0 or not alone.lines("cufile"):
            raise Skip(f"nor does it run without memshim: {alone.last_words()}")
        under.check()
        errors = [[row["error"] for row in result.lines("cufile")] for result in (alone, under)]
        expect(errors[0] == errors[1], f"it answers {errors[1]}, without memshim {errors[0]}")


def frees(part: Part) -> None:
    """One after the other: times count."""
    for who, shim in (("without memshim", False), ("with memshim", True)):
        with part.case(f"cudaFree's wait, {who}"):
            part.world.need(2)
            (row,) = probe(part.world, "frees", shim=shim).check().lines("frees")
            part.figure(f"probes/cudaFree of 64 MiB, device idle, {who}", row["free_us"], "us")
            part.figure(f"probes/cudaFree and cudaMalloc, {who}", row["cycle_us"], "us a pair")


def mps_runs() -> bool:
    return (Path(os.environ.get(MPS_PIPE, MPS_DEFAULT)) / "control").exists()


def settings(part: Part) -> None:
    """Read, never changed."""
    world = part.world
    with part.case("MIG"):
        mode = ""
        if not world.simulated and shutil.which("nvidia-smi"):
            command = [
                "nvidia-smi",
                "--id=0",
                "--query-gpu=mig.mode.current",
                "--format=csv,noheader",
            ]
            mode = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=HANG_S
            ).stdout.strip()
        part.answer("MIG", mode or "not known")
        if mode != "Enabled":
            raise Skip(f"it is not set: {mode or 'not known'}")
    with part.case("MPS"):
        part.answer("MPS", "its daemon is there" if mps_runs() else "no daemon")
        if not mps_runs():
            raise Skip("it is not set: there is no daemon")
    with part.case("cgroups' limit of device memory (dmem)"):
        files = sorted(Path("/sys/fs/cgroup").glob("**/dmem.max"))
        limits = [text for file in files if (text := file.read_text().strip())]
        part.answer("dmem.max", "; ".join(limits) if files else "this kernel has none")
        if not limits:
            raise Skip("it is not set" if files else "this kernel has none")
    for name, library in OTHER_LIBRARIES.items():
        with part.case(name):
            if not ctypes.util.find_library(library.split(".")[0].removeprefix("lib")):
                raise Skip(f"it is not installed: no {library}")
            part.answer(name, "installed")


def run(part: Part) -> None:
    frees(part)
    part.side_by_side([partial(two_communicators, part), partial(ipc, part), partial(cufile, part)])
    settings(part)


if __name__ == "__main__":
    main(run)
