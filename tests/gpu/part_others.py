# SPDX-License-Identifier: Apache-2.0
"""Part 10: frameworks other than PyTorch compute the same, capped, with their memory in the
report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from world import GIB, HERE, MIB, NO_KERNELS, Part, Skip, World, expect, main, reports


@dataclass(frozen=True)
class Framework:
    """A job of others.py. Without memshim JAX would take most of the device at its start."""

    job: str
    module: str
    alone: dict[str, Any]
    under: dict[str, Any]
    by_lines: bool = True  # its arrays are seen at their lines of Python


ALL_AT_ONCE = {"XLA_PYTHON_CLIENT_ALLOCATOR": "default"}
IN_PARTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
FRAMEWORKS = {
    "cupy": Framework("cupy", "cupy", {}, {}),
    "jax, as memshim chooses": Framework("jax", "jax", IN_PARTS, {}),
    "jax, its own allocator": Framework("jax", "jax", IN_PARTS, ALL_AT_ONCE, by_lines=False),
    "numba": Framework("numba", "numba.cuda", {}, {}),
}
LIMIT_BYTES = 4 * GIB
# What NVIDIA's libraries may hold beside a framework's own memory: workspaces.
BESIDE_BYTES = 256 * MIB


def installed(world: World, python: str, module: str) -> bool:
    probe = (
        "import importlib.util as u, sys\n"
        "try: found = u.find_spec(sys.argv[1])\n"
        "except ImportError: found = None\n"
        "sys.exit(not found)"
    )
    return world.run([python, "-c", probe, module]).status == 0


def try_one(part: Part, name: str, framework: Framework) -> None:
    world = part.world
    python = world.python or sys.executable
    if not installed(world, python, framework.module):
        raise Skip(f"{framework.module} is not installed")
    if world.simulated:
        raise Skip(NO_KERNELS)
    command: list[str | Path] = [python, str(HERE / "others.py"), framework.job]
    alone = world.run(command, timeout_s=60, **framework.alone)
    if alone.status != 0:
        raise Skip(f"nor does it run without memshim: {alone.last_words()}")
    output = world.output(framework.job)
    under = world.run(
        command,
        shim=True,
        timeout_s=60,
        MEMSHIM_LIMIT=LIMIT_BYTES,
        MEMSHIM_OUTPUT=output,
        **framework.under,
    ).check()
    (one,), (other,) = alone.lines("other"), under.lines("other")
    expect(one["digest"] == other["digest"], "other results than without memshim")
    (report,) = reports(output)
    device = report["devices"][0]
    expect(device["allocations"] > 0, "the report knows of no allocation")
    expect(device["peak_charged_bytes"] <= LIMIT_BYTES, "more was charged than the limit")
    seen(part, name, device["peak_live_bytes"], other["own_bytes"])
    if framework.by_lines:
        files = {frame["file"] or "" for site in report["call_sites"] for frame in site["frames"]}
        expect(any(file.endswith("others.py") for file in files), "no line of its Python is named")


def seen(part: Part, name: str, live_bytes: int, own_bytes: int | None) -> None:
    part.figure(f"others/{name}, peak live", live_bytes / MIB, "MiB")
    if own_bytes is None:
        part.answer(f"what {name} holds, by itself", "it does not tell")
        return
    part.figure(f"others/{name}, as it tells itself", own_bytes / MIB, "MiB")
    beside = live_bytes - own_bytes
    expect(0 <= beside <= BESIDE_BYTES, f"{live_bytes} bytes live, {own_bytes} by its own account")


def run(part: Part) -> None:
    def tried(name: str, framework: Framework) -> None:
        with part.case(f"other frameworks: {name}"):
            part.world.need(5)
            try_one(part, name, framework)

    part.side_by_side([partial(tried, name, one) for name, one in FRAMEWORKS.items()])


if __name__ == "__main__":
    main(run)
