# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch under memshim: its tensors seen from below, the cap, out-of-memory, same results."""

from __future__ import annotations

import re
import unittest
from typing import Any

import forked
import harness

MIB = 1 << 20
GIB = 1 << 30
DEVICE_BYTES = 24 * GIB

# Every road that a tensor takes: sizes of both of PyTorch's pools, side streams, record_stream,
# backward, emptied caches, a private pool, a graph. Sizes come from the host's random numbers.
CHURN = """
    import gc, json, random, sys, threading, torch
    random.seed(7)
    device = torch.device("cuda")
    steps = []

    def note(name):
        torch.cuda.synchronize()
        steps.append([name, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
                      torch.cuda.memory_reserved()])

    def churn(rounds, largest, live):
        for _ in range(rounds):
            live.append(torch.empty(random.randint(1, largest), dtype=torch.uint8, device=device))
            while len(live) > 40:
                live.pop(random.randrange(len(live)))

    live = []
    churn(300, 3000, live)
    note("small")
    churn(200, 30 << 20, live)
    note("large")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        churn(100, 8 << 20, live)
        for tensor in live[:10]:
            tensor.record_stream(side)
        del tensor
    live.clear()
    note("side")
    torch.cuda.empty_cache()
    note("emptied")

    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256, device=device) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for length in (64, 500, 31, 900):
        loss = model(torch.randn(length, 256).to(device)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    del loss
    note("backward")

    thread = threading.Thread(target=churn, args=(50, 1 << 20, live))
    thread.start()
    thread.join()
    note("thread")

    if "pools" in sys.argv:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = [torch.empty(5 << 20, dtype=torch.uint8, device=device) for _ in range(3)]
        note("pool")
        del inside, pool
        graph = torch.cuda.CUDAGraph()
        static = torch.zeros(1 << 20, device=device)
        with torch.cuda.graph(graph):
            grown = torch.cat([static, static])
            static.copy_(grown[: 1 << 20])
            del grown
        for _ in range(3):
            graph.replay()
        note("graph")
        del graph, static
    gc.collect()
    data = torch.arange(1 << 16, dtype=torch.int32)
    there = data.to(device)
    copied = torch.empty_like(there)
    copied.copy_(there)
    same = bool(torch.equal(copied.cpu(), data))
    note("copies")
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    print(json.dumps({"event": "job", "steps": steps, "same": same,
                      "sum": int(copied.cpu().sum(dtype=torch.int64)),
                      "retries": torch.cuda.memory_stats().get("num_alloc_retries")}))
    print(json.dumps({"event": "info", "free": free, "total": total,
                      "properties_total": properties.total_memory}), flush=True)
"""


def peak_of(job: dict[str, Any]) -> int:
    return max(int(step[2]) for step in job["steps"])


