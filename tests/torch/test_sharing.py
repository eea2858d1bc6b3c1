# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch under memshim: CUDA tensors that go to other processes by torch.multiprocessing."""

from __future__ import annotations

import sys
import tempfile
import unittest
from typing import Any

import harness

# After 2 GiB, so that memory is no longer new; written by both processes.
QUEUE = """
    import torch, torch.multiprocessing as mp

    def child(inbox, outbox):
        tensor = inbox.get()
        host = tensor.cpu()
        same = bool((host == torch.arange(host.numel()) % 251).all())
        tensor.copy_(torch.full(tensor.shape, 7))
        torch.cuda.synchronize()
        del tensor
        outbox.put(same)

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
        tensor = (torch.arange(3 << 20) % 251).cuda()
        inbox, outbox = mp.Queue(), mp.Queue()
        process = mp.Process(target=child, args=(inbox, outbox))
        process.start()
        inbox.put(tensor)
        print("the child saw it", outbox.get(timeout=150))
        process.join()
        print("written by the child", bool((tensor.cpu() == 7).all()), flush=True)
"""

# Both send, both receive, and a thread of each holds more than the cap, so that memory moves all
# the time. Tensors are of 5 MiB and a bit, at other places in each round.
MOVING = """
    import threading, torch, torch.multiprocessing as mp

    MIB, HELD, ROUNDS = 1 << 20, 12, 6

    def pattern(seed, count):
        return ((torch.arange(count, dtype=torch.int32) + seed) % 251).to(torch.uint8)

    class Churn(threading.Thread):
        def __init__(self):
            super().__init__()
            self.stop, self.turns, self.good = threading.Event(), 0, True
            self.hosts = [pattern(7 * i, 16 * MIB) for i in range(HELD)]

        def run(self):
            held = [host.cuda() for host in self.hosts]
            while not self.stop.is_set() or self.turns < HELD:
                i = 5 * self.turns % HELD
                self.good &= torch.equal(held[i].cpu(), self.hosts[i])
                held[i] = None
                held[i] = self.hosts[i].cuda()
                self.turns += 1

    def exchange(inbox, outbox, first, other):
        churn, count, good = Churn(), 5 * MIB + 512, True
        churn.start()
        for turn in range(ROUNDS):
            mine = pattern(first + turn, count).cuda()
            outbox.put(mine)
            theirs = inbox.get(timeout=200)
            good &= torch.equal(theirs.cpu(), pattern(other + turn, count))
            theirs.copy_(pattern(other + turn + 1, count))
            torch.cuda.synchronize()
            del theirs
            outbox.put("written")
            assert inbox.get(timeout=200) == "written"
            good &= torch.equal(mine.cpu(), pattern(first + turn + 1, count))
        churn.stop.set()
        churn.join()
        print(first, "exchanged", good, "held", churn.good, flush=True)

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        one, two = mp.Queue(), mp.Queue()
        process = mp.Process(target=exchange, args=(one, two, 100, 3))
        process.start()
        exchange(two, one, 3, 100)
        process.join()
        assert process.exitcode == 0
"""

