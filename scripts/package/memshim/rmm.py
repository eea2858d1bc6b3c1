# SPDX-License-Identifier: Apache-2.0
"""An adaptor for RMM: what a memory resource hands out is seen, at its line.

    rmm.mr.set_current_device_resource(memshim.rmm.seen(rmm.mr.PoolMemoryResource(...)))

It is RMM's own CallbackMemoryResource over the given one. Put it around a resource before that has
handed out anything: what memshim was not told of counts as free inside of a pool's blocks.
"""

from __future__ import annotations

from typing import Any

import rmm.mr

from memshim import _process


def seen(upstream: Any, device: int = 0) -> Any:  # noqa: ANN401
    """`upstream` with every allocation told to memshim; itself, where memshim is not preloaded.

    `device` is the one that upstream's memory is of.
    """
    if not _process.active():
        return upstream

    def allocate(size: int, *stream: Any) -> int:  # noqa: ANN401
        address: int = upstream.allocate(size, *stream)
        if address:
            _process.range_born(device, address, size)
        return address

    # Told before: another thread may have the memory after it.
    def deallocate(address: int, size: int, *stream: Any) -> None:  # noqa: ANN401
        if address:
            _process.range_died(device, address, size)
        upstream.deallocate(address, size, *stream)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
