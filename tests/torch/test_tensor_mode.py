# SPDX-License-Identifier: Apache-2.0
"""Tensor mode: each tensor is a cudaMallocAsync; and what PyTorch is told to be like."""

from __future__ import annotations

import importlib.metadata
import json
import unittest
from typing import Any

import harness

BACKEND = "backend:cudaMallocAsync"

# What PyTorch tells of its memory at every step. `reserved` is how much a pool keeps, which is the
# pool's own affair, but for what must hold of it.
STATISTICS = """
    import json, torch

    def state():
        torch.cuda.synchronize()
        allocated, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        reserved, most_reserved = torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()
        assert allocated <= reserved <= most_reserved, (allocated, reserved, most_reserved)
        assert allocated <= most
        steps.append([allocated, most])

    steps = []
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    state()
    odd = torch.zeros(1001, dtype=torch.uint8, device="cuda")
    state()
    tensors = [torch.zeros(n << 16, device="cuda") for n in range(1, 60, 7)]
    state()
    del tensors[::2]
    state()
    torch.cuda.empty_cache()
    state()
    del tensors, odd
    state()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    state()
    assert torch.cuda.max_memory_reserved() == 0
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.25)
    refused = 0
    try:
        torch.zeros(total // 4 + (1 << 20), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        refused = 1
    assert refused
    fits = torch.zeros(total // 4 - (1 << 20), dtype=torch.uint8, device="cuda")
    state()
    print(json.dumps(steps))
"""

# Bytes travel from the host to a tensor, on one stream, and from there to another on a second,
# which runs late; the first tensor's memory is asked for again meanwhile.
SIDE_STREAMS = """
    import random, sys, torch
    random.seed(3)
    streams = [torch.cuda.Stream() for _ in range(3)]
    size, more = int(sys.argv[1]), int(sys.argv[2])
    kept = []
    for step in range(60):
        value = step % 250 + 1
        source = torch.full((size + random.randrange(more),), value, dtype=torch.uint8).cuda()
        side = random.choice(streams)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = torch.empty_like(source)
            copy.copy_(source, non_blocking=True)
        source.record_stream(side)
        del source
        noise = torch.full((size,), 255, dtype=torch.uint8).cuda()
        del noise
        kept.append((value, copy, side))
        if len(kept) > 6:
            value, copy, side = kept.pop(random.randrange(len(kept)))
            side.synchronize()
            assert copy.cpu().eq(value).all(), (step, value)
            del copy
    torch.cuda.synchronize()
    for value, copy, _ in kept:
        assert copy.cpu().eq(value).all(), value
    print("bytes hold")
"""

GRAPH = """
    import torch
    size = 2 << 20
    given = torch.zeros(size, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        between = given.clone()
        result = between.clone()
        del between
    for value in (7, 9):
        given.copy_(torch.full((size,), value, dtype=torch.uint8))
        others = [torch.full((size,), n, dtype=torch.uint8).cuda() for n in range(9)]
        graph.replay()
        torch.cuda.synchronize()
        assert result.cpu().eq(value).all(), value
        # What the graph frees is its own, and nobody else's.
        assert all(other.cpu().eq(n).all() for n, other in enumerate(others)), value
        del others
    print("replayed")
"""

SHARED = """
    import os, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    model = DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[rank])
    for _ in range(3):
        model(torch.randn(64, 512).cuda()).sum().backward()
    total = torch.full((1000,), rank + 1.0).cuda()
    dist.broadcast(total, src=1)
    assert total.cpu().eq(2.0).all()
    dist.destroy_process_group()
    print("trained")
"""