# As the custom all-reduces of inference servers share their buffers: they ask where the tensor's
# allocation begins, name that, and add the offset in the other process. The tensor begins inside a
# page of 20 MiB and ends in another; with an argument, a thread holds more than the cap meanwhile.
NAMED = """
    import ctypes, sys, threading, torch, torch.multiprocessing as mp

    MIB, RANGE_START, LAZY, DEFAULT = 1 << 20, 11, 1, 4
    cuda = ctypes.CDLL(None)

    class Handle(ctypes.Structure):
        _fields_ = [("reserved", ctypes.c_ubyte * 64)]

    def pattern(seed, count):
        return ((torch.arange(count, dtype=torch.int32) + seed) % 251).to(torch.uint8)

    def name(tensor):
        base, handle = ctypes.c_uint64(), Handle()
        at = tensor.data_ptr()
        assert cuda.cuPointerGetAttribute(ctypes.byref(base), RANGE_START, ctypes.c_uint64(at)) == 0
        answer = cuda.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(base.value))
        assert answer == 0, f"cudaIpcGetMemHandle: {answer}"
        return bytes(handle.reserved), at - base.value

    def opened(name):
        at, handle = ctypes.c_void_p(), Handle.from_buffer_copy(name)
        assert cuda.cudaIpcOpenMemHandle(ctypes.byref(at), handle, LAZY) == 0
        return at.value

    def copy(to, source, count):
        assert cuda.cudaMemcpy(*map(ctypes.c_void_p, (to, source, count)), DEFAULT) == 0

    class Holder(threading.Thread):
        def __init__(self, count):
            super().__init__()
            self.stop, self.good = threading.Event(), True
            self.hosts = [pattern(7 * i, 16 * MIB) for i in range(count)]

        def run(self):
            turn, held = 0, [host.cuda() for host in self.hosts]
            while held and not (self.stop.is_set() and turn >= len(held)):
                i = 7 * turn % len(held)
                self.good &= torch.equal(held[i].cpu(), self.hosts[i])
                held[i] = None
                held[i] = self.hosts[i].cuda()
                turn += 1

    def exchange(inbox, outbox, first, other, count):
        holder = Holder(count)
        before = torch.empty(7 * MIB + 512, dtype=torch.uint8, device="cuda")
        mine = pattern(first, 30 * MIB + 512).cuda()
        behind = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        holder.start()
        outbox.put(name(mine))
        handle, offset = inbox.get(timeout=200)
        theirs, base = torch.empty_like(mine), opened(handle)
        assert opened(handle) == base
        copy(theirs.data_ptr(), base + offset, mine.numel())
        good = torch.equal(theirs.cpu(), pattern(other, mine.numel()))
        outbox.put("read")
        assert inbox.get(timeout=200) == "read"
        answer = pattern(other + 1, mine.numel())
        copy(base + offset, answer.data_ptr(), mine.numel())
        # From pageable memory it may return before the bytes have arrived.
        torch.cuda.synchronize()
        outbox.put("written")
        assert inbox.get(timeout=200) == "written"
        good &= torch.equal(mine.cpu(), pattern(first + 1, mine.numel()))
        for _ in range(2):
            assert cuda.cudaIpcCloseMemHandle(ctypes.c_void_p(base)) == 0
        holder.stop.set()
        holder.join()
        print(first, "exchanged", good and holder.good, flush=True)

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        one, two, count = mp.Queue(), mp.Queue(), int(sys.argv[1])
        process = mp.Process(target=exchange, args=(one, two, 100, 3, count))
        process.start()
        exchange(two, one, 3, 100, count)
        process.join()
        assert process.exitcode == 0
"""

# Symmetric memory of two ranks, with a multicast object over it.
SYMMETRIC = """
    import json, os, torch, torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    tensor = symmetric.empty(3 << 20, dtype=torch.float32, device=f"cuda:{rank}")
    handle = symmetric.rendezvous(tensor, dist.group.WORLD)
    tensor.copy_(torch.arange(3 << 20) + rank)
    torch.cuda.synchronize()
    dist.barrier()
    peer = handle.get_buffer(1 - rank, (3 << 20,), torch.float32).cpu()
    print(json.dumps({
        "event": "seen",
        "rank": rank,
        "multicast": handle.multicast_ptr != 0,
        "same": torch.equal(peer, torch.arange(3 << 20) + 1.0 - rank),
        "allocated": torch.cuda.memory_allocated(),
    }))
    dist.barrier()
    dist.destroy_process_group()
"""
SYMMETRIC_BYTES = 12 << 20


@harness.needs_torch
class Queue(unittest.TestCase):
    def send(self, expandable: bool, **settings: str) -> None:
        job = harness.run_memshim(
            QUEUE,
            PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
            **{"MEMSHIM_SPILL": "auto", **settings},
        )
        self.assertEqual(
            job.result.check().stdout.splitlines(),
            ["the child saw it True", "written by the child True"],
        )

    def test_a_tensor_after_two_gib(self) -> None:
        self.send(expandable=False)

    def test_a_page_in_parts(self) -> None:
        self.send(expandable=True)

    def test_a_page_in_parts_where_nothing_may_spill(self) -> None:
        self.send(expandable=True, MEMSHIM_SPILL="off")

    def test_where_taking_descriptors_is_barred(self) -> None:
        """As in containers. PyTorch takes those of expandable segments from the other process."""
        confined = [sys.executable, str(harness.ROOT / "tests" / "process" / "confined.py")]
        said = ["the child saw it True", "written by the child True"]
        plain = harness.run(QUEUE, before=confined)
        self.assertEqual(plain.check().stdout.splitlines(), said)
        job = harness.run_memshim(QUEUE, before=confined)
        self.assertEqual(job.result.check().stdout.splitlines(), said, job.result.describe())

    def test_segments_that_may_not_be_shared(self) -> None:
        job = harness.run_memshim(QUEUE, TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0)
        self.assertIn("written by the child True", job.result.check().stdout)
        self.assertIn("left off: with TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0", job.result.stderr)

    def move(self, expandable: bool) -> None:
        job = harness.run_memshim(
            MOVING,
            PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
            MEMSHIM_SPILL="auto",
            MEMSHIM_LIMIT="224MiB",
            SIMGPU_CONTEXT=64 << 20,
        )
        self.assertEqual(
            sorted(job.result.check().stdout.splitlines()),
            ["100 exchanged True held True", "3 exchanged True held True"],
        )
        self.assertEqual(len(job.reports), 2)
        for report in job.reports:
            self.assertGreater(report["devices"][0]["spill"]["spills"], 0)

    def test_while_memory_moves(self) -> None:
        self.move(expandable=False)

    def test_while_pages_move(self) -> None:
        self.move(expandable=True)


