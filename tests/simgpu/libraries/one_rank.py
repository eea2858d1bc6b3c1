# SPDX-License-Identifier: Apache-2.0
"""One rank of a large world, alone: PyTorch's store, and a launcher's environment.

NCCL's double makes what the others would bring of what this rank brings (SIMGPU_NCCL_ALONE)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType


def environment(world: int, devices: int, port: int) -> dict[str, str]:
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "WORLD_SIZE": str(world),
        "ROLE_WORLD_SIZE": str(world),
        "GROUP_WORLD_SIZE": str(max(1, world // devices)),
        "LOCAL_WORLD_SIZE": str(min(world, devices)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # The store is this process's: the rank does not wait in its own until all have come.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "SIMGPU_NCCL_ALONE": "1",
    }


def run(world: int, devices: int, command: Sequence[str]) -> int:
    """The command's status, as a shell has it."""
    try:
        import torch.distributed as dist
    except ImportError as error:
        sys.exit(f"memshim dry-run: --ranks-of needs PyTorch with torch.distributed: {error}")
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    process = subprocess.Popen(
        command, env=os.environ | environment(world, devices, int(store.port))
    )

    def pass_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    status = process.wait()
    return 128 - status if status < 0 else status
