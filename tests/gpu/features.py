# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does with device memory beyond allocating it, one thing a run: features.py NAME.

Each looks at its own results where they can be known, and says a digest of them in a JSON line,
which has to be the same with memshim and without.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

MIB = 1 << 20


class Digest:
    """Of the bytes of tensors, in the order in which they are given."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def add(self, *tensors: torch.Tensor) -> None:
        for tensor in tensors:
            self.hash.update(tensor.detach().cpu().float().numpy().tobytes())


def small_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()


def inputs(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(64, 256, generator=generator) for _ in range(count)]


def churn(rounds: int, seed: int = 9) -> None:
    """Tensors of many sizes come and go, so that memory is handed on and holes arise."""
    draw = random.Random(seed)
    live: list[torch.Tensor] = []
    for _ in range(rounds):
        live.append(torch.full((draw.randint(1, 6 * MIB),), 7, dtype=torch.uint8, device="cuda"))
        while len(live) > 12:
            live.pop(draw.randrange(len(live)))


def graph(digest: Digest) -> None:
    given = torch.zeros(64, 256, device="cuda")
    model = small_model()
    model(given)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        result = model(given)
    for data in inputs(4):
        churn(60)
        given.copy_(data)
        captured.replay()
        digest.add(result)


def graphed_callables(digest: Digest) -> None:
    model = small_model()
    sample = torch.zeros(64, 256, device="cuda", requires_grad=True)
    graphed: Any = torch.cuda.make_graphed_callables(model, (sample,))
    for data in inputs(4):
        churn(60)
        given = data.cuda().requires_grad_()
        graphed(given).square().sum().backward()
        digest.add(*(p.grad for p in model.parameters() if p.grad is not None))


def compiled_with(digest: Digest, **options: Any) -> None:
    """Graphs that the compiler captures hand out memory of their own, gradients too, which the next
    run writes anew: none is kept beyond it."""
    model = small_model()
    fast: Any = torch.compile(model, **options)
    for data in inputs(6):
        torch.compiler.cudagraph_mark_step_begin()
        fast(data.cuda()).square().sum().backward()
        digest.add(*(p.grad for p in model.parameters() if p.grad is not None))
        model.zero_grad(set_to_none=True)
        churn(40)


def compiled(digest: Digest) -> None:
    compiled_with(digest)


def reduce_overhead(digest: Digest) -> None:
    compiled_with(digest, mode="reduce-overhead")


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 16,), float(index))


def loader(digest: Digest) -> None:
    batches = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    for batch in batches:
        there = batch.cuda(non_blocking=True)
        churn(5)
        digest.add(there[0])


def side_streams(digest: Digest) -> None:
    draw = random.Random(4)
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept: list[tuple[int, torch.Tensor, torch.cuda.Stream]] = []
    for step in range(60):
        value = step % 250 + 1
        size = draw.randint(200_000, 9_000_000)
        source = torch.full((size,), value, dtype=torch.uint8).cuda()
        side = draw.choice(streams)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = torch.empty_like(source)
            copy.copy_(source, non_blocking=True)
        source.record_stream(side)
        del source
        torch.full((size,), 255, dtype=torch.uint8).cuda()
        kept.append((value, copy, side))
        if len(kept) > 6:
            value, copy, side = kept.pop(draw.randrange(len(kept)))
            side.synchronize()
            assert copy.cpu().eq(value).all(), f"step {step}: not {value}"
    torch.cuda.synchronize()
    for value, copy, _ in kept:
        assert copy.cpu().eq(value).all(), value
        digest.add(copy[:16])


def fill_shared(tensor: torch.Tensor) -> None:
    tensor.fill_(5)
    torch.cuda.synchronize()


def multiprocessing(digest: Digest) -> None:
    """A tensor of this process, written by another."""
    there = torch.ones(1 << 20, device="cuda")
    child = torch.multiprocessing.get_context("spawn").Process(target=fill_shared, args=(there,))
    child.start()
    child.join()
    assert child.exitcode == 0, f"the other process ended with {child.exitcode}"
    torch.cuda.synchronize()
    digest.add(there[:16])


def snapshot(digest: Digest) -> None:
    torch.cuda.memory._record_memory_history(max_entries=10000)
    churn(100)
    kept = torch.ones(1000, device="cuda")
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        torch.cuda.memory._dump_snapshot(file.name)
        assert os.path.getsize(file.name) > 1000  # noqa: PTH202
    found = torch.cuda.memory._snapshot()
    assert found["segments"]
    torch.cuda.memory._record_memory_history(enabled=None)
    digest.add(kept)


def mem_pool(digest: Digest) -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.full((3 * MIB,), n, dtype=torch.uint8).cuda() for n in range(4)]
    churn(100)
    for n, tensor in enumerate(inside):
        assert tensor.cpu().eq(n).all(), n
        digest.add(tensor[:16])
    del inside, tensor
    gc.collect()


def one_rank(digest: Digest) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        model = DistributedDataParallel(small_model(), device_ids=[0])
        optimizer = torch.optim.AdamW(model.parameters())
        for data in inputs(4):
            model(data.cuda()).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            churn(30)
        digest.add(*model.parameters())
        total = torch.full((1000,), 3.0).cuda()
        dist.all_reduce(total)
        digest.add(total)
        dist.destroy_process_group()


def two_communicators(digest: Digest) -> None:
    """Of one rank each, captured into one graph, replayed while memory comes and goes."""
    import torch.distributed as dist

    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        groups = [dist.group.WORLD, dist.new_group([0])]
        given = torch.zeros(1 << 20).cuda()
        result = torch.empty_like(given)
        for group in groups:
            dist.all_reduce(given, group=group)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, capture_error_mode="thread_local"):
            result.copy_(given)
            for group in groups:
                dist.all_reduce(result, group=group)
        for n in range(4):
            churn(30)
            given.copy_(torch.full((1 << 20,), float(n)))
            captured.replay()
            digest.add(result)
        torch.cuda.synchronize()
        del captured
        dist.destroy_process_group()


def recovery(digest: Digest) -> None:
    """A batch finder: halves until it fits, and computes. At a limit of a few GiB."""
    total = torch.cuda.mem_get_info()[1]
    size, tries = 64, 0
    each = total // 20
    while True:
        tries += 1
        held: list[torch.Tensor] = []
        try:
            for n in range(size):
                held.append(torch.empty(each, dtype=torch.uint8, device="cuda"))
                held[-1][:1024].copy_(torch.full((1024,), n, dtype=torch.uint8))
            break
        except torch.cuda.OutOfMemoryError:
            held.clear()
            torch.cuda.empty_cache()
            size //= 2
    for n, tensor in enumerate(held):
        assert tensor[:1024].cpu().eq(n).all(), n
    assert size == 16 and tries == 3, (size, tries)
    digest.add(held[0][:16])


FEATURES: dict[str, Callable[[Digest], None]] = {
    "graph": graph,
    "graphed-callables": graphed_callables,
    "loader": loader,
    "side-streams": side_streams,
    "snapshot": snapshot,
    "mem-pool": mem_pool,
    "one-rank": one_rank,
    "two-communicators": two_communicators,
    "recovery": recovery,
    "multiprocessing": multiprocessing,
    "compile": compiled,
    "reduce-overhead": reduce_overhead,
}


def main(arguments: Sequence[str] | None = None) -> None:
    name = (sys.argv[1:] if arguments is None else arguments)[0]
    digest = Digest()
    FEATURES[name](digest)
    torch.cuda.synchronize()
    sys.stdout.write(
        json.dumps({"event": "feature", "name": name, "digest": digest.hash.hexdigest()}) + "\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
