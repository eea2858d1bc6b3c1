# SPDX-License-Identifier: Apache-2.0
"""The runtime doubles' exports, read by nm -D.

    test_exports.py nodes FOLDER    every export carries the version node named as its soname
    test_exports.py torch FOLDER    everything that PyTorch's wheels import from libcudart is there

Exit status 77: skipped, with the reason on standard output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
SONAMES = ("libcudart.so.12", "libcudart.so.13")
CUDART_NAME = re.compile(r"^(?P<name>\w+)@+(?P<node>libcudart\.so\.\d+)$")


def dynamic_symbols(library: Path, *options: str) -> set[str]:
    """Names with their version nodes ("cudaMalloc@@libcudart.so.13") as nm -D prints them."""
    listing = subprocess.run(
        ["nm", "-D", *options, str(library)], check=True, capture_output=True, text=True
    )
    return {line.split()[-1] for line in listing.stdout.splitlines() if line.strip()}


def check_nodes(folder: Path) -> list[str]:
    problems = []
    for soname in SONAMES:
        symbols = dynamic_symbols(folder / soname, "--defined-only")
        functions = {symbol for symbol in symbols if symbol != soname}
        if not any(symbol.startswith("cudaMalloc@@") for symbol in functions):
            problems.append(f"{soname}: cudaMalloc is not exported")
        problems += [
            f"{soname}: {symbol} is exported, and not as a function of version {soname}"
            for symbol in sorted(functions)
            if not re.fullmatch(rf"(__)?cuda\w+@@{re.escape(soname)}", symbol)
        ]
        undefined = dynamic_symbols(folder / soname, "--undefined-only")
        problems += [
            f"{soname}: {symbol} is linked, not looked up"
            for symbol in sorted(undefined)
            if re.match(r"cu[A-Z]", symbol)
        ]
    return problems


def torch_libraries() -> list[Path]:
    venv = Path(os.environ.get("MEMSHIM_VENV") or Path(__file__).resolve().parents[4] / ".venv")
    return sorted(venv.glob("lib/python3*/site-packages/torch/lib/*.so"))


def check_torch(folder: Path, libraries: list[Path]) -> list[str]:
    exports = {soname: dynamic_symbols(folder / soname, "--defined-only") for soname in SONAMES}
    wanted: set[tuple[str, str]] = set()
    for library in libraries:
        for symbol in dynamic_symbols(library, "--undefined-only"):
            match = CUDART_NAME.match(symbol)
            if match:
                wanted.add((match["name"], match["node"]))
    if not wanted:
        return [f"no library in {libraries[0].parent} imports anything from libcudart"]
    print(f"{len(wanted)} functions are imported from libcudart")
    return [
        f"{name}@{node} is imported by PyTorch and not exported"
        for name, node in sorted(wanted)
        if f"{name}@@{node}" not in exports.get(node, set())
    ]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("nodes", "torch"):
        print(__doc__)
        return 2
    folder = Path(arguments[1])
    if arguments[0] == "nodes":
        problems = check_nodes(folder)
    else:
        libraries = torch_libraries()
        if not libraries:
            print("skipped: no PyTorch in MEMSHIM_VENV or .venv")
            return SKIPPED
        problems = check_torch(folder, libraries)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
