# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch on the simulated GPU, without memshim: what later tests stand on."""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import forked
import harness

# In an interpreter of its own: for what PyTorch reads as it is loaded.
OWN = harness.run_workload

# What contents=none leaves in place: copies of up to 64 KiB.
SMALL_GPT = ("--layers", "2", "--width", "128", "--length", "128", "--vocabulary", "1024")
# Parameters of SMALL_GPT: embeddings of tokens and positions, two layers (two norms, four linear
# maps with biases), the last norm, the head.
SMALL_GPT_PARAMETERS = (
    1024 * 128
    + 128 * 128
    + 2 * (4 * 128 + (3 * 128 * 128 + 3 * 128) + (128 * 128 + 128) + 2 * 4 * 128 * 128 + 5 * 128)
    + 2 * 128
    + 1024 * 128
)


FIRST_CALLS = """
    import ctypes
    from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

    nccl, cuda = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcuda.so.1")

    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]

    nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, Id, c_int]
    nccl.ncclCommDestroy.argtypes = [c_void_p]
    nccl.ncclAllReduce.argtypes = [c_uint64, c_uint64, c_size_t, c_int, c_int, c_void_p, c_void_p]

    def join():
        unique, communicator = Id(), c_void_p()
        assert nccl.ncclGetUniqueId(byref(unique)) == 0
        assert nccl.ncclCommInitRank(byref(communicator), 1, unique, 0) == 0
        return communicator

    communicators = [join() for _ in range(3)]
    context, block, value = c_void_p(), c_uint64(), c_int(7)
    assert cuda.cuCtxGetCurrent(byref(context)) == 0 and context.value
    assert cuda.cuMemAlloc_v2(byref(block), c_size_t(1 << 20)) == 0
    assert cuda.cuMemcpyHtoD_v2(block, byref(value), c_size_t(4)) == 0
    for communicator in communicators:
        assert nccl.ncclAllReduce(block.value, block.value, 1, 2, 0, communicator, None) == 0
    value.value = 0
    assert cuda.cuMemcpyDtoH_v2(byref(value), block, c_size_t(4)) == 0
    assert value.value == 7, value
    for communicator in communicators[1:] + communicators[:1]:
        assert nccl.ncclCommDestroy(communicator) == 0
"""


OBJECTS = """
    import os, torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    for group in (None, dist.new_group([0, 1])):
        heard = [None, None]
        dist.all_gather_object(heard, {"rank": rank, "text": "x" * 4000 * rank}, group=group)
        assert heard == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x" * 4000}], heard
        said = [f"of {rank}", rank, list(range(50 * rank))]
        dist.broadcast_object_list(said, src=1, group=group)
        assert said == ["of 1", 1, list(range(50))], said
        parts = [None, None] if rank == 0 else None
        dist.gather_object(("of", rank), parts, dst=0, group=group)
        assert rank == 1 or parts == [("of", 0), ("of", 1)], parts
        given = [None]
        dist.scatter_object_list(given, ["a" * 9, {"b": 1}], src=0, group=group)
        assert given == [["a" * 9, {"b": 1}][rank]], given
    sent = [1, "two"] if rank == 0 else [None, None]
    (dist.send_object_list if rank == 0 else dist.recv_object_list)(sent, 1 - rank)
    assert sent == [1, "two"], sent
    dist.destroy_process_group()
"""


