# SPDX-License-Identifier: Apache-2.0
"""Jobs that die of where memory lies, of who else holds it, or of something that is not the device:
fragmentation in the forms that are left, CUDA graphs, other processes, the host."""

from __future__ import annotations

import torch
from common import BYTE, block, job, main, net, samples, step


# Each other of 40 tensors of 16 MiB is freed: 320 MiB in holes of 16 MiB, and 256 MiB never used.
@job(
    name="holes-pool-off",
    reason="fragmentation",
    verdict="fragmentation",
    when="before",
    where="setup",
    keeps="every other tensor of `held`",
    names="holds",
    mode="pool-off",
    settings="PYTORCH_ALLOC_CONF=expandable_segments:False",
)
@job(
    name="holes-off",
    reason="fragmentation",
    verdict="fragmentation",
    when="before",
    where="setup",
    keeps="every other tensor of `held`",
    names="holds",
    mode="off",
    settings="PYTORCH_ALLOC_CONF=expandable_segments:False",
)
@job(
    name="holes-no-host-road",
    reason="fragmentation",
    verdict="fragmentation",
    when="before",
    where="setup",
    keeps="every other tensor of `held`",
    names="holds",
    settings="SIMGPU_HOST_NUMA=0 PYTORCH_ALLOC_CONF=expandable_segments:False",
)
@job(
    name="holes-pool-off-cap",
    reason="fragmentation",
    verdict="fragmentation",
    when="before",
    where="setup",
    keeps="every other tensor of `held`",
    names="holds",
    mode="pool-off",
    memory_mib=4096,
    cap_mib=1024,
    settings="PYTORCH_ALLOC_CONF=expandable_segments:False",
)
@job(
    name="well-holes-native",
    reason="ends well",
    verdict="none",
    when="before",
    where="setup",
    keeps="nobody: the pool moves chunks from holes",
    names="none",
    settings="PYTORCH_ALLOC_CONF=expandable_segments:False",
)
@job(
    name="well-holes-tensor",
    reason="ends well",
    verdict="none",
    when="before",
    where="setup",
    keeps="nobody: the pool moves chunks from holes",
    names="none",
    mode="tensor",
)
def holes(_batch: int) -> None:
    whole = block(640)
    del whole  # PyTorch keeps the segment and splits it
    held: list[torch.Tensor | None] = []
    for _ in range(40):
        held.append(torch.empty(16 << 20, dtype=BYTE, device="cuda"))  # culprit
    held[::2] = [None] * 20
    large = block(400)
    del held, large


@job(
    name="well-recovers",
    reason="ends well",
    verdict="none",
    when="before",
    where="setup",
    keeps="nobody: the half of it fits",
    names="none",
)
def recovers(_batch: int) -> None:
    try:
        large = block(1200)
    except torch.OutOfMemoryError:
        large = block(600)
    del large


# 512 MiB of a graph's own pool are free between replays, and no other tensor may have them.
@job(
    name="graph-pool-holes",
    reason="CUDA graphs' pools",
    verdict="fragmentation",
    when="first",
    where="forward",
    keeps="the graph `replayed`: its pool stays",
    names="asks",
)
@job(
    name="graph-pool-holes-cap",
    reason="CUDA graphs' pools",
    verdict="fragmentation",
    when="first",
    where="forward",
    keeps="the graph `replayed`: its pool stays",
    names="asks",
    memory_mib=4096,
    cap_mib=1024,
)
@job(
    name="graph-pool-holes-pool-off",
    reason="CUDA graphs' pools",
    verdict="fragmentation",
    when="first",
    where="forward",
    keeps="the graph `replayed`: its pool stays",
    names="asks",
    mode="pool-off",
)
def graph_holes(_batch: int) -> None:
    replayed = torch.cuda.CUDAGraph()
    with torch.cuda.graph(replayed):
        inside = block(512)
        del inside
    replayed.replay()
    large = torch.empty(600 << 20, dtype=BYTE, device="cuda")  # culprit
    del large


@job(
    name="graphs-per-shape",
    reason="CUDA graphs' pools",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the dictionary `graphs`: a pool for each shape",
)
@job(
    name="graphs-per-shape-spill",
    reason="CUDA graphs' pools",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the dictionary `graphs`: a pool for each shape",
    spill_mib=256,
)
def graph_each_shape(_batch: int) -> None:
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
    for number in range(100):
        step(model, optimizer, samples(256))
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            result = model(samples(2048 + 64 * number))  # culprit
        graphs[number] = graph, result
        graph.replay()