@harness.needs_torch
class SeenFromBelow(unittest.TestCase):
    """What PyTorch counts and what the report says agree to the byte, and the cap holds."""

    def check_churn(self, **settings: Any) -> None:
        job = harness.run_memshim(CHURN, "pools", MEMSHIM_FRACTION="0.5", **settings)
        said = job.result.check().lines("job")[0]
        info = job.result.lines("info")[0]
        report = job.only()
        device = report["devices"][0]
        tensors = device["tensors"]
        self.assertTrue(said["same"])
        self.assertEqual(tensors["peak_live_bytes"], peak_of(said))
        self.assertEqual(device["peak_live_bytes"], peak_of(said))
        self.assertGreater(tensors["births"], 650)
        self.assertGreaterEqual(tensors["births"], tensors["deaths"])
        cap = DEVICE_BYTES // 2
        self.assertEqual(device["cap_bytes"], cap)
        self.assertEqual((info["total"], info["properties_total"]), (cap, cap))
        self.assertLess(info["free"], cap)
        self.assertLessEqual(device["peak_charged_bytes"], cap)
        self.assertGreaterEqual(device["peak_reserved_bytes"], peak_of(said))
        self.assertEqual(report["oom_events"], [])
        self.assertEqual(report["process"]["torch_mode"], "native")
        self.assertEqual(report["trace"]["lost_events"], 0)
        self.assertTrue(report["trace"]["sums_exact"])

    def test_native_segments(self) -> None:
        self.check_churn()

    def test_expandable_segments(self) -> None:
        self.check_churn(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")

    @harness.thorough
    def test_expandable_segments_by_the_new_name(self) -> None:
        self.check_churn(PYTORCH_ALLOC_CONF="expandable_segments:True")

    def test_births_are_deaths_and_what_lives(self) -> None:
        source = """
            import json, os, torch
            live = [torch.empty(1000, device="cuda") for _ in range(30)]
            for _ in range(70):
                torch.empty(5000, device="cuda")
            print(json.dumps({"event": "end", "bytes": torch.cuda.memory_allocated(),
                              "births": torch.cuda.memory_stats()["allocation.all.allocated"]}),
                  flush=True)
            os._exit(0)
        """
        job = harness.run_memshim(source)
        end = job.result.check().lines("end")[0]
        tensors = job.only()["devices"][0]["tensors"]
        self.assertEqual(tensors["births"], end["births"])
        self.assertEqual(tensors["births"] - tensors["deaths"], 30)
        self.assertEqual(tensors["births"], 100)

    def test_two_devices_are_told_apart(self) -> None:
        source = """
            import json, torch
            a = torch.empty(3 << 20, dtype=torch.uint8, device="cuda:0")
            b = torch.empty(9 << 20, dtype=torch.uint8, device="cuda:1")
            print(json.dumps({"event": "end",
                              "peaks": [torch.cuda.max_memory_allocated(d) for d in (0, 1)]}))
        """
        job = forked.run_memshim(source, SIMGPU_DEVICES=2, MEMSHIM_FRACTION="0:0.5,1:0.25")
        peaks = job.result.check().lines("end")[0]["peaks"]
        self.assertEqual(peaks, [3 * MIB, 9 * MIB])
        devices = job.only()["devices"]
        self.assertEqual([d["tensors"]["peak_live_bytes"] for d in devices], peaks)
        self.assertEqual([d["cap_bytes"] for d in devices], [12 * GIB, 6 * GIB])


@harness.needs_torch
class SameResults(unittest.TestCase):
    """What a job prints, PyTorch's own counters included, is the same with and without the shim."""

    def check_same(self, settings: dict[str, Any], *shims: dict[str, Any]) -> None:
        alone = harness.run(CHURN, "pools", **settings).check()
        for shim in shims:
            with self.subTest(shim=shim):
                under = harness.run_memshim(CHURN, "pools", **settings, **shim).result.check()
                self.assertEqual(alone.lines("job"), under.lines("job"))
                self.assertEqual(self.said(alone), self.said(under))

    def said(self, result: harness.Result) -> str:
        """What the job said on stderr, without memshim's lines and the name of its folder."""
        lines = re.sub(r"(?m)^memshim: .*\n", "", result.stderr)
        return re.sub(r"\S+/script\.py", "script.py", lines)

    def test_native(self) -> None:
        self.check_same({}, {"MEMSHIM_POOL": "off"}, {"MEMSHIM_TORCH": "off"})

    def test_native_where_the_user_leaves_expandable_segments_off(self) -> None:
        self.check_same({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, {})

    def test_a_job_in_which_a_warning_is_an_error(self) -> None:
        # The thread's product is warned of where it has no current context; cudaMalloc gives one.
        source = """
            import threading, warnings
            warnings.simplefilter("error")
            import torch
            print(torch.ones(1 << 20).cuda().cpu().sum().item())
            def multiply():
                square = torch.empty(4096, 4096, device="cuda")
                square @ square
            thread = threading.Thread(target=multiply)
            thread.start()
            thread.join()
        """
        for result in (harness.run(source), harness.run_memshim(source).result):
            self.assertEqual(result.check().stdout, "1048576.0\n")
            self.assertEqual(self.said(result), "")

    def test_where_another_library_stands_before_cuda_malloc(self) -> None:
        """PyTorch asks it for segments, with memshim as without."""
        simgpu: dict[str, Any] = {
            "LD_LIBRARY_PATH": harness.BUILD / "simgpu",
            "PYTHONPATH": harness.ROOT / "scripts" / "package",
        }
        alone = harness.run(SAVED, str(SAVER), LD_PRELOAD=SAVER, **simgpu).check()
        job = harness.run_memshim(SAVED, str(SAVER), LD_PRELOAD=SAVER, **simgpu)
        self.assertEqual(job.result.check().lines("end"), alone.lines("end"))
        (end,) = alone.lines("end")
        self.assertEqual((end["slept"], end["woke"], end["same"]), (16 * MIB, 16 * MIB, True))
        self.assertEqual(job.result.stderr.count("left off: another library"), 1)
        live = [each["bytes"] for each in job.result.lines("live")]
        self.assertEqual(live, [0, 16 * MIB], "asleep, and awake")
        device = job.only()["devices"][0]
        self.assertEqual(device["peak_live_bytes"], 16 * MIB)

    def test_expandable(self) -> None:
        self.check_same({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, {})

    @harness.thorough
    def test_async_backend_and_what_it_does_not_report(self) -> None:
        conf: dict[str, Any] = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
        alone = harness.run(CHURN, **conf).check().lines("job")[0]
        job = harness.run_memshim(CHURN, **conf)
        under = job.result.check().lines("job")[0]
        # The pool's reserved bytes are the driver's own affair; what is in use is not.
        self.assertEqual(
            [step[:3] for step in alone["steps"]], [step[:3] for step in under["steps"]]
        )
        self.assertEqual(alone["sum"], under["sum"])
        self.assertEqual(job.result.stderr.count("PyTorch reported no tensor"), 1)
        text = job.texts[0]
        self.assertNotIn("live tensors", text)
        self.assertNotIn("\n  tensors: ", text)
        self.assertFalse(job.only()["devices"][0].get("tensors"))


# Its argument is a library that stands before cudaMalloc and lets what it handed out sleep.
SAVED = """
    import ctypes, json, memshim, sys, torch
    saver = ctypes.CDLL(sys.argv[1])
    kept = torch.full((16 << 20,), 7, dtype=torch.uint8).cuda()
    free = [torch.cuda.mem_get_info()[0]]
    for change in (saver.saver_sleep, saver.saver_wake):
        assert change() == 0
        free.append(torch.cuda.mem_get_info()[0])
        if memshim.active():
            print(json.dumps({"event": "live", "bytes": memshim.stats().live_bytes}))
    print(json.dumps({"event": "end", "slept": free[1] - free[0], "woke": free[1] - free[2],
                      "same": bool((kept.cpu() == 7).all())}))
"""
SAVER = harness.BUILD / "tests" / "process" / "libsleep_saver.so"

# Wants 1 GiB at a time until it has `count`; the batch finder of Lightning and accelerate.
OOM = """
    import json, sys, torch
    held = []
    for _ in range(30):
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
"""

FINDER = """
    import json, torch
    size, tries = 16, 0
    while True:
        tries += 1
        try:
            held = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(size)]
            break
        except torch.OutOfMemoryError:
            held = None
            torch.cuda.empty_cache()
            size //= 2
    print(json.dumps({"event": "end", "size": size, "tries": tries}))
"""

RETRY = """
    import json, torch
    cached = [torch.empty(512 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
    del cached
    large = torch.empty(1100 << 20, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    print(json.dumps({"event": "end", "retries": stats["num_alloc_retries"],
                      "ooms": stats["num_ooms"]}))
"""


# As PyTorch's own test_out_of_memory_retry: twice a half does not fit beside the context.
HALVES = """
    import json, torch
    size = torch.cuda.get_device_properties(0).total_memory // 2
    first, second = torch.empty(size, dtype=torch.int8, device="cuda"), None
    try:
        second = torch.empty(size, dtype=torch.int8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    served = second is not None
    del first, second
    again = torch.empty(size, dtype=torch.int8, device="cuda")
    print(json.dumps({"event": "end", "served": served}))
"""


# PyTorch holds a free tail, mapped for an earlier tensor. What it asks for next begins there, and
# with the pages that it lacks would be more than there is.
TAIL = """
    import json, torch
    def new(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    kept, tail = new(600), new(700)
    del tail
    try:
        more, served = new(1500), True
    except torch.OutOfMemoryError:
        more, served = new(900), False
    print(json.dumps({"event": "end", "served": served}))
"""

# The free tail is another stream's, so that all of it can be had for the request.
OTHER_TAIL = """
    import json, torch
    def new(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    kept = new(600)
    with torch.cuda.stream(torch.cuda.Stream()):
        stays, tail = new(1), new(700)
        del tail
    more = new(900)
    print(json.dumps({"event": "end"}))
"""


# PyTorch refuses by its own fraction: once after the driver has answered another call of the thread
# with an error, once after a tensor was served in between.
OTHER_ERROR = """
    import ctypes, torch
    def too_much():
        try:
            return torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            return None
    torch.cuda.set_per_process_memory_fraction(0.1)
    kept = torch.empty(1 << 20, device="cuda")
    nothing = ctypes.c_ulonglong(0)
    assert ctypes.CDLL("libcuda.so.1").cuMemMap(*[nothing] * 5) != 0
    too_much()
    more = torch.empty(1 << 20, device="cuda")
    too_much()
"""

GRAD_MODES = """
    import torch
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            try:
                torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                pass
"""


@harness.needs_torch
class OutOfMemory(unittest.TestCase):
    def test_fatal_as_without_the_shim(self) -> None:
        alone = harness.run(OOM, SIMGPU_MEMORY="4GiB")
        job = forked.run_memshim(OOM, MEMSHIM_LIMIT="4GiB")
        self.assertEqual(job.result.status, alone.status)
        for result in (alone, job.result):
            self.assertIn("torch.OutOfMemoryError: CUDA out of memory.", result.stderr)
            self.assertIn("Tried to allocate 1024.00 MiB", result.stderr)
            self.assertIn("total capacity of 4.00 GiB", result.stderr)
        report = job.only()
        self.assertEqual(report["process"]["exit"], 1)
        last = report["oom_events"][-1]
        self.assertEqual(last["requested_bytes"], GIB)
        self.assertEqual(last["verdict"], "cap")
        self.assertFalse(last["recovered"])
        self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], 4 * GIB)
        self.assertRegex(job.result.stderr, r"memshim: device 0: OUT OF MEMORY: asked for 1.00 GiB")
        self.assertIn(last["sentence"], job.texts[0])

    def test_is_said_once_of_the_first_tensor(self) -> None:
        """PyTorch has told of nothing yet when the call for it is refused."""
        source = """\
            import torch
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        """
        for mode in ("native", "off"):
            for expandable in (True, False):
                with self.subTest(mode=mode, expandable=expandable):
                    self.check_said_once(
                        source,
                        MEMSHIM_TORCH=mode,
                        PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
                    )

    def check_said_once(self, source: str, **settings: object) -> None:
        job = harness.run_memshim(source, MEMSHIM_LIMIT="1GiB", **settings)
        said = [line for line in job.result.stderr.splitlines() if "OUT OF MEM" in line]
        self.assertEqual(len(said), 1, job.result.stderr)
        self.assertIn("asked for 1.00 GiB", said[0])

    def test_is_said_once_where_only_segments_are_seen(self) -> None:
        """What PyTorch recovers from by emptying its cache is not said at all."""
        source = """\
            import torch
            for mib in (300, 310, 320):
                torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        """
        self.check_said_once(source, MEMSHIM_TORCH="off")

    def test_a_batch_finder_recovers(self) -> None:
        job = forked.run_memshim(FINDER, MEMSHIM_LIMIT="2500MiB")
        end = job.result.check().lines("end")[0]
        self.assertEqual((end["size"], end["tries"]), (8, 2))
        report = job.only()
        self.assertEqual(report["process"]["exit"], 0)
        self.assertGreater(len(report["oom_events"]), 0)
        self.assertTrue(all(event["recovered"] for event in report["oom_events"]))
        self.assertEqual(report["oom_events"][-1]["requested_bytes"], 1 << 28)
        self.assertIn(
            "\n  ooms   1; the run recovered from each\n", job.texts[0], "as the program saw"
        )

    def test_pytorchs_own_retry(self) -> None:
        """Where holes are not repaired, so that PyTorch has to give its cache back."""
        job = harness.run_memshim(RETRY, MEMSHIM_LIMIT="2GiB", MEMSHIM_TORCH="off")
        end = job.result.check().lines("end")[0]
        self.assertEqual((end["retries"], end["ooms"]), (1, 0))
        events = job.only()["oom_events"]
        self.assertEqual([event["recovered"] for event in events], [True])
        self.assertEqual(job.only()["devices"][0]["peak_live_bytes"], 1100 * MIB)

    def test_a_request_takes_nothing_from_its_own_pages(self) -> None:
        job = forked.run_memshim(HALVES, MEMSHIM_LIMIT="2GiB", MEMSHIM_SPILL="off")
        self.assertEqual([end["served"] for end in job.result.check().lines("end")], [False])
        report = job.only()
        self.assertGreater(len(report["oom_events"]), 1)
        for event in report["oom_events"]:
            self.assertEqual(event["verdict"], "cap")
        self.assertNotIn("they lie in host memory", job.result.stderr)
        self.assertNotIn("fragmentation", job.result.stderr)

    def test_a_request_takes_nothing_from_its_own_tail(self) -> None:
        job = forked.run_memshim(TAIL, MEMSHIM_LIMIT="2GiB", MEMSHIM_SPILL="off")
        self.assertEqual([end["served"] for end in job.result.check().lines("end")], [False])
        for event in job.only()["oom_events"]:
            self.assertEqual(event["verdict"], "cap")
        self.assertNotIn("they lie in host memory", job.result.stderr)

    def test_a_request_takes_anothers_tail(self) -> None:
        job = forked.run_memshim(OTHER_TAIL, MEMSHIM_LIMIT="2GiB", MEMSHIM_SPILL="off")
        job.result.check()
        self.assertNotIn("they lie in host memory", job.result.stderr)

    def test_another_error_of_the_drivers_is_named(self) -> None:
        job = forked.run_memshim(OTHER_ERROR)
        job.result.check()
        events = job.only()["oom_events"]
        self.assertEqual([event["verdict"] for event in events], ["not_device", "cap"])
        self.assertIn("gave up after the driver returned error", events[0]["sentence"])
        self.assertEqual([event["rule"]["driver_error"] for event in events], [1, None])

    def test_grad_mode_is_that_of_the_thread_that_asked(self) -> None:
        job = forked.run_memshim(GRAD_MODES, MEMSHIM_LIMIT="2GiB")
        job.result.check()
        events = [event for event in job.only()["oom_events"] if event["source"] == "torch"]
        self.assertEqual([event["grad_mode"] for event in events], ["on", "off", "off"])

    def test_what_a_request_lacks_is_spilled(self) -> None:
        """Where live memory may move to the host, the same request is served."""
        job = forked.run_memshim(HALVES, MEMSHIM_LIMIT="2GiB", MEMSHIM_SPILL="auto")
        self.assertEqual([end["served"] for end in job.result.check().lines("end")], [True])
        self.assertEqual(job.only()["oom_events"], [])
        self.assertNotIn("they lie in host memory", job.result.stderr)

    def test_the_drivers_out_of_memory(self) -> None:
        """The device refuses although the cap has room."""
        job = forked.run_memshim(OOM, SIMGPU_MEMORY="4GiB", SIMGPU_FAIL="cuMemCreate@*=2")
        self.assertEqual(job.result.status, 1)
        self.assertIn("torch.OutOfMemoryError", job.result.stderr)
        self.assertFalse(job.only()["oom_events"][-1]["recovered"])


if __name__ == "__main__":
    unittest.main()