@harness.needs_torch
class TensorMode(unittest.TestCase):
    def test_statistics_are_those_of_the_drivers_own_pool(self) -> None:
        job = harness.run_memshim(STATISTICS, MEMSHIM_TORCH="tensor")
        plain = harness.run(STATISTICS, PYTORCH_ALLOC_CONF=BACKEND)
        ours = json.loads(job.result.check().stdout.splitlines()[-1])
        self.assertEqual(ours, json.loads(plain.check().stdout.splitlines()[-1]))
        report = job.only()
        self.assertEqual(report["process"]["torch_mode"], "tensor")
        self.assertTrue(any("backend:cudaMallocAsync was switched" in n for n in report["notes"]))
        version = importlib.metadata.version("torch")
        self.assertIn(f"   PyTorch {version}", job.texts[0])

    def test_side_streams(self) -> None:
        # Tensors of whole chunks leave no idle rest that would serve the next one.
        for size, more, limit in (
            (200_000, 5000, "480MiB"),
            (8 << 20, 1, None),
            (8 << 20, 1, "480MiB"),
        ):
            with self.subTest(size=size, limit=limit):
                job = harness.run_memshim(
                    SIDE_STREAMS,
                    str(size),
                    str(more),
                    SIMGPU_DELAY_US="0-2000",
                    MEMSHIM_LIMIT=limit,
                    MEMSHIM_TORCH="tensor",
                )
                self.assertIn("bytes hold", job.result.check().stdout)

    def test_graph(self) -> None:
        job = harness.run_memshim(GRAPH, SIMGPU_DELAY_US="0-300", MEMSHIM_TORCH="tensor")
        self.assertIn("replayed", job.result.check().stdout)

    def test_ranks(self) -> None:
        job = harness.run_memshim(SHARED, ranks=2, SIMGPU_DEVICES=2, MEMSHIM_TORCH="tensor")
        self.assertEqual(job.result.check().stdout.count("trained"), 2)
        self.assertEqual([r["process"]["torch_mode"] for r in job.reports], ["tensor"] * 2)

    def test_the_programs_own_word_wins(self) -> None:
        source = """
            import os
            os.environ["PYTORCH_ALLOC_CONF"] = "backend:native,max_split_size_mb:64"
            import torch
            torch.zeros(10, device="cuda")
            print(torch.cuda.get_allocator_backend(), os.environ["PYTORCH_ALLOC_CONF"])
        """
        job = harness.run_memshim(source, MEMSHIM_TORCH="tensor")
        self.assertIn("native backend:native,max_split_size_mb:64", job.result.check().stdout)


@harness.needs_torch
class NativeSettings(unittest.TestCase):
    SOURCE = """
        import os, sys
        for setting in sys.argv[1:]:
            os.environ[setting.split("=")[0]] = setting.split("=", 1)[1]
        before = dict(os.environ)
        import torch
        import torch.distributed
        torch.zeros(10, device="cuda")
        print(torch.cuda.get_allocator_backend(),
              torch.cuda.memory_snapshot()[0]["is_expandable"],
              dict(os.environ) == before, os.environ.get("TORCH_DIST_USE_NCCL2"))
    """

    def check(self, expected: str, *settings: str, **environment: Any) -> None:
        job = harness.run_memshim(self.SOURCE, *settings, **environment)
        self.assertEqual(job.result.check().stdout.strip(), expected)

    def test_switched_on_and_nothing_else_changed(self) -> None:
        self.check("native True True None")

    def test_merged_at_run_time(self) -> None:
        self.check("native True True None", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64")

    def test_the_users_word_wins(self) -> None:
        self.check("native False True None", "PYTORCH_ALLOC_CONF=expandable_segments:False")
        self.check("native False True None", PYTORCH_CUDA_ALLOC_CONF="backend:native")

    def test_not_where_pytorch_would_give_up_a_registration(self) -> None:
        self.check("native False True None", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=1")

    def test_not_where_a_device_cannot_map(self) -> None:
        self.check("native False True None", SIMGPU_NO_VMM=1)

    def test_the_user_switches_them_on(self) -> None:
        on = "expandable_segments:True"
        self.check("native True True None", MEMSHIM_POOL="off", PYTORCH_ALLOC_CONF=on)
        self.check("native True True None", MEMSHIM_TORCH="off", PYTORCH_ALLOC_CONF=on)

    def test_off(self) -> None:
        self.check("native False True None", MEMSHIM_TORCH="off")
        self.check("native False True None", MEMSHIM_POOL="off")


if __name__ == "__main__":
    unittest.main()
