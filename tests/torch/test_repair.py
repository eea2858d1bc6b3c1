# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs whose tensors are stamped while memshim takes the holes between them all the while.

Each runs at a limit that lies well below what PyTorch holds: without taking holes it cannot end.
A wrong byte, a fault or an unmapped tensor ends it (stamp/stamp.c); what the job wrote itself it
looks at itself. Streams run with random delays.
"""

from __future__ import annotations

import re
import unittest
from typing import Any

import harness

MIB = 1 << 20
CONTEXT = 64 * MIB
CONFS = ("expandable_segments:False", "expandable_segments:True")

# churn: tensors of sizes that change from phase to phase; `limit` bytes of them live at a time.
# Kept: bytes that came from the host and are compared with what is on the device later.
PRELUDE = """
    import ctypes, gc, json, random, sys, threading, torch
    MIB = 1 << 20
    LARGEST = ((4096, 1 << 16, 1 << 18, MIB), (MIB, 3 * MIB, 6 * MIB, 9 * MIB),
               (2048, 1 << 19, 5 * MIB, 14 * MIB))
    stamp = ctypes.CDLL(None)

    def churn(live, rounds, limit, draw, device="cuda", use=None):
        held = sum(tensor.numel() for tensor in live)
        for i in range(rounds):
            size = draw.randint(1, draw.choice(LARGEST[i * 6 // rounds % 3]))
            while live and (held + size > limit or draw.random() < 0.2):
                held -= live.pop(draw.randrange(len(live))).numel()
            live.append(torch.empty(size, dtype=torch.uint8, device=device))
            held += size
            if draw.random() < 0.1:
                other = draw.choice(live)
                n = min(other.numel(), live[-1].numel())
                live[-1][:n].copy_(other[:n])
            if use is not None and draw.random() < 0.2:
                use(live[-1])

    def host_bytes(size, draw):
        return torch.frombuffer(bytearray(draw.randbytes(size)), dtype=torch.uint8)

    class Kept:
        def __init__(self, size, draw, device="cuda"):
            self.host = host_bytes(size, draw)
            self.there = torch.empty(size, dtype=torch.uint8, device=device)
            self.there.copy_(self.host)

        def check(self):
            assert torch.equal(self.there.cpu(), self.host)

    def end(device=0, **more):
        gc.collect()
        torch.cuda.synchronize()
        stamp.stamp_check()
        print(json.dumps({"event": "end", "reserved": torch.cuda.max_memory_reserved(device),
                          "allocated": torch.cuda.max_memory_allocated(device), **more}),
              flush=True)
"""

# Nothing in it depends on how fast the streams are.
SAME = """
    draw, live = random.Random(5), []
    kept = [Kept(draw.randint(1, 4 * MIB), draw) for _ in range(6)]
    for _ in range(2):
        churn(live, 700, 110 * MIB, draw)
        for one in kept:
            one.check()
    del live[::2]
    torch.cuda.empty_cache()
    churn(live, 300, 110 * MIB, draw)
    end(stats=torch.cuda.memory_stats())
"""

# Three threads on streams of their own; another stream uses what they free at once.
THREADS = """
    def work(seed, failed):
        try:
            draw = random.Random(seed)
            own, other = torch.cuda.Stream(), torch.cuda.Stream()
            with torch.cuda.stream(other):
                scratch = torch.empty(14 * MIB, dtype=torch.uint8, device="cuda")

            def use(tensor):
                other.wait_stream(own)
                with torch.cuda.stream(other):
                    scratch[: tensor.numel()].copy_(tensor)
                    tensor.record_stream(other)

            with torch.cuda.stream(own):
                kept = [Kept(draw.randint(1, 2 * MIB), draw) for _ in range(3)]
                live = []
                churn(live, 500, 40 * MIB, draw, use=use)
                for one in kept:
                    one.check()
                live.clear()
            own.synchronize()
            other.synchronize()
        except BaseException as error:
            failed.append(repr(error))
            raise

    failed = []
    threads = [threading.Thread(target=work, args=(seed, failed)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    end()
"""

# Graphs that share a private pool, replayed between phases of churn. What a graph frees while it is
# captured it uses in every replay.
GRAPHS = """
    draw, live = random.Random(8), []
    pool = torch.cuda.graph_pool_handle()
    captured = []
    churn(live, 100, 40 * MIB, draw)  # while a stream captures nothing is taken: not short yet
    for size in (3 * MIB, 700_000, 5 * MIB):
        given = torch.empty(size, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            first = given.clone()
            wide = torch.empty(2 * size, dtype=torch.uint8, device="cuda")
            wide[size:].copy_(first)
            del first
            result = wide[size:].clone()
            del wide
        captured.append((graph, given, result))

    def replay():
        for graph, given, result in captured:
            data = host_bytes(given.numel(), draw)
            given.copy_(data)
            graph.replay()
            assert torch.equal(result.cpu(), data)

    replay()
    churn(live, 500, 90 * MIB, draw)
    replay()
    live.clear()
    churn(live, 500, 90 * MIB, draw)
    replay()
    torch.cuda.empty_cache()
    replay()

    live.clear()
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    layers = torch.cuda.make_graphed_callables(
        layers.cuda(), (torch.randn(32, 64, device="cuda", requires_grad=True),))
    for _ in range(3):
        layers(torch.randn(32, 64).cuda().requires_grad_()).sum().backward()
        churn(live, 60, 60 * MIB, draw)
    del graph, given, result
    captured.clear()
    gc.collect()
    churn(live, 200, 90 * MIB, draw)
    end()
"""

# A private pool is set back to an earlier state: PyTorch reports deaths of tensors that live on and
# births of what lived all along.
CHECKPOINTS = """
    draw, live = random.Random(9), []

    def capture(size, pool=None):
        given = torch.empty(size, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            spare = torch.empty(size, dtype=torch.uint8, device="cuda")
            spare.copy_(given)
            result = spare.clone()
            del spare
        return graph, given, result

    def replay(captured):
        graph, given, result = captured
        data = host_bytes(given.numel(), draw)
        given.copy_(data)
        graph.replay()
        assert torch.equal(result.cpu(), data)
        return data

    def set_back(state):
        # Nobody stamps what PyTorch says is born here: it holds a live tensor's bytes.
        torch.cuda.synchronize()
        stamp.stamp_pause(1)
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        stamp.stamp_pause(0)

    churn(live, 100, 40 * MIB, draw)  # while a stream captures nothing is taken: not short yet
    first = capture(3 * MIB)
    pool = first[0].pool()
    data = replay(first)
    state = torch._C._cuda_getCheckpointState(0, pool)
    set_back(state)
    churn(live, 400, 90 * MIB, draw)
    assert torch.equal(first[2].cpu(), data)
    second = capture(2 * MIB, pool)
    replay(second)
    del second
    gc.collect()
    set_back(state)
    live.clear()
    churn(live, 400, 90 * MIB, draw)
    assert torch.equal(first[2].cpu(), data)
    live.clear()
    third = capture(1 * MIB, pool)
    data = replay(first)
    other = replay(third)
    churn(live, 400, 90 * MIB, draw)
    assert torch.equal(first[2].cpu(), data) and torch.equal(third[2].cpu(), other)
    end()
"""

EMPTIED = """
    import torch
    MIB = 1 << 20
    blocks = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    del blocks
    with torch.cuda.graph(torch.cuda.CUDAGraph()):  # empties the cache before it begins
        there = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
        there.copy_(torch.zeros_like(there))
"""

TREES = """
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    draw, live = random.Random(10), []

    def graphed(function, *examples):
        # Inputs are read where they are: to copy them is a kernel's work, and kernels do nothing.
        made = cudagraphify_impl(function, list(examples), (0,), device_index=0,
                                 is_backward=False, is_inference=True, stack_traces=[None, None])
        def call(*inputs):
            stamp.stamp_pause(1)   # what a checkpoint bears again holds live bytes
            try:
                return made(list(inputs))
            finally:
                stamp.stamp_pause(0)
        return call

    def copies(inputs):
        spare = inputs[0].clone()
        wide = torch.empty(2 * spare.numel(), dtype=torch.uint8, device="cuda")
        wide[: spare.numel()].copy_(spare)
        inputs.clear()
        return [spare, wide[: spare.numel()].clone()]

    given = Kept(3 * MIB, draw)
    one, two, three = (graphed(copies, given.there) for _ in range(3))
    for step in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        data = host_bytes(3 * MIB, draw)
        given.there.copy_(data)
        a, b = one(given.there)
        churn(live, 150, 90 * MIB, draw)
        c, d = two(b) if step < 2 or step == 4 else three(b)  # a branch, recorded later
        churn(live, 150, 90 * MIB, draw)
        for result in (a, b, c, d):
            assert torch.equal(result.cpu(), data), step
        del a, b, c, d, result
    end()
"""

DEVICES = """
    meet = threading.Barrier(2)

    def work(device, failed):
        try:
            draw = random.Random(20 + device)
            torch.cuda.set_device(device)
            there, live, guests = 1 - device, [], []
            for _ in range(3):
                kept = [Kept(draw.randint(1, 3 * MIB), draw, f"cuda:{device}") for _ in range(4)]
                churn(live, 250, 90 * MIB, draw, f"cuda:{device}")
                # However the machine is loaded, a device holds what both want of it at once.
                meet.wait()
                across = [one.there.to(f"cuda:{there}") for one in kept]
                churn(guests, 100, 30 * MIB, draw, f"cuda:{there}")
                for one, copy in zip(kept, across):
                    one.check()
                    assert torch.equal(copy.cpu(), one.host)
        except BaseException as error:
            failed.append(repr(error))
            meet.abort()
            raise
    failed = []
    threads = [threading.Thread(target=work, args=(device, failed)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for device in (0, 1):
        torch.cuda.synchronize(device)
    end(1)
    end(0)
"""

# Until nothing goes any more, three times.
OUT_OF_MEMORY = """
    draw, live = random.Random(14), []
    kept = [Kept(draw.randint(1, 2 * MIB), draw) for _ in range(4)]
    filled = []
    for phase in range(3):
        churn(live, 400, 100 * MIB, draw)
        refused = 0
        while refused < 12:
            size = draw.randint(1, draw.choice(LARGEST[phase]) >> refused // 2)
            try:
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                refused += 1
        filled.append(torch.cuda.memory_allocated())
        for one in kept:
            one.check()
        del live[::2], live[::2]
    churn(live, 400, 100 * MIB, draw)
    stats = torch.cuda.memory_stats()
    end(filled=filled, ooms=stats["num_ooms"], retries=stats["num_alloc_retries"])
"""

# What PyTorch tells of its own allocator, and where it refuses by itself.
FEATURES = """
    import collections, tempfile
    draw, live = random.Random(16), []
    torch.cuda.memory._record_memory_history(max_entries=100000)
    churn(live, 400, 90 * MIB, draw)
    snapshot = torch.cuda.memory._snapshot()
    segments = sorted([s["total_size"], s["allocated_size"], s["segment_type"], s["is_expandable"],
                       [[b["size"], b["state"]] for b in s["blocks"]]]
                      for s in snapshot["segments"])
    actions = collections.Counter(e["action"] for e in snapshot["device_traces"][0])
    with tempfile.NamedTemporaryFile() as file:
        torch.cuda.memory._dump_snapshot(file.name)
    torch.cuda.memory._record_memory_history(enabled=None)

    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.empty(3 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
        kept = Kept(MIB, draw)
    churn(live, 300, 90 * MIB, draw)
    kept.check()
    pooled = sorted(s["total_size"] for s in pool.snapshot())
    del inside, kept, pool
    gc.collect()

    torch.cuda.set_per_process_memory_fraction(0.5)
    held = []
    try:
        while True:
            held.append(torch.empty(4 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        fraction = [len(held), "of which" in str(error)]
    held.clear()
    torch.cuda.set_per_process_memory_fraction(1.0)
    churn(live, 200, 90 * MIB, draw)
    end(segments=segments, actions=actions, pooled=pooled, fraction=fraction,
        stats=torch.cuda.memory_stats())
"""

# Until a segment does not fit, or until PyTorch's own limit.
REFUSED = """
    import sys, torch
    if sys.argv[1] == "fraction":
        torch.cuda.set_per_process_memory_fraction(0.5)
    held = []
    try:
        while True:
            held.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
"""

RANKS = """
    import os, torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset
    if __name__ == "__main__":
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        draw, live = random.Random(30 + rank), []
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.arange(64 * 512, dtype=torch.float32).reshape(64, 512))
        for step, (batch,) in enumerate(DataLoader(data, 8, num_workers=1, pin_memory=True)):
            there = batch.cuda(non_blocking=True)
            churn(live, 100, 80 * MIB, draw)
            model(there).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            assert torch.equal(there.cpu(), batch)
            shared = Kept(MIB, random.Random(step)) if rank == 0 else None
            got = shared.there if shared else torch.empty(MIB, dtype=torch.uint8, device="cuda")
            dist.broadcast(got, 0)
            churn(live, 100, 80 * MIB, draw)
            assert torch.equal(got.cpu(), host_bytes(MIB, random.Random(step)))
        dist.barrier()
        dist.destroy_process_group()
        end(rank, rank=rank)
"""


def stamped(result: harness.Result) -> list[dict[str, int]]:
    """What the stamping preload counted, of each process that stamped."""
    lines = re.findall(r"(?m)^stamp: (births .*)$", result.stderr)
    return [
        {name.strip(): int(value) for name, value in re.findall(r"([a-z ]+) (\d+)", line)}
        for line in lines
    ]


@harness.needs_torch
class HolesTaken(unittest.TestCase):
    def check(self, job: str, limit: int, births: int, **settings: Any) -> list[dict[str, Any]]:
        run = harness.run_stamped(
            PRELUDE + job,
            MEMSHIM_LIMIT=limit,
            SIMGPU_CONTEXT=CONTEXT,
            **settings,
        )
        ends = run.result.check().lines("end")
        self.assertGreater(len(ends), 0)
        for end in ends:
            # What PyTorch held at once was more than there was for it.
            self.assertGreater(end["reserved"], limit - CONTEXT)
        for counts in stamped(run.result):
            self.assertGreater(counts["births"], births)
            self.assertGreater(counts["verified"], births * 9 // 10)
            self.assertGreater(counts["words right"], 10 * births)
        for device in [device for report in run.reports for device in report["devices"]]:
            self.assertLessEqual(device["peak_charged_bytes"], limit)
        return ends

    def check_each_kind(self, job: str, limit: int, births: int, **settings: Any) -> None:
        for conf in CONFS:
            with self.subTest(conf):
                self.check(job, limit, births, PYTORCH_ALLOC_CONF=conf, **settings)

    @harness.thorough
    def test_pytorchs_own_account_is_as_with_ample_memory(self) -> None:
        for conf in CONFS:
            with self.subTest(conf):
                alone = harness.run_stamped(PRELUDE + SAME, shim=False, PYTORCH_ALLOC_CONF=conf)
                ample = alone.result.check().lines("end")
                short = self.check(SAME, CONTEXT + 176 * MIB, 1500, PYTORCH_ALLOC_CONF=conf)
                self.assertEqual(short, ample)

    @harness.thorough
    def test_snapshots_pools_and_fractions_are_as_without_the_shim(self) -> None:
        """With ample memory for both: half of what there is is PyTorch's own limit."""
        room: dict[str, Any] = {
            "SIMGPU_CONTEXT": CONTEXT,
            "SIMGPU_MEMORY": "700MiB",
            "PYTORCH_ALLOC_CONF": CONFS[1],
        }
        alone = harness.run_stamped(PRELUDE + FEATURES, shim=False, **room)
        under = harness.run_stamped(PRELUDE + FEATURES, MEMSHIM_FRACTION="1", **room)
        ample = alone.result.check().lines("end")
        self.assertEqual(under.result.check().lines("end"), ample)
        self.assertGreater(ample[0]["fraction"][0], 20)

    def test_threads_and_streams(self) -> None:
        self.check_each_kind(THREADS, CONTEXT + 280 * MIB, 1400)

    def test_graphs_in_private_pools(self) -> None:
        self.check_each_kind(GRAPHS, CONTEXT + 170 * MIB, 1500)

    def test_checkpointed_pools(self) -> None:
        self.check_each_kind(CHECKPOINTS, CONTEXT + 170 * MIB, 1200)

    def test_a_capture_after_the_cache_was_emptied(self) -> None:
        """What cudaFree gave back before the capture is handed out during it."""
        harness.run(
            EMPTIED,
            preload=harness.SHIM,
            MEMSHIM_TRACE="off",
            MEMSHIM_LIMIT=CONTEXT + 170 * MIB,
            SIMGPU_CONTEXT=CONTEXT,
            PYTORCH_ALLOC_CONF=CONFS[0],
        ).check()

    def test_graph_trees(self) -> None:
        self.check(TREES, CONTEXT + 170 * MIB, 1400, PYTORCH_ALLOC_CONF=CONFS[0])

    def test_two_devices(self) -> None:
        self.check(DEVICES, CONTEXT + 190 * MIB, 2000, SIMGPU_DEVICES=2)

    def test_out_of_memory_only_when_all_is_used(self) -> None:
        room = 180 * MIB
        for conf in CONFS:
            with self.subTest(conf):
                settings = {"PYTORCH_ALLOC_CONF": conf, "MEMSHIM_SPILL": "off"}
                end = self.check(OUT_OF_MEMORY, CONTEXT + room, 1600, **settings)[0]
                self.assertGreaterEqual(end["ooms"], 36)
                # PyTorch asks for 20 MiB at a time.
                for filled in end["filled"]:
                    self.assertGreater(filled, (room - 20 * MIB) * 9 // 10)

    def test_why_it_was_refused(self) -> None:
        """PyTorch puts such tensors into 20 MiB at a time; 10 MiB are left for the sixth."""
        why = {
            "page": "asked for 2.0 MiB (PyTorch asked the driver for 20.0 MiB), 10.0 MiB short of",
            "fraction": "PyTorch itself refused: either set_per_process_memory_fraction allows",
            "setting": "PyTorch itself refused: per_process_memory_fraction in PYTORCH_ALLOC_CONF",
        }
        for conf, case, other in (
            (CONFS[1], "page", "fraction"),
            (CONFS[0], "fraction", "page"),
            (f"{CONFS[0]},per_process_memory_fraction:0.5", "setting", "fraction"),
        ):
            with self.subTest(conf=conf, case=case):
                run = harness.run(
                    REFUSED,
                    case,
                    preload=harness.SHIM,
                    MEMSHIM_TRACE="off",
                    MEMSHIM_LIMIT=CONTEXT + 110 * MIB,
                    MEMSHIM_SPILL="off",
                    SIMGPU_CONTEXT=CONTEXT,
                    PYTORCH_ALLOC_CONF=conf,
                )
                said = run.check().stderr
                self.assertIn(why[case], said)
                self.assertNotIn(why[other], said)

    def test_ranks_and_pinned_batches(self) -> None:
        self.check(RANKS, CONTEXT + 150 * MIB, 1500, ranks=2, SIMGPU_DEVICES=2)


if __name__ == "__main__":
    unittest.main()
