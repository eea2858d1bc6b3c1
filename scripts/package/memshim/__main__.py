# SPDX-License-Identifier: Apache-2.0
"""`python -m memshim`, and the script `memshim`: become the executable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import memshim


def main() -> int:
    # `memshim run -- torchrun ...` in an environment that is not activated: its programs are found
    # behind those of PATH, so that no name changes its meaning.
    beside = str(Path(sys.prefix) / "bin")
    path = os.environ.get("PATH", os.defpath)
    if beside not in path.split(os.pathsep):
        os.environ["PATH"] = path + os.pathsep + beside
    program = memshim.executable()
    try:
        os.execv(program, ["memshim", *sys.argv[1:]])
    except OSError as error:
        print(f"memshim: cannot start {program}: {error.strerror}", file=sys.stderr)
    return 126


if __name__ == "__main__":
    sys.exit(main())