@job(
    name="other-process",
    reason="another process",
    verdict="other_process",
    when="before",
    where="setup",
    keeps="another process, 500 MiB",
    names="none",
    settings="SIMGPU_OTHER=cuMemCreate@1=500MiB",
)
@job(
    name="other-process-tensor",
    reason="another process",
    verdict="other_process",
    when="before",
    where="setup",
    keeps="another process, 500 MiB",
    names="none",
    mode="tensor",
    settings="SIMGPU_OTHER=cuMemCreate@1=500MiB",
)
@job(
    name="other-process-large",
    reason="another process",
    verdict="other_process",
    when="before",
    where="setup",
    keeps="another process, 900 MiB",
    names="none",
    settings="SIMGPU_OTHER=cuMemCreate@1=900MiB SIMGPU_MEMORY=1424MiB",
)
@job(
    name="other-process-off",
    reason="another process",
    verdict="other_process",
    when="before",
    where="setup",
    keeps="another process, 500 MiB",
    names="none",
    mode="off",
    settings="SIMGPU_OTHER=cuMemCreate@1=500MiB",
)
def beside_another(_batch: int) -> None:
    held = [block(100) for _ in range(6)]
    del held


# The leak would have met the device's end anyway; the other process only made it sooner.
@job(
    name="leak-beside-another",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    settings="SIMGPU_OTHER=cuMemCreate@1=300MiB",
)
def leak_beside_another(batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses: list[torch.Tensor] = []
    for _ in range(400):
        step(model, optimizer, samples(batch))
        losses.append(model(samples(batch)).mean())  # culprit


# The driver refuses to make memory, though it has it.
@job(
    name="driver-refuses",
    reason="not the device",
    verdict="not_device",
    when="before",
    where="setup",
    keeps="nobody: the driver refuses with memory free",
    names="asks",
    settings="SIMGPU_FAIL=cuMemCreate@*=2",
)
@job(
    name="driver-refuses-tensor",
    reason="not the device",
    verdict="not_device",
    when="before",
    where="setup",
    keeps="nobody: the driver refuses with memory free",
    names="asks",
    mode="tensor",
    settings="SIMGPU_FAIL=cuMemCreate@*=2",
)
@job(
    name="driver-refuses-pool-off",
    reason="not the device",
    verdict="not_device",
    when="before",
    where="setup",
    keeps="nobody: the driver refuses with memory free",
    names="asks",
    mode="pool-off",
    settings="SIMGPU_FAIL=cuMemAlloc@*=2 PYTORCH_ALLOC_CONF=expandable_segments:False",
)
def refused(_batch: int) -> None:
    first = torch.empty(200 << 20, dtype=BYTE, device="cuda")  # culprit
    del first


# Pinned host memory, not the device's: the driver refuses a page-locked buffer.
@job(
    name="pinned-host",
    reason="pinned host",
    verdict="not_device",
    when="tenth",
    where="forward",
    keeps="the host: no more memory can be page-locked",
    names="asks",
    settings="SIMGPU_FAIL=cuMemHostAlloc@8-999=2",
)
@job(
    name="pinned-host-tensor",
    reason="pinned host",
    verdict="not_device",
    when="tenth",
    where="forward",
    keeps="the host: no more memory can be page-locked",
    names="asks",
    mode="tensor",
    settings="SIMGPU_FAIL=cuMemHostAlloc@8-999=2",
)
@job(
    name="pinned-host-pool-off",
    reason="pinned host",
    verdict="not_device",
    when="tenth",
    where="forward",
    keeps="the host: no more memory can be page-locked",
    names="asks",
    mode="pool-off",
    settings="SIMGPU_FAIL=cuMemHostAlloc@8-999=2",
)
def pinned(_batch: int) -> None:
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches: list[torch.Tensor] = []
    for _ in range(20):
        step(model, optimizer, samples(256))
        batches.append(torch.empty(1 << 20, pin_memory=True))  # culprit


# PyTorch's own limit, of a quarter, refuses what device and cap would allow.
@job(
    name="own-fraction",
    reason="the cap",
    verdict="cap",
    when="before",
    where="setup",
    keeps="PyTorch's own fraction, a quarter of the device",
    names="asks",
)
@job(
    name="own-fraction-late",
    reason="the cap",
    verdict="cap",
    when="before",
    where="setup",
    keeps="PyTorch's own fraction, a quarter of the device",
    names="asks",
    memory_mib=2048,
)
def own_fraction(_batch: int) -> None:
    torch.cuda.set_per_process_memory_fraction(0.25)
    first = block(100)
    second = torch.empty(480 << 20, dtype=BYTE, device="cuda")  # culprit
    del first, second


if __name__ == "__main__":
    main()
