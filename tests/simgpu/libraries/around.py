# SPDX-License-Identifier: Apache-2.0
"""Runs a command with what a dry run puts around it; `memshim dry-run` starts this.

Usage: around.py [--world N DEVICES] [--weights FOLDER MADE] [--data FILE] -- COMMAND...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import data_stub
import one_rank


def link_weights(folder: Path, made: Path) -> None:
    """In the private layer, so that they are gone with it."""
    for file in made.iterdir():
        (folder / file.name).symlink_to(file)


def main(arguments: list[str]) -> int:
    split = arguments.index("--")
    options, command = arguments[:split], arguments[split + 1 :]
    world = devices = 0
    while options:
        option = options.pop(0)
        if option == "--world":
            world, devices = int(options.pop(0)), int(options.pop(0))
        elif option == "--weights":
            link_weights(Path(options.pop(0)), Path(options.pop(0)))
        else:
            data_stub.main(Path(options.pop(0)))
    if not world:
        os.execvp(command[0], command)
    status: int = one_rank.run(world, devices, command)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