@harness.needs_torch
class Named(unittest.TestCase):
    """cudaIpcGetMemHandle on a tensor, where memshim switched expandable segments on."""

    def share(self, held: int, **settings: Any) -> harness.Job:
        job = harness.run_memshim(NAMED, str(held), **settings)
        self.assertEqual(
            sorted(job.result.check().stdout.splitlines()),
            ["100 exchanged True", "3 exchanged True"],
            job.result.describe(),
        )
        return job

    def test_without_memshim(self) -> None:
        result = harness.run(NAMED, "0").check()
        self.assertEqual(result.stdout.count("exchanged True"), 2, result.describe())

    def test_memory_is_ample(self) -> None:
        self.share(0)

    def test_while_memory_moves(self) -> None:
        job = self.share(20, MEMSHIM_SPILL="auto", MEMSHIM_LIMIT="384MiB", SIMGPU_CONTEXT=64 << 20)
        for report in job.reports:
            self.assertGreater(report["devices"][0]["spill"]["spills"], 0)


GRAPHS = """
    import ctypes, torch
    torch.zeros(1, device="cuda")
    expandable = torch.cuda.memory_snapshot()[0]["is_expandable"]
    print("expandable", expandable, "registers", ctypes.CDLL(None).simgpu_nccl_graph_register())
"""


@harness.needs_torch
class Symmetric(unittest.TestCase):
    """Each rank's part is charged to that rank, and live; the multicast object over all is none."""

    SETTINGS = {"SIMGPU_DEVICES": 2, "SIMGPU_MULTICAST": 1}

    def seen(self, result: harness.Result) -> list[dict[str, Any]]:
        return sorted(result.lines("seen"), key=lambda line: int(line["rank"]))

    def test_with_multicast(self) -> None:
        plain = self.seen(harness.run(SYMMETRIC, ranks=2, **self.SETTINGS).check())
        self.assertEqual([(line["multicast"], line["same"]) for line in plain], [(True, True)] * 2)
        job = harness.run_memshim(SYMMETRIC, ranks=2, **self.SETTINGS)
        self.assertEqual(self.seen(job.result.check()), plain, job.result.describe())
        ranks = [report for report in job.reports if report["process"]["rank"] in (0, 1)]
        self.assertEqual(len(ranks), 2)
        for report in ranks:
            devices = {device["index"]: device for device in report["devices"]}
            own = devices.pop(report["process"]["rank"])
            (other,) = devices.values()
            self.assertGreaterEqual(own["peak_live_bytes"], SYMMETRIC_BYTES)
            self.assertLess(own["peak_live_bytes"], 2 * SYMMETRIC_BYTES)
            self.assertEqual(other["peak_charged_bytes"], 0)
            for device in (own, other):
                rows = {row["name"]: row["bytes"] for row in device["peak"]["ledger"]}
                self.assertLess(rows.get("holes", 0), 4 << 20, rows)


@harness.needs_torch
class Graphs(unittest.TestCase):
    """NCCL that maps one chunk of several does not register buffers of expandable segments."""

    def check(self, expected: str, **settings: str) -> str:
        with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
            result = harness.run(
                GRAPHS, preload=harness.SHIM, MEMSHIM_OUTPUT=folder, **settings
            ).check()
        self.assertEqual(result.stdout.strip(), expected, result.stderr)
        return result.stderr

    def test_versions(self) -> None:
        for version, registers in (("22304", 1), ("23102", 0), ("23103", 1)):
            with self.subTest(version):
                said = self.check(
                    f"expandable True registers {registers}", SIMGPU_NCCL_VERSION=version
                )
                self.assertEqual(said.count("NCCL_GRAPH_REGISTER=0"), 1 - registers, said)

    def test_the_users_word(self) -> None:
        said = self.check("expandable False registers 1", NCCL_GRAPH_REGISTER="1")
        self.assertEqual(said.count("left off: NCCL_GRAPH_REGISTER is set"), 1, said)

    def test_segments_that_memshim_did_not_choose(self) -> None:
        self.check("expandable True registers 1", PYTORCH_ALLOC_CONF="expandable_segments:True")


if __name__ == "__main__":
    unittest.main()
