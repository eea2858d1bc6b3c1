# SPDX-License-Identifier: Apache-2.0
"""Part 8: is every function that starts work on the device behind the gate? Its names are compared
with those that CUPTI, NVIDIA's own tracer, knows for this driver."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from world import Fail, Part, Skip, World, expect, main

# CUpti_CallbackDomain, and how its functions name what they know.
DRIVER_API = 1
LAST_ID = 2000
# Names of calls that queue work or copy; CUPTI knows them with their suffixes.
STARTS = re.compile(
    r"cu(Launch|Memcpy|Memset|MemPrefetch|MemDiscard|MemBatchDecompress|GraphLaunch|StreamWaitValue|"
    r"StreamWriteValue|StreamBatchMemOp|StreamAddCallback|StreamAttachMem)"
)
# Those that ask about or prepare work and start none.
STARTS_NOTHING = re.compile(r"cuLaunchAttribute|cuMemcpy.*(Get|Set)Attribute")


def find_cupti(world: World) -> Path | str:
    name = "libcupti.so"
    if world.python:
        result = world.run(
            [world.python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"]
        )
        packages = Path(result.stdout.strip()).parent.parent
        for path in sorted(packages.glob("nvidia/*/lib/libcupti.so.*")):
            return path
    for pattern in ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"):
        for path in sorted(Path(pattern).glob(f"{name}*")):
            return path
    return name


# In a process of its own: it loads the driver, and ends badly where there is none.
ASK = f"""
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for number in range(1, {LAST_ID}):
    text = ctypes.c_char_p()
    if library.cuptiGetCallbackName({DRIVER_API}, number, ctypes.byref(text)) != 0:
        break
    print((text.value or b"").decode())
"""


def names(world: World) -> list[str]:
    """Of the driver's functions, as CUPTI numbers them."""
    if world.simulated:
        raise Skip("CUPTI knows the real driver only")
    result = world.run([sys.executable, "-c", ASK, str(find_cupti(world))])
    found = [line for line in result.stdout.splitlines() if line.startswith("cu")]
    if not found:
        raise Skip(f"no CUPTI that names them here: {result.last_words()}")
    return found


# CUPTI numbers functions that no driver exports any more (cuMemcpy_v2): nobody can call them.
EXPORTED = """
import ctypes, sys
library = ctypes.CDLL("libcuda.so.1")
print(*[name for name in sys.argv[1:] if hasattr(library, name)])
"""


def exported(world: World, names: list[str]) -> list[str]:
    return world.run([sys.executable, "-c", EXPORTED, *names]).check().stdout.split()


def covered(world: World) -> dict[str, str]:
    """What memshim does with each function that it stands in front of."""
    rows = world.run([world.cli, "coverage", "--markdown"]).check().stdout.splitlines()
    parsed = [[cell.strip(" `") for cell in row.split("|")] for row in rows if row.count("|") >= 5]
    return {row[1]: row[3] for row in parsed if row[1].startswith("cu")}


def run(part: Part) -> None:
    world = part.world
    known: dict[str, str] = {}
    with part.case("gate: memshim tells what it stands in front of"):
        known = covered(world)
        expect(len(known) > 100, f"{len(known)} functions are few")
        part.figure("gate/functions", len(known))
    with part.case("gate: all that CUPTI knows to start work passes it"):
        asked = names(world)
        starts = [n for n in asked if STARTS.match(n) and not STARTS_NOTHING.match(n)]
        missing = exported(world, sorted(name for name in starts if name not in known))
        part.figure("gate/CUPTI's functions that start work", len(starts))
        if missing:
            raise Fail(f"{len(missing)} of {len(starts)} do not: {', '.join(missing)}")


if __name__ == "__main__":
    main(run)
