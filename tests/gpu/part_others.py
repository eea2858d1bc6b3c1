# SPDX-License-Identifier: Apache-2.0
"""Part 4: frameworks other than PyTorch compute the same, capped, with call sites, and reported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from world import GIB, HERE, NO_KERNELS, Part, Skip, World, expect, main, reports

# The module that has to be there, and what is set for both runs.
FRAMEWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "cupy": ("cupy", {}),
    "jax": ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "numba": ("numba.cuda", {}),
}
LIMIT_BYTES = 4 * GIB


def installed(world: World, python: str, module: str) -> bool:
    probe = (
        "import importlib.util as u, sys\n"
        "try: found = u.find_spec(sys.argv[1])\n"
        "except ImportError: found = None\n"
        "sys.exit(not found)"
    )
    return world.run([python, "-c", probe, module]).status == 0


def try_one(part: Part, name: str) -> None:
    world = part.world
    module, settings = FRAMEWORKS[name]
    python = world.python or sys.executable
    if not installed(world, python, module):
        raise Skip(f"{module} is not installed")
    if world.simulated:
        raise Skip(NO_KERNELS)
    command: list[str | Path] = [python, str(HERE / "others.py"), name]
    alone = world.run(command, timeout_s=60, **settings)
    if alone.status != 0:
        raise Skip(f"nor does it run without memshim: {alone.last_words()}")
    output = world.output(name)
    under = world.run(
        command,
        shim=True,
        timeout_s=60,
        MEMSHIM_LIMIT=LIMIT_BYTES,
        MEMSHIM_OUTPUT=output,
        **settings,
    ).check()
    expect(alone.lines("other") == under.lines("other"), "other results than without memshim")
    (report,) = reports(output)
    device = report["devices"][0]
    expect(device["allocations"] > 0, "the report knows of no allocation")
    expect(device["peak_charged_bytes"] <= LIMIT_BYTES, "more was charged than the limit")
    framed = [site for site in report["call_sites"] if site["frames"]]
    expect(bool(framed), "no call site has a stack")


def run(part: Part) -> None:
    for name in FRAMEWORKS:
        with part.case(f"other frameworks: {name}"):
            part.world.need(5)
            try_one(part, name)


if __name__ == "__main__":
    main(run)