class Script(unittest.TestCase):
    """scripts/simgpu.sh itself; these need no PyTorch."""

    def test_exit_status_and_output_are_the_commands(self) -> None:
        result = harness.run_command(["sh", "-c", "echo out; echo err >&2; exit 7"])
        self.assertEqual((result.status, result.stdout, result.stderr), (7, "out\n", "err\n"))

    def test_a_deadly_signal_is_passed_up(self) -> None:
        result = harness.run_command(["sh", "-c", "kill -SEGV $$"])
        self.assertEqual(result.status, -signal.SIGSEGV)

    def test_signals_are_passed_down_and_the_shared_file_is_removed(self) -> None:
        source = (
            "import os, time\n"
            "try:\n"
            "    print(os.environ['SIMGPU_SHARED'], flush=True)\n"
            # Short ones: a signal just before one is seen after it.
            "    while True: time.sleep(0.1)\n"
            "except KeyboardInterrupt:\n    raise SystemExit(9)\n"
        )
        with harness.started([sys.executable, "-c", source]) as process:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().strip()).parent
            self.assertTrue(folder.is_dir())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=harness.TIMEOUT_S), 9)
        self.assertFalse(folder.exists())

    def test_an_existing_preload_comes_first(self) -> None:
        first = harness.BUILD / "simgpu" / "libnvidia-ml.so.1"
        result = harness.run_command(["sh", "-c", "echo $LD_PRELOAD"], preload=first).check()
        entries = result.stdout.strip().split(":")
        self.assertEqual(entries[0], str(first))
        self.assertIn(str(harness.BUILD / "simgpu" / "libcuda.so.1"), entries[1:])

    def test_a_missing_build_is_said(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            result = harness.run_command(["true"], MEMSHIM_BUILD=folder)
            self.assertEqual(result.status, 2)
            self.assertIn("libcuda.so.1 is missing", result.stderr)
            result = harness.run_command(["true"], MEMSHIM_BUILD=folder + "/none")
            self.assertEqual(result.status, 2)
            self.assertIn("no build folder", result.stderr)

    def test_a_command_that_is_not_there(self) -> None:
        self.assertEqual(harness.run_command(["/nowhere/command"]).status, 127)


@harness.needs_torch
class Device(unittest.TestCase):
    """What PyTorch sees of the device, and that bytes arrive."""

    def test_properties_and_copies(self) -> None:
        result = forked.run_source(
            """
            import torch
            assert torch.cuda.device_count() == 3
            properties = torch.cuda.get_device_properties(1)
            assert (properties.major, properties.minor) == (8, 9), properties
            assert properties.total_memory == 6 << 30, properties
            free, total = torch.cuda.mem_get_info(2)
            assert total == 6 << 30 and 5 << 30 < free < 6 << 30, (free, total)
            before = torch.cuda.mem_get_info(1)[0]
            block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
            assert before - torch.cuda.mem_get_info(1)[0] >= 1 << 30
            values = torch.arange(1_000_000, dtype=torch.float32)
            there = values.to("cuda:1")
            assert there.device.index == 1
            assert torch.equal(there.cpu(), values)
            other = there.to("cuda:2")
            assert torch.equal(other.cpu(), values)
            assert torch.equal(there[1000:2000].cpu(), values[1000:2000])
            there.zero_()
            torch.cuda.synchronize()
            pinned = values.pin_memory()
            assert pinned.is_pinned()
            there.copy_(pinned, non_blocking=True)
            assert torch.equal(there.cpu(), values)
            print("done")
            """,
            SIMGPU_DEVICES=3,
            SIMGPU_MEMORY="6GiB",
        ).check()
        self.assertEqual(result.stdout, "done\n")

    def test_side_streams_and_events(self) -> None:
        forked.run_source(
            """
            import torch
            side = torch.cuda.Stream()
            source = torch.arange(4096, dtype=torch.int64).pin_memory()
            done = torch.cuda.Event(enable_timing=True)
            begun = torch.cuda.Event(enable_timing=True)
            for step in range(50):
                with torch.cuda.stream(side):
                    begun.record()
                    batch = torch.empty(4096, dtype=torch.int64, device="cuda")
                    batch.copy_(source + step, non_blocking=True)
                    done.record()
                torch.cuda.current_stream().wait_stream(side)
                batch.record_stream(torch.cuda.current_stream())
                copy = torch.empty_like(batch).copy_(batch)
                del batch
                assert torch.equal(copy.cpu(), source + step), step
            side.synchronize()
            assert done.query() and begun.elapsed_time(done) >= 0
            """,
            SIMGPU_DELAY_US=200,
        ).check()

    def test_a_stream_sleeps(self) -> None:
        # By that, PyTorch's own tests find out what waits for a stream.
        forked.run_source(
            """
            import time, torch
            done = torch.cuda.Event()
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            start = time.monotonic()
            torch.cuda._sleep(500_000_000)
            done.record()
            assert not done.query()
            done.synchronize()
            assert time.monotonic() - start > 0.45
            """
        ).check()

    def test_graphs_capture_and_replay(self) -> None:
        forked.run_source(
            """
            import torch
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            static_in = torch.zeros(64, 64, device="cuda")
            static_out = torch.zeros(64, 64, device="cuda")

            def step():
                optimizer.zero_grad(set_to_none=True)
                model(static_in).sum().backward()
                optimizer.step()

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
                static_out.copy_(static_in)
            for value in (3.0, 5.0):
                static_in.copy_(torch.full((64, 64), value))
                graph.replay()
                assert torch.equal(static_out.cpu(), torch.full((64, 64), value)), value
            second = torch.cuda.CUDAGraph()
            with torch.cuda.graph(second, pool=graph.pool()):
                model(static_in)
            second.replay()
            torch.cuda.synchronize()
            """
        ).check()

    def test_out_of_memory_and_recovery(self) -> None:
        result = forked.run_source(
            """
            import torch
            kept = []
            try:
                while True:
                    kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError as error:
                text = str(error)
            assert "CUDA out of memory. Tried to allocate 256.00 MiB" in text, text
            assert "2.00 GiB" in text, text
            print(len(kept))
            kept.clear()
            torch.cuda.empty_cache()
            again = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            assert torch.cuda.memory_stats()["num_ooms"] == 1
            """,
            SIMGPU_MEMORY="2GiB",
            SIMGPU_CONTEXT="200MiB",
        ).check()
        # 2048 - 200 MiB hold seven blocks of 256 MiB.
        self.assertEqual(result.stdout, "7\n")

    def test_history_and_snapshot(self) -> None:
        forked.run_source(
            """
            import torch
            torch.cuda.memory._record_memory_history(max_entries=1000)
            kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
            snapshot = torch.cuda.memory._snapshot()
            blocks = [b for s in snapshot["segments"] for b in s["blocks"]
                      if b["state"] == "active_allocated"]
            assert [b["requested_size"] for b in blocks] == [3 << 20], blocks
            names = {f["name"] for b in blocks for f in b["frames"]}
            assert "<module>" in names, names
            """
        ).check()

    def test_convolutions(self) -> None:
        for enabled in (True, False):
            with self.subTest(cudnn=enabled):
                forked.run_source(
                    f"""
                    import torch
                    from torch import nn
                    torch.backends.cudnn.enabled = {enabled}
                    model = nn.Sequential(
                        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, stride=2), nn.GroupNorm(4, 32),
                        nn.ConvTranspose2d(32, 8, 2, stride=2), nn.Upsample(scale_factor=2),
                    ).cuda()
                    optimizer = torch.optim.AdamW(model.parameters())
                    for size in (32, 48, 32):
                        with torch.autocast("cuda", dtype=torch.float16, enabled=size == 48):
                            loss = model(torch.randn(2, 3, size, size, device="cuda")).sum()
                        loss.backward()
                        optimizer.step()
                        optimizer.zero_grad()
                    model.eval()(torch.randn(1, 3, 40, 40, device="cuda"))
                    torch.cuda.synchronize()
                    """
                ).check()

    def test_profiler_sees_the_host_and_no_device(self) -> None:
        result = forked.run_source(
            """
            import torch
            from torch.profiler import ProfilerActivity, profile
            x = torch.ones(64, 64, device="cuda")
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
                y = x @ x
                torch.cuda.synchronize()
            names = {event.key for event in profiled.key_averages()}
            assert "aten::mm" in names, names
            assert not any(event.device_time_total for event in profiled.key_averages())
            print("done")
            """,
        ).check()
        self.assertIn("done", result.stdout)

    def test_loader_workers_and_pinned_batches(self) -> None:
        harness.run(
            """
            import torch
            from torch.utils.data import DataLoader, Dataset

            class Numbers(Dataset):
                def __len__(self):
                    return 64
                def __getitem__(self, index):
                    return torch.full((300,), float(index))

            if __name__ == "__main__":
                torch.ones(1, device="cuda")
                for context in ("fork", "spawn"):
                    loader = DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True,
                                        multiprocessing_context=context)
                    seen = []
                    for batch in loader:
                        assert batch.is_pinned()
                        seen += batch.to("cuda", non_blocking=True).cpu()[:, 0].tolist()
                    assert seen == [float(i) for i in range(64)], seen
            """
        ).check()


@harness.needs_torch
class Training(unittest.TestCase):
    """One process that trains, under each of PyTorch's allocators."""

    def check_gpt(
        self,
        *arguments: str,
        start: Callable[..., harness.Result] = forked.run_plain,
        **settings: object,
    ) -> None:
        command = ("gpt.py", *SMALL_GPT, "--steps", "6", "--vary", *arguments)
        result = start(*command, **settings).check()
        (end,) = result.lines("end")
        self.assertEqual(end["steps"], 6)
        self.assertEqual(end["parameter_bytes"], 4 * SMALL_GPT_PARAMETERS)
        self.assertEqual(end["gradient_bytes"], 4 * SMALL_GPT_PARAMETERS)
        self.assertEqual(end["optimizer_bytes"], 8 * SMALL_GPT_PARAMETERS)
        self.assertGreater(end["max_allocated_bytes"], 16 * SMALL_GPT_PARAMETERS)
        self.assertLessEqual(end["max_allocated_bytes"], end["max_reserved_bytes"])

    def test_native_allocator(self) -> None:
        self.check_gpt("--checkpoint", "--autocast", "--evaluate-every", "3", "--clip", "1.0")

    def test_explicit_attention(self) -> None:
        self.check_gpt("--explicit-attention", SIMGPU_CONTENTS="none")

    def test_attention_of_newer_devices(self) -> None:
        """PyTorch takes cuDNN's there, which asks for more of an engine."""
        for capability in ("9.0", "10.0"):
            with self.subTest(capability):
                harness.run(
                    """
                    import torch
                    shape = dict(device="cuda", dtype=torch.bfloat16, requires_grad=True)
                    q = torch.randn(2, 4, 128, 64, **shape)
                    attention = torch.nn.functional.scaled_dot_product_attention
                    attention(q, q, q, is_causal=True).sum().backward()
                    assert q.grad.shape == q.shape
                    """,
                    SIMGPU_CAPABILITY=capability,
                    SIMGPU_NAME="Simulated card",
                ).check()

    def test_expandable_segments(self) -> None:
        self.check_gpt(start=OWN, PYTORCH_ALLOC_CONF="expandable_segments:True")

    def test_malloc_async_backend(self) -> None:
        self.check_gpt(start=OWN, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")

    def test_recurrent(self) -> None:
        """Weights lie where PyTorch expects them: as views of one tensor, of the shapes that it
        gave them, which it checks itself."""
        forked.run_source(
            """
            import itertools, torch
            for enabled, kind, words in itertools.product((True, False),
                (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN),
                ({}, {"bidirectional": True}, {"bias": False, "num_layers": 1})):
                torch.backends.cudnn.enabled = enabled
                model = kind(32, 64, **{"num_layers": 2, **words}).cuda()
                output, _ = model(torch.randn(10, 4, 32, device="cuda"))
                output.sum().backward()
                if enabled:
                    weights = model._flat_weights
                    assert len({w.untyped_storage().data_ptr() for w in weights}) == 1
                    places = sorted((w.storage_offset(), w.numel()) for w in weights)
                    end = 0
                    for at, count in places:
                        assert at == end, places
                        end += count
            projected = torch.nn.LSTM(32, 64, 3, proj_size=16, bidirectional=True).cuda()
            projected.eval()(torch.randn(10, 4, 32, device="cuda"))
            """
        ).check()


@harness.needs_torch
class Ranks(unittest.TestCase):
    """Two ranks: as torchrun starts them, and under torchrun."""

    def test_collectives_move_the_bytes(self) -> None:
        result = forked.run_source(
            """
            import os, torch
            import torch.distributed as dist
            rank = int(os.environ["RANK"])
            torch.cuda.set_device(rank)
            dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
            def on_device(values, dtype=torch.float32):
                return torch.tensor(values, dtype=dtype).cuda()
            x = on_device([1.0 + rank, 10.0])
            dist.all_reduce(x)
            assert x.tolist() == [3.0, 20.0], x.tolist()
            x = on_device([1.0 + rank], torch.bfloat16)
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            assert x.tolist() == [1.5]
            x = on_device([rank + 7])
            dist.broadcast(x, src=1)
            assert x.tolist() == [8.0]
            big = torch.arange(1_000_000, dtype=torch.int64) * (rank + 1)
            gathered = torch.empty(2_000_000, dtype=torch.int64, device="cuda")
            dist.all_gather_into_tensor(gathered, big.cuda())
            expected = torch.cat([torch.arange(1_000_000), torch.arange(1_000_000) * 2])
            assert torch.equal(gathered.cpu(), expected)
            part = torch.empty(1_000_000, dtype=torch.int64, device="cuda")
            dist.reduce_scatter_tensor(part, gathered)
            assert torch.equal(part.cpu(), 2 * torch.arange(1_000_000) * (rank + 1))
            if rank == 0:
                dist.send(on_device([42.0]), dst=1)
            else:
                x = on_device([0.0])
                dist.recv(x, src=0)
                assert x.tolist() == [42.0]
            out, back = on_device([rank + 0.5]), on_device([0.0])
            for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, out, 1 - rank), dist.P2POp(dist.irecv, back, 1 - rank),
            ]):
                work.wait()
            assert back.tolist() == [1.5 - rank]
            y = torch.empty(4, device="cuda")
            dist.all_to_all_single(y, on_device([4.0 * rank + i for i in range(4)]))
            assert y.tolist() == [2.0 * rank, 2.0 * rank + 1, 4 + 2.0 * rank, 5 + 2.0 * rank]
            alone = [dist.new_group([0]), dist.new_group([1])][rank]
            x = on_device([5.0 + rank])
            dist.all_reduce(x, group=alone)
            assert x.tolist() == [5.0 + rank]
            both = dist.split_group(split_ranks=[[0, 1]])
            x = on_device([1.0])
            dist.all_reduce(x, group=both)
            assert x.tolist() == [2.0]
            dist.barrier()
            dist.destroy_process_group()
            print(f"done {rank}\\n", end="")  # in one piece: ranks share the pipe
            """,
            ranks=2,
            SIMGPU_DEVICES=2,
        ).check()
        self.assertEqual(sorted(result.stdout.split("\n")), ["", "done 0", "done 1"])

    def test_default_group_of_processes(self) -> None:
        """What init_process_group() makes without being told a backend or a device."""
        result = forked.run_source(
            """
            import os, torch
            import torch.distributed as dist
            rank = int(os.environ["RANK"])
            torch.cuda.set_device(rank)
            dist.init_process_group()
            device = torch.device("cuda", rank)
            backend = dist.distributed_c10d._get_default_group()._get_backend(device)
            print(type(backend).__name__ + "\\n", end="")
            def on_device(value):
                return torch.tensor([value], device=device)
            both, reverse = dist.new_group([0, 1]), dist.new_group([1, 0])
            for group in (None, both, reverse):  # a communicator each
                x = on_device(rank + 1.0)
                dist.all_reduce(x, group=group)
                assert x.item() == 3.0, x
                x = on_device(rank + 5.0)
                dist.broadcast(x, src=1, group=group)
                assert x.item() == 6.0, x
                parts = [on_device(0.0), on_device(0.0)]
                dist.all_gather(parts, on_device(rank + 7.0), group=group)
                assert [part.item() for part in parts] == [7.0, 8.0], parts
                dist.barrier(group=group)
            dist.destroy_process_group(both)
            x = on_device(1.0)
            dist.all_reduce(x, group=reverse)
            assert x.item() == 2.0, x
            dist.destroy_process_group()
            """,
            ranks=2,
            SIMGPU_DEVICES=2,
        ).check()
        self.assertEqual(result.stdout.split(), ["ProcessGroupNCCL2"] * 2)

    def test_no_rank_says_its_device(self) -> None:
        """NCCL gives a thread without a context that of the first device, as the runtime does;
        PyTorch counts on it. Objects travel by processors."""
        forked.run_source(
            """
            import os, torch
            import torch.distributed as dist
            rank = int(os.environ["RANK"])
            dist.init_process_group("cpu:gloo,cuda:nccl")
            torch.cuda.set_device(rank)
            for group in (None, dist.new_group([1, 0])):
                x = torch.tensor([rank + 1.0]).cuda()
                dist.all_reduce(x, group=group)
                assert x.item() == 3.0, x
                heard = [None, None]
                dist.all_gather_object(heard, {"rank": rank, "text": "x" * rank}, group=group)
                assert heard == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x"}], heard
                said = [f"of {rank}", rank]
                dist.broadcast_object_list(said, src=1, group=group)
                assert said == ["of 1", 1], said
            dist.destroy_process_group()
            """,
            ranks=2,
            SIMGPU_DEVICES=2,
        ).check()

    def test_objects_travel_by_devices(self) -> None:
        """Their sizes are compared, summed and put together by kernels of PyTorch, which the
        simulated device computes."""
        forked.run_source(OBJECTS, ranks=2, SIMGPU_DEVICES=2).check()
        forked.run_memshim(OBJECTS, ranks=2).result.check()

    def test_what_small_kernels_compute(self) -> None:
        forked.run_source(
            """
            import torch
            sizes = torch.tensor([22, -5, 130]).cuda()
            each = [sizes[i].unsqueeze(0) for i in range(3)]
            assert [max(each).item(), min(each).item()] == [130, -5]
            assert [sizes.max().item(), sizes.sum().item()] == [130, 147]
            assert [(a >= b).item() for a in each for b in each] == [
                a >= b for a in (22, -5, 130) for b in (22, -5, 130)]
            assert (0 + sizes + sizes + 1).tolist() == [45, -9, 261]
            for dtype in (torch.bool, torch.uint8, torch.half, torch.float32, torch.int64):
                full = torch.full((3, 5), 1, dtype=dtype, device="cuda")
                assert full.cpu().equal(torch.ones((3, 5), dtype=dtype)), dtype
            for dtype in (torch.uint8, torch.int64, torch.float32):
                for a, b in (((3,), (4,)), ((16,), (32,)), ((2, 5), (1, 5)), ((4, 4), (8, 4))):
                    parts = [torch.rand(a).mul(99).to(dtype), torch.rand(b).mul(99).to(dtype)]
                    whole = torch.cat([part.cuda() for part in parts]).cpu()
                    assert whole.equal(torch.cat(parts)), (dtype, a, b)
            """
        ).check()

    def test_two_ranks_in_one_process(self) -> None:
        """A communicator for each device, all of them made and used by one thread."""
        forked.run_source(
            """
            import torch
            from torch.cuda import nccl
            def on(device, *values):
                return torch.tensor(values).to(f"cuda:{device}")
            both = [on(0, 1.0, 2.0), on(1, 10.0, 20.0)]
            nccl.all_reduce(both)
            assert [each.tolist() for each in both] == [[11.0, 22.0]] * 2, both
            nccl.broadcast(both)
            parts = [torch.empty(4, device="cuda:0"), torch.empty(4, device="cuda:1")]
            nccl.all_gather([on(0, 1.0, 2.0), on(1, 3.0, 4.0)], parts)
            assert [each.tolist() for each in parts] == [[1.0, 2.0, 3.0, 4.0]] * 2, parts
            sums = [torch.empty(1, device="cuda:0"), torch.empty(1, device="cuda:1")]
            nccl.reduce_scatter([on(0, 1.0, 2.0), on(1, 3.0, 4.0)], sums)
            assert [each.tolist() for each in sums] == [[4.0], [6.0]], sums
            """,
            SIMGPU_DEVICES=2,
        ).check()

    def check_ranks(
        self,
        *arguments: str,
        start: Callable[..., harness.Result] = forked.run_plain,
        **settings: object,
    ) -> list[dict[str, int]]:
        command = ("gpt.py", *SMALL_GPT, "--steps", "5", *arguments)
        result = start(*command, ranks=2, **settings).check()
        ends = sorted(result.lines("end"), key=lambda line: int(line["rank"]))
        self.assertEqual([end["rank"] for end in ends], [0, 1])
        self.assertEqual([end["steps"] for end in ends], [5, 5])
        return ends

    def test_communicators_are_a_processs_first_calls(self) -> None:
        """As under DeepSpeed; and there may be several."""
        harness.run(FIRST_CALLS).check()

    def test_ddp_on_two_devices(self) -> None:
        for end in self.check_ranks("--vary", SIMGPU_DEVICES=2):
            self.assertEqual(end["optimizer_bytes"], 8 * SMALL_GPT_PARAMETERS)

    def test_ddp_on_one_device(self) -> None:
        self.check_ranks("--vary", SIMGPU_DEVICES=1, SIMGPU_CONTENTS="none")

    def test_ddp_on_malloc_async_backend(self) -> None:
        self.check_ranks(
            start=OWN,
            SIMGPU_DEVICES=2,
            PYTORCH_ALLOC_CONF="backend:cudaMallocAsync",
            TORCH_DIST_USE_NCCL2=0,
        )

    def test_zero1_shares_the_optimizer(self) -> None:
        ends = self.check_ranks("--sharding", "zero1", SIMGPU_DEVICES=2)
        self.assertEqual(sum(end["optimizer_bytes"] for end in ends), 8 * SMALL_GPT_PARAMETERS)
        for end in ends:
            self.assertLess(end["optimizer_bytes"], 7 * SMALL_GPT_PARAMETERS)

    def test_fsdp2_shares_everything(self) -> None:
        ends = self.check_ranks("--sharding", "fsdp2", SIMGPU_DEVICES=2)
        for name, elements in (("parameter", 4), ("gradient", 4), ("optimizer", 8)):
            total = sum(end[f"{name}_bytes"] for end in ends)
            self.assertEqual(total, elements * SMALL_GPT_PARAMETERS, name)
            self.assertLess(ends[0][f"{name}_bytes"], 0.6 * total)

    @harness.thorough
    def test_expandable_segments_and_contents_off(self) -> None:
        self.check_ranks(
            start=OWN,
            SIMGPU_DEVICES=2,
            SIMGPU_CONTENTS="none",
            PYTORCH_ALLOC_CONF="expandable_segments:True",
        )

    def test_asv_transformer(self) -> None:
        result = forked.run_plain(
            "asv_transformer.py",
            *("--steps", "20", "--accumulation", "1", "--tokens", "64", "--bases", "50", "--vary"),
            ranks=2,
            SIMGPU_DEVICES=2,
            SIMGPU_CONTENTS="none",
        ).check()
        self.assertEqual([end["steps"] for end in result.lines("end")], [20, 20])
        self.assertEqual(len(result.lines("step")), 40)

    @harness.thorough
    def test_out_of_memory_ends_the_job_with_pytorchs_error(self) -> None:
        result = harness.run_workload(
            "asv_transformer.py",
            *("--steps", "2", "--accumulation", "1"),
            ranks=2,
            SIMGPU_DEVICES=2,
            SIMGPU_MEMORY="4GiB",
            SIMGPU_CONTENTS="none",
        )
        self.assertEqual(result.status, 1, result.describe())
        self.assertTrue(result.lines("out_of_memory"))
        self.assertRegex(result.stderr, re.escape("torch.OutOfMemoryError: CUDA out of memory."))


if __name__ == "__main__":
    unittest.main()
