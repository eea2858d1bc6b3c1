# SPDX-License-Identifier: Apache-2.0
"""The library exports what the table of functions says, and the table agrees with the headers.

Arguments: the library, driver_table.h, the folder of cuda.h, CUDA_VERSION, the C compiler.
"""

import re
import subprocess
import sys
from pathlib import Path

# By these the kernel driver's files are seen, which frameworks look for.
SHOWS_FILES = {"stat", "stat64", "__xstat", "__xstat64", "access"}


def table_rows(table: Path, cuda_version: str, compiler: str) -> list[tuple[str, str, int, str]]:
    """Rows (base, symbol, version, flavour) that are there for these headers."""
    text = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", f"-DCUDA_VERSION={cuda_version}", str(table)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = re.findall(r"SIM_DRIVER\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\w+)\s*\)", text)
    return [(base, symbol, int(version), flavour) for base, symbol, version, flavour in rows]


def main() -> int:
    library, table, include, cuda_version, compiler = sys.argv[1:]
    rows = table_rows(Path(table), cuda_version, compiler)
    problems = []

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    functions = {name for name in exported if not name.startswith("simgpu_")} - SHOWS_FILES
    wanted = {symbol for _, symbol, _, _ in rows}
    problems += [f"in the table, not exported: {name}" for name in sorted(wanted - functions)]
    problems += [f"exported, not in the table: {name}" for name in sorted(functions - wanted)]

    dynamic = subprocess.run(
        ["readelf", "-d", library], check=True, capture_output=True, text=True
    ).stdout
    if "soname: [libcuda.so.1]" not in dynamic:
        problems.append("the soname is not libcuda.so.1")

    typedefs = (
        (Path(include) / "cudaTypedefs.h").read_text()
        if (Path(include) / "cudaTypedefs.h").exists()
        else ""
    )
    known = set(re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", typedefs))
    bases = {name for name, _, _ in known}  # the file of 12.4 lacks a few
    for base, symbol, version, flavour in rows:
        suffix = re.search(r"_pt[ds][sz]$", symbol)
        if (suffix is not None) != (flavour == "PER_THREAD"):
            problems.append(f"{symbol} is not {flavour}")
        key = (base, str(version), suffix.group() if suffix else "")
        if base in bases and key not in known:
            problems.append(f"cudaTypedefs.h has no PFN_{base}_v{version}{key[2]}")

    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
