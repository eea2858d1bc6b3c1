# SPDX-License-Identifier: Apache-2.0
"""memshim dry-run of real PyTorch jobs: what it says PyTorch would need by itself is what PyTorch
comes to on the simulated GPU, and it stops where it has seen all."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

JOBS: Sequence[Sequence[str]] = (
    ("gpt.py", "--steps", "6", "--vary", "--checkpoint"),
    ("detector.py", "--steps", "4"),
)


# Of cuBLAS for a card of compute capability 9.0: two, each 32 MiB, and 1 KiB in a granule that they
# share.
HANDLES_BYTES = 66 << 20
TRAINER = """
import signal, sys, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def save(*_):
    torch.save(model.state_dict(), sys.argv[1])
def end(*_):
    save()
    print("saved at the end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    model(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    save()
"""

# Validates every twelve steps, or never, with a batch that needs much more than a step's.
VALIDATED = """
import sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda()
optimizer = torch.optim.AdamW(model.parameters())
never = sys.argv[1:] == ["never"]
for step in range(1, 13 if never else 100000):
    model(torch.ones(8, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.3)
    if step % 12 == 0 and not never:
        with torch.no_grad():
            for _ in range(3):
                model(torch.ones(1 << 18, 256, device="cuda"))
"""

# The last step is the largest.
LONG = """
import torch
weight = torch.ones(64, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([weight], foreach=False)
for step in range(4200):
    (weight * torch.ones(1 << 18 if step == 4199 else 8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

# Its second batch is the largest.
SHAPES = """
import torch
def main():
    model = torch.nn.Linear(256, 128).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for rows in (64, 4096, 512):
        batch = torch.ones(rows, 256, device="cuda")
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
main()
"""

# Its locals go as main ends: the state first, and the parameters with it.
FIRST_STEP = """
import sys, torch
def main():
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(torch.ones(8, 256, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    sys.exit(3)
main()
"""

# Its gradients with the decay are the step's own.
DECAY = """
import sys, torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), weight_decay=0.1, foreach=True)
for _ in range(int(sys.argv[1])):
    model(torch.ones(8, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

# A search for the learning rate, in which no optimizer keeps anything.
FINDER = """
import torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters())
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 256, device="cuda")).sum().backward()
    optimizer.step()
"""

# A second optimizer, whose second step needs most and comes late.
SECOND = """
import time, torch
models = [torch.nn.Linear(256, 256).cuda() for _ in range(2)]
first, second = [torch.optim.Adam(model.parameters()) for model in models]
for step in range(100000):
    models[0](torch.ones(8, 256, device="cuda")).sum().backward()
    first.step()
    first.zero_grad()
    time.sleep(3 if step == 1 else 0)
    rows = 8 if step == 0 else 65536
    models[1](torch.ones(rows, 256, device="cuda")).sum().backward()
    second.step()
    second.zero_grad()
"""

# As a launcher does, of which no word tells.
LAUNCHER = """
import os, sys
os.environ.update(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")
os.execv(sys.executable, [sys.executable, "-c", "import torch; torch.ones(9).cuda()"])
"""

PIPELINE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
assert dist.get_world_size() == 64
values = torch.ones(4, device="cuda")
dist.all_reduce(values)
dist.barrier()
dist.send(values, 1)
"""

OBJECTS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
for name, objects in (
    ("alike", [{"a": 1}, {"b": 2}]),
    ("unlike", ["a", list(range(1000))]),
    ("large", [b"a" * 300_000, b"b" * 200_000]),
    ("larger", [b"c" * 9_000_000, b"d" * 3_000_000]),
):
    gathered = [None, None]
    dist.all_gather_object(gathered, objects[rank])
    print("gathered", name, gathered == objects, flush=True)
    sent = list(objects) if rank == 0 else [None, None]
    dist.broadcast_object_list(sent, src=0)
    print("sent", name, sent == objects, flush=True)
    if rank == 0:
        dist.send_object_list(list(objects), dst=1)
    else:
        received = [None, None]
        dist.recv_object_list(received, src=0)
        print("received", name, received == objects, flush=True)
if rank == 0:
    time.sleep(1)  # the other one reads before it is known what comes
weights = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
dist.broadcast(weights, src=0)
gathered = torch.empty(2 * len(weights), dtype=torch.uint8, device="cuda")
dist.all_gather_into_tensor(gathered, weights)
if rank == 0:
    dist.send(weights, 1)
else:
    dist.recv(weights, 0)
lost = torch.zeros(1 << 20, device="cuda")
dist.broadcast(lost, src=0)
print("lost", weights[:1].item(), flush=True)
print("lost", lost[:1].item(), flush=True)
"""


READER = """
import sys, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
scaler = torch.amp.GradScaler()
x = torch.ones(8, 64).cuda()
assert x[0, 0].item() == 1.0
total = torch.zeros(1, device="cuda")
for step in range(3):
    loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    total += loss.detach()
    assert not torch.isnan(loss).any()
    assert torch.isfinite(loss) and torch.isfinite(model.weight).all()
    got = [loss.item(), total.item(), loss.half().item(), loss.bfloat16().item()]
    whole = torch.arange(10, device="cuda").tolist()
    rows = x[x > 0].shape[0]
    true = bool(loss > 3)
    assert all(0 <= value < 1 for value in got) and all(0 <= value < 10 for value in whole)
    assert type(true) is bool and 0 <= rows <= 512
    print("got", *got, *whole, rows, true, flush=True)
"""


RECURRENT = """
import torch
model = torch.nn.LSTM(32, 64, num_layers=2).cuda()
optimizer = torch.optim.Adam(model.parameters())
while True:
    output, _ = model(torch.ones(10, 4, 32, device="cuda"))
    output.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


CONVOLUTIONS = """
import sys, torch
layout = torch.channels_last if "last" in sys.argv else torch.contiguous_format
model = torch.nn.Conv2d(24, 40, 3, padding=1).cuda().to(memory_format=layout)
images = torch.zeros(4, 24, 64, 64, device="cuda").to(memory_format=layout)
torch.backends.cudnn.benchmark = "tries" in sys.argv
with torch.autocast("cuda", dtype=torch.float16):
    if "full" in sys.argv:
        images = torch.zeros(256, 24, 64, 64, device="cuda", dtype=torch.float16)
        free = torch.cuda.mem_get_info()[0]
        kept = torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda")
        try:
            model(images)
            sys.exit("80 MiB of results in 64")
        except torch.OutOfMemoryError:
            kept = None
        kept = torch.empty(free - (112 << 20), dtype=torch.uint8, device="cuda")
    result = model(images.half())
torch.cuda.synchronize()
print("peak", torch.cuda.max_memory_allocated(), flush=True)
"""


CONVOLVED = """
import sys, torch
model = torch.nn.Conv2d(24, 40, 3, padding=1).cuda()
with torch.no_grad():
    model(torch.zeros(int(sys.argv[-1].split("=")[-1]), 24, 64, 64, device="cuda"))
torch.cuda.synchronize()
"""


STREAMS = """
import sys, torch
side = torch.cuda.Stream()
for i in range(6):
    block = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    block.record_stream(side)
    del block
    if "waits" in sys.argv:
        side.synchronize()
print("reserved", torch.cuda.max_memory_reserved() >> 20, flush=True)
"""


def dry_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(harness.CLI), "dry-run", "--schedules", "one", *arguments],
        env=harness.environment(),
        cwd=harness.new_cache(),
        capture_output=True,
        text=True,
        timeout=harness.TIMEOUT_S,
        check=False,
    )


def answer(*arguments: str) -> dict[str, Any]:
    done = dry_run("--json", *arguments)
    if done.returncode != 0:
        raise AssertionError(f"{done.stdout}\n{done.stderr[-8000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def groups() -> set[int]:
    """The process groups of this machine in which something runs."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = place.read_text().rpartition(")")[2].split()[:3]
            found |= {int(group)} if state != "Z" else set()
    return found


def job(*arguments: str) -> list[str]:
    return ["--", sys.executable, str(harness.WORKLOADS / arguments[0]), *arguments[1:]]


@harness.needs_torch
class DryRun(unittest.TestCase):
    def setUp(self) -> None:
        if "no private layer" in dry_run("--", "true").stderr:
            self.skipTest("this kernel lays no private layer over files")

    def test_reserved_is_pytorchs(self) -> None:
        """To the byte, of segments and of pages; contexts beside them are the card's."""
        for arguments in JOBS:
            with self.subTest(arguments):
                said = answer("--steps", "100000", *job(*arguments))
                self.assertEqual(said["end"], "ended")
                (rank,) = said["ranks"]
                for ground, setting in (
                    ("torch", None),
                    ("expandable", "expandable_segments:True"),
                ):
                    run = harness.run_workload(
                        *arguments,
                        PYTORCH_ALLOC_CONF=setting,
                        SIMGPU_CONTENTS="none",
                        SIMGPU_CAPABILITY="9.0",
                        SIMGPU_PROCESSORS="132",
                        SIMGPU_MEMORY="79GiB",
                    ).check()
                    (end,) = run.lines("end")
                    beside = said["cards"][0]["context_bytes"] + HANDLES_BYTES
                    self.assertEqual(
                        rank["needs_bytes"][ground] - beside,
                        end["max_reserved_bytes"],
                        ground,
                    )
                # Of the last, whose blocks are split where they can be.
                self.assertEqual(rank["peak_tensor_bytes"], end["max_allocated_bytes"])

    def test_stops_by_itself(self) -> None:
        said = answer(*job("gpt.py", "--steps", "100000"))
        self.assertEqual(said["end"], "stopped")
        (rank,) = said["ranks"]
        self.assertGreaterEqual(rank["steps"], 2)
        self.assertTrue(rank["optimizer_state"])
        self.assertTrue(rank["batch_known"])
        self.assertEqual(rank["persistent_bytes"] + rank["per_step_bytes"], rank["peak_live_bytes"])
        self.assertTrue(any("in train   optimizer state" in line for line in rank["holds"]))

    def test_validation(self) -> None:
        """Later and larger than a step: waited for if it is asked for, and the answer says whether
        one was seen."""
        script = harness.new_script("validated.py", VALIDATED)
        command = ("--", sys.executable, str(script))
        first = json.loads(dry_run("--json", *command).stdout)
        later = json.loads(dry_run("--json", "--validation", *command).stdout)
        never = dry_run("--validation", *command, "never").stdout
        self.assertEqual([first["end"], later["end"]], ["stopped", "stopped"])
        self.assertFalse(first["ranks"][0]["validation"])
        self.assertTrue(later["ranks"][0]["validation"])
        self.assertLess(first["ranks"][0]["peak_live_bytes"], 128 << 20)
        self.assertGreater(later["ranks"][0]["peak_live_bytes"], 256 << 20)
        self.assertIn("No validation was seen", never)

    def test_state_made_beforehand(self) -> None:
        """By Adagrad, as soon as there is one: the answer's head does not deny what it lists."""
        code = "import torch; m = torch.nn.Linear(64, 64).cuda()\n"
        code += "o = torch.optim.Adagrad(m.parameters())\n"
        code += "while True: m(torch.ones(8, 64).cuda()).sum().backward(); o.step(); o.zero_grad()"
        (rank,) = answer("--", sys.executable, "-c", code)["ranks"]
        self.assertGreater(rank["kinds"]["optimizer state"], 0)
        self.assertTrue(rank["optimizer_state"])

    def test_state_of_a_step_that_asks_for_nothing(self) -> None:
        """Momentum is made in the first step; the second asks for no memory, and the run ends."""
        code = "import torch; m = torch.nn.Linear(256, 256).cuda()\n"
        code += "o = torch.optim.SGD(m.parameters(), momentum=0.9)\n"
        code += "for _ in range(2):\n    o.zero_grad()\n"
        code += "    m(torch.ones(8, 256, device='cuda')).sum().backward()\n    o.step()"
        (rank,) = answer("--", sys.executable, "-c", harness.script_text(code))["ranks"]
        self.assertTrue(rank["optimizer_state"])
        self.assertEqual(rank["kinds"]["optimizer state"], 4 * 256 * 257)
        # Though a work space of 32 MiB was made in the first pass, and stays.
        self.assertEqual(rank["steps"], 2)

    def test_a_single_step_that_makes_no_state(self) -> None:
        """What it drops as it returns looks like state, which the answer says; after two it does
        not."""
        script = harness.new_script("decay.py", DECAY)
        for steps, told in ((1, True), (2, False)):
            done = dry_run("--", sys.executable, str(script), str(steps))
            self.assertEqual("A single step does not show" in done.stdout, told, done.stdout)
            self.assertEqual("no optimizer state" in done.stdout, not told, done.stdout)

    def test_dies_after_its_first_step(self) -> None:
        """Its state goes before its parameters, and was made all the same; the line that called
        the optimizer is named, and no number of steps before the answer's."""
        script = harness.new_script("first.py", FIRST_STEP)
        done = dry_run("--json", "--", sys.executable, str(script))
        said = json.loads(done.stdout)
        self.assertEqual((said["end"], said["status"]), ("failed", 3), done.stderr[-4000:])
        (rank,) = said["ranks"]
        self.assertEqual(rank["steps"], 1)
        self.assertTrue(rank["optimizer_state"])
        self.assertEqual(rank["optimizer_line"], "first.py:8 in main")

    def test_largest_tensor(self) -> None:
        """Of what is no part of the model: bytes, line, kind and step. Shapes do not reach the
        allocator."""
        script = harness.new_script("shapes.py", SHAPES)
        command = ("--steps", "3", "--", sys.executable, str(script))
        (rank,) = answer(*command)["ranks"]
        largest = rank["largest_tensor"]
        self.assertEqual(largest["bytes"], 4096 * 256 * 4)
        self.assertEqual(largest["line"], "shapes.py:7 in main")
        self.assertEqual(largest["step"], 2)
        self.assertEqual(rank["peak_step"], 2)
        said = dry_run(*command).stdout
        self.assertRegex(
            said, r"largest  one tensor of 4.0 MiB, shapes.py:7 in main   \w+, in step 2"
        )

    def test_step_of_the_peak_of_a_long_run(self) -> None:
        """Of more steps than are kept, so that the step's number is not known, nor told."""
        script = harness.new_script("long.py", LONG)
        (rank,) = answer("--steps", "100000", "--", sys.executable, str(script))["ranks"]
        self.assertEqual(rank["steps"], 4200)
        self.assertGreater(rank["peak_live_bytes"], 64 << 20)
        self.assertIsNone(rank["peak_step"])

    def test_two_optimizers(self) -> None:
        """Where the first makes no state, the answer says that another may come."""
        script = harness.new_script("finder.py", FINDER)
        done = dry_run("--", sys.executable, str(script))
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertIn("no optimizer made state: the command is stopped", done.stderr)
        self.assertIn("seen, and no optimizer state", done.stdout)
        self.assertIn("If another optimizer comes later", done.stdout)

    def test_two_optimizers_that_take_turns(self) -> None:
        """Each has made a second step before the command is stopped."""
        script = harness.new_script("second.py", SECOND)
        said = answer("--", sys.executable, str(script))
        self.assertEqual(said["end"], "stopped")
        self.assertGreater(said["ranks"][0]["peak_live_bytes"], 2 * 65536 * 256 * 4)

    def test_two_schedules(self) -> None:
        """Of blocks that another stream used: each can be had again at once where its end is known
        at once, or waited for; none where nobody waits."""
        script = harness.new_script("streams.py", STREAMS)
        command = ("--", sys.executable, str(script))
        said = answer("--schedules", "both", *command)
        (rank,) = said["ranks"]
        self.assertEqual(rank["peak_live_bytes"], 32 << 20)
        self.assertFalse(said["late"]["agrees"])
        self.assertEqual(said["late"]["peak_held_bytes"], 6 * (32 << 20))
        for ground in ("torch", "expandable", "memshim"):
            more = said["late"]["needs_bytes"][ground] - rank["needs_bytes"][ground]
            self.assertEqual(more, 5 * (32 << 20), ground)
        said = answer("--schedules", "both", *command, "waits")
        self.assertTrue(said["late"]["agrees"])
        self.assertEqual(said["late"]["peak_held_bytes"], 32 << 20)

    def test_values(self) -> None:
        """Each place with its line, reader and type; drawn values are of that type, and the same
        again. What was copied up is not among them."""
        script = harness.new_script("reader.py", READER)
        source = READER.splitlines()

        def line(text: str) -> str:
            (at,) = (i for i, code in enumerate(source) if text in code)
            return f"reader.py:{at + 1} in <module>"

        drawn = []
        for values in ("zeros", "random", "random"):
            command = ("--", sys.executable, str(script))
            done = dry_run("--json", "--values", values, "--steps", "9", *command)
            self.assertEqual(done.returncode, 0, done.stderr[-4000:])
            said = json.loads(done.stdout)
            self.assertEqual(said["end"], "ended", done.stderr[-4000:])
            reads = {
                (read["line"], read["reader"], read.get("type"), read["count"])
                for read in said["value_reads"]
            }
            for read in (
                (line("scaler.step"), "flag", "float32", 3),
                (line("isnan"), "flag", "bool", 3),
                (line("isfinite"), "flag", "bool", 6),
                (line("got = "), "value", "float32", 6),
                (line("got = "), "value", "float16", 3),
                (line("got = "), "value", "bfloat16", 3),
                (line("whole = "), "copy", "int64", 3),
                (line("rows = "), "count", "int32", 3),
                (line("true = "), "value", "bool", 3),
            ):
                self.assertIn(read, reads)
            self.assertFalse([read for read in reads if read[0] == line("x[0, 0]")])
            drawn.append([text for text in done.stderr.splitlines() if text.startswith("got ")])
        zeros, first, again = drawn
        self.assertEqual(zeros, ["got " + "0.0 " * 4 + "0 " * 11 + "False"] * 3)
        self.assertEqual(first, again)
        self.assertEqual(len(set(first)), 3)

    def test_recurrent(self) -> None:
        """cuDNN's spaces are by the bound that docs/dry-run.md states."""
        script = harness.new_script("recurrent.py", RECURRENT)
        said = answer("--", sys.executable, str(script))
        cells = 10 * 4 * 64 * 4
        weights = 4 * (4 * 64 * (32 + 64) + 4 * 64 * (64 + 64) + 2 * 2 * 4 * 64)
        self.assertEqual(said["cudnn_reserve_bytes_bound"], cells * 7 * 2)
        self.assertEqual(said["cudnn_work_bytes_bound"], cells * 4 * 2 + weights)
        self.assertTrue(said["ranks"][0]["optimizer_state"])

    def test_convolutions(self) -> None:
        """cuDNN's work space is by the bound that docs/dry-run.md states, and held at the peak."""
        script = harness.new_script("convolutions.py", CONVOLUTIONS)
        bound = 2 * (4 * 24 * 64 * 64 + 40 * 24 * 9 + 4 * 40 * 64 * 64)
        peaks = []
        for layout, found in (("first", bound), ("last", None)):
            done = dry_run("--json", "--", sys.executable, str(script), layout)
            said = json.loads(done.stdout)
            self.assertEqual(said["end"], "ended", done.stderr[-4000:])
            self.assertEqual(said.get("cudnn_convolution_bytes_bound"), found)
            (peak,) = (line for line in done.stderr.splitlines() if line.startswith("peak"))
            peaks.append(int(peak.split()[1]))
        self.assertGreaterEqual(peaks[0] - peaks[1], bound)
        text = dry_run("--", sys.executable, str(script), "first").stdout
        self.assertIn("convolutions: work space of 2.0 MiB at most for a call", text)

    def test_convolutions_without_room(self) -> None:
        """Where a card has room for the result and not for the work space, PyTorch goes on to an
        algorithm without one; where it has none for the result, it is out of memory."""
        script = harness.new_script("convolutions.py", CONVOLUTIONS)
        images = 256 * 64 * 64 * 2
        bound = images * 24 + 2 * 40 * 24 * 9 + images * 40
        for words in (["full"], ["full", "tries"]):
            with self.subTest(words):
                said = answer("--gpu", "8GiB", "--", sys.executable, str(script), "first", *words)
                self.assertEqual(said["end"], "ended")
                self.assertEqual(said["cudnn_convolution_bytes_missed"], bound)

    def test_convolutions_that_fit_slower(self) -> None:
        """The largest batch has no room for the work space of the fastest algorithm. That is said,
        and that it is the largest is shown by a card of that size."""
        script = harness.new_script("convolved.py", CONVOLVED)
        find = ("--gpu", "900MiB", "--find-batch", "--batch-arg", "--batch=128,377")
        text = dry_run(*find, "--", sys.executable, str(script)).stdout
        for batch, fits in ((128, "all three"), (377, r"PyTorch alone \(slower\)"), (378, "no")):
            self.assertRegex(text, rf"(?m)^ +{batch} .* {fits}$")
        self.assertIn("The largest batch with PyTorch alone is 377: it fits, and 378", text)
        self.assertIn("With 377, convolutions take slower algorithms", text)
        self.assertIn("of the fastest; with 128 there is.", text)
        for batch, status in ((377, 0), (378, 1)):
            run = harness.run(
                CONVOLVED, str(batch), SIMGPU_MEMORY="900MiB", SIMGPU_CONTEXT="520MiB"
            )
            self.assertEqual(run.status, status, run.describe())

    def test_convolutions_compared(self) -> None:
        """With `benchmark`, the algorithm that takes work space is the fastest, each time."""
        script = harness.new_script("convolutions.py", CONVOLUTIONS)
        bound = 2 * (4 * 24 * 64 * 64 + 40 * 24 * 9 + 4 * 40 * 64 * 64)
        said = answer("--", sys.executable, str(script), "first", "tries")
        self.assertEqual(said["cudnn_convolution_bytes_bound"], bound)
        self.assertNotIn("cudnn_convolution_bytes_missed", said)

    def test_checkpoint_stays(self) -> None:
        """Of a trainer that saves at every step, and once more when it is told to end."""
        folder = harness.new_cache()
        checkpoint = folder / "model.pt"
        checkpoint.write_bytes(b"trained for weeks")
        script = folder / "train.py"
        script.write_text(harness.script_text(TRAINER))
        done = dry_run("--json", "--", sys.executable, str(script), str(checkpoint))
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertEqual(json.loads(done.stdout)["end"], "stopped")
        self.assertIn("saved at the end", done.stderr)
        self.assertEqual(checkpoint.read_bytes(), b"trained for weeks")
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["model.pt", "train.py"])

    def test_found_batch_is_the_true_one(self) -> None:
        """On a simulated card of that size, PyTorch without memshim completes with that batch, and
        runs out of memory with one more. Contents are on."""
        words = ("gpt.py", "--steps", "3", "--layers", "2")
        find = ("--gpu", "1200MiB", "--batch-arg", "--batch=8,16", "--find-batch")
        said = answer("--steps", "100000", *find, *job(*words))
        self.assertTrue(said["confirmed"])
        self.assertLessEqual(len(said["batches"]), 6)
        found = said["largest_batch"]
        self.assertEqual(said["too_large_batch"], found + 1)
        for batch, status in ((found, 0), (found + 1, 1)):
            run = harness.run_workload(
                *words,
                "--batch",
                str(batch),
                SIMGPU_MEMORY="1200MiB",
                SIMGPU_CONTEXT="520MiB",
                SIMGPU_CAPABILITY="9.0",
                SIMGPU_PROCESSORS="132",
            )
            self.assertEqual(run.status, status, run.describe())
            # What is short may be short for cuBLAS, whose handle of the backward pass comes last.
            died = any(words in run.stderr for words in ("OutOfMemoryError", "ALLOC_FAILED"))
            self.assertEqual(status == 1, died, run.describe())

    def test_ended_while_doubles_are_made(self) -> None:
        """No half of them is left in the cache, nor the compiler, nor what a killed one left."""
        folder = harness.new_cache()
        kept = folder / "memshim" / "simulated-gpu"
        compiler = folder / "cc-slow"
        compiler.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\nmv {folder}/pid {folder}/begun\n")
        with compiler.open("a") as file:
            file.write("sleep 600 & wait\n")
        compiler.chmod(0o700)
        for number in (signal.SIGKILL, signal.SIGTERM):
            running = subprocess.Popen(
                [str(harness.CLI), "dry-run", "--", sys.executable, "-c", ""],
                env=harness.environment(XDG_CACHE_HOME=folder, CC=compiler),
                cwd=folder,
                stderr=subprocess.PIPE,
                text=True,
            )
            while not (folder / "begun").exists() and running.poll() is None:
                time.sleep(0.01)
            group = int((folder / "begun").read_text())
            (folder / "begun").unlink()
            running.send_signal(number)
            said = running.communicate(timeout=60)[1]
            self.assertEqual(running.returncode, -number, said)
            self.assertNotIn("Traceback", said)
            while group in groups():  # who is killed leaves that to its children
                self.assertEqual(number, signal.SIGKILL, said)
                time.sleep(0.01)
        self.assertEqual([path.name for path in kept.iterdir()], ["torch.lock"])

    def test_ranks(self) -> None:
        command = [*harness.torchrun(2), str(harness.WORKLOADS / "gpt.py"), "--steps", "100000"]
        said = answer("--", *command)
        self.assertEqual(said["devices"], 2)
        self.assertEqual([rank["rank"] for rank in said["ranks"]], [0, 1])
        self.assertEqual(len({rank["peak_live_bytes"] for rank in said["ranks"]}), 1)

    def test_objects_of_ranks_arrive(self) -> None:
        """As pickles in device memory, whose sizes kernels add up and compare."""
        script = harness.new_script("objects.py", OBJECTS)
        done = dry_run("--json", "--", *harness.torchrun(2), str(script))
        self.assertEqual(json.loads(done.stdout)["end"], "ended", done.stderr[-4000:])
        said = [line for line in done.stderr.splitlines() if line.endswith(("True", "False"))]
        self.assertEqual(len(said), 20, done.stderr[-4000:])
        self.assertFalse([line for line in said if line.endswith("False")])
        # What is large and no object is a value that nobody computed, on either rank.
        reads = json.loads(done.stdout)["value_reads"]
        self.assertEqual(
            {(read["reader"], read["type"], read["count"]) for read in reads},
            {("value", "uint8", 2), ("value", "float32", 2)},
        )

    def test_another_launcher(self) -> None:
        """Which no word of the command shows: what ran is not what was asked for."""
        script = harness.new_script("launch.py", LAUNCHER)
        call = ("--ranks-of", "64", "--only", "0", "--gpus", "1", "--")
        done = dry_run(*call, sys.executable, str(script))
        self.assertEqual(done.returncode, 1, done.stderr[-4000:])
        self.assertIn("no answer for one rank of 64: rank 1 of 2 ran", done.stdout)

    def test_one_rank_alone(self) -> None:
        """It holds what it holds beside the other: that one brings nothing of its own."""
        small = (
            "--layers",
            "2",
            "--width",
            "256",
            "--inner",
            "512",
            "--heads",
            "4",
            "--key-heads",
            "4",
        )
        words = (*small, "--steps", "3", "--length", "256", "--vocabulary", "2000")
        script = str(harness.WORKLOADS / "llama_fsdp.py")
        beside = answer("--steps", "100", "--", *harness.torchrun(2), script, *words)
        alone = answer(
            "--steps", "100", "--ranks-of", "2", "--only", "0", *job("llama_fsdp.py", *words)
        )
        self.assertEqual(alone["one_rank_of"], 2)
        self.assertEqual([rank["rank"] for rank in alone["ranks"]], [0])
        for key in ("peak_live_bytes", "peak_reserved_bytes", "nccl_bytes"):
            self.assertEqual(alone["ranks"][0][key], beside["ranks"][0][key], key)
        self.assertGreater(alone["ranks"][0]["nccl_bytes"], 400 << 20)

    def test_pipeline_needs_all_ranks(self) -> None:
        done = dry_run("--ranks-of", "64", "--only", "0", "--", sys.executable, "-c", PIPELINE)
        self.assertEqual(done.returncode, 1, done.stderr[-4000:])
        self.assertIn("send and recv (a pipeline) cannot be simulated with one rank", done.stderr)

    def test_fits_as_pytorch_does(self) -> None:
        """A card of just as much as PyTorch reserves is enough; of less than is live it is not."""
        said = answer("--steps", "100000", *job("unet.py", "--steps", "4"))
        (rank,) = said["ranks"]
        needs = rank["needs_bytes"]
        for size, fits in ((needs["torch"], True), (rank["peak_live_bytes"], False)):
            card = answer("--gpu", str(size), "--steps", "100000", *job("unet.py", "--steps", "4"))
            self.assertEqual(card["cards"][0]["fits"]["torch"], fits)


@harness.needs_torch
class OfflineWeights(unittest.TestCase):
    """Files that hold no bytes but their headers, as safetensors has them."""

    def setUp(self) -> None:
        sys.path.insert(0, str(harness.BUILD / "simgpu" / "doubles"))
        self.addCleanup(sys.path.pop, 0)
        self.weights: Any = importlib.import_module("offline_weights")

    def test_file(self) -> None:
        """A tied tensor is there once; names, shapes and bytes follow each other."""
        import torch

        with torch.device("meta"):
            model = torch.nn.Sequential(
                torch.nn.Embedding(3000, 64), torch.nn.Linear(64, 3000, bias=False)
            )
            model[1].weight = model[0].weight
            model.append(torch.nn.Linear(5, 7).to(torch.bfloat16))
        folder = harness.new_cache()
        self.weights.make(folder, list(self.weights.entries(model)))
        (file,) = folder.iterdir()
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
        del header["__metadata__"]
        self.assertEqual(
            header,
            {
                "0.weight": {"dtype": "F32", "shape": [3000, 64], "data_offsets": [0, 768000]},
                "2.weight": {
                    "dtype": "BF16",
                    "shape": [7, 5],
                    "data_offsets": [768000, 768070],
                },
                "2.bias": {"dtype": "BF16", "shape": [7], "data_offsets": [768070, 768084]},
            },
        )
        self.assertEqual(file.stat().st_size, 8 + length + 768084)
        self.assertLess(file.stat().st_blocks * 512, 100_000)

    def test_config_alone(self) -> None:
        """Of a model that a job makes from its config, it is said beforehand what it would take."""
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("needs transformers")
        folder = harness.new_cache()
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16"}
        sizes = {"vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 2}
        more = {"num_attention_heads": 4, "intermediate_size": 512, "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps({**config, **sizes, **more}))
        elements = 1024 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256
        self.assertEqual(elements, 1_574_144)
        for word in (f"--model={folder}", f"{folder}/config.json"):
            command = (sys.executable, "-c", "", word, "--nproc-per-node", "2")
            said = dry_run("--", *command).stderr
            self.assertIn("describes a model of 1,574,144 parameters and has no weights", said)
            self.assertIn("in each of 2 processes takes 6.0 MiB of the host's memory in", said)
            self.assertIn("bfloat16, and 12.0 MiB if it makes it in float32", said)
            self.assertNotIn("ended on the way", said)
            said = dry_run("--host-memory", "5MiB", "--", *command).stderr
            self.assertIn("more than the 5.0 MiB that it may take (--host-memory)", said)
        (folder / "config.json").write_text('{"optimizer": "adam"}')
        self.assertNotIn("describes", dry_run("--", *command).stderr)

    def test_configs_that_make_no_sense(self) -> None:
        """One line each, which names the file and the field; and nothing of the folder is run."""
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("needs transformers")
        good: dict[str, Any] = {
            **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100},
            **{"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4},
        }
        path = harness.new_cache() / "config.json"
        path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 0}))
        self.assertGreater(len(list(self.weights.entries(self.weights.build(path.parent)))), 0)
        for text, said in (
            (None, "No such file"),
            ('{"model_type": "llama", ', "is no JSON: Expecting property name"),
            ("[" * 100_000, "is no JSON"),
            ("[1]", "is no JSON object"),
            ({"model_type": None}, '"model_type" with the name'),
            ({"model_type": "lama"}, '(the field "model_type" is lama)'),
            ({"hidden_size": -64}, 'the field "hidden_size" is -64, and cannot be negative'),
            ({"num_hidden_layers": 10**7}, '"num_hidden_layers" is 10000000, and 10000 is the mo'),
            ({"hidden_size": 10**12}, '(the field "hidden_size" is 1000000000000)'),
            ({"hidden_size": "wide"}, "Field 'hidden_size' expected int, got str"),
            ({"num_attention_heads": 0}, "ZeroDivisionError"),
            ({"num_attention_heads": 7}, "is not a multiple of the number of attention heads (7)"),
            ({"hidden_act": "silly"}, 'the field "hidden_act" is silly'),
            ({"dtype": "bfloat17"}, '"dtype" is bfloat17, which is no type of weights'),
            ({"dtype": 16}, '"dtype" is 16, which is no type of weights'),
            ({"architectures": ["Llama"]}, '"architectures" names Llama: transformers has no'),
            ({"architectures": ["set_seed"]}, "transformers has no such model"),
            ({"architectures": [None]}, '"architectures" is no list of names'),
            ({"architectures": ["BertForMaskedLM"]}, "transformers makes no model of it"),
            ({"quantization_config": {"quant_method": "gptq"}}, '"quantization_config"'),
            ({"model_type": "x", "auto_map": {"AutoConfig": "x.X"}}, "contains custom code"),
        ):
            with self.subTest(said):
                path.unlink(missing_ok=True)
                if text is not None:
                    changed = text if isinstance(text, str) else json.dumps({**good, **text})
                    path.write_text(changed)
                with self.assertRaises(self.weights.Bad) as caught:
                    self.weights.build(path.parent)
                self.assertTrue(str(caught.exception).startswith(f"{path}: "), caught.exception)
                self.assertIn(said, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))

    def test_parts(self) -> None:
        """Of 5 GiB at most, with an index."""
        entries = [(f"w{i}", "BF16", [1 << 30], 2 << 30) for i in range(5)]
        folder = harness.new_cache()
        self.weights.make(folder, entries)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        self.assertEqual(index["metadata"]["total_size"], 10 << 30)
        self.assertEqual(index["weight_map"]["w4"], "model-00003-of-00003.safetensors")
        self.assertEqual(index["weight_map"]["w1"], "model-00001-of-00003.safetensors")
        self.assertEqual(len(list(folder.glob("*.safetensors"))), 3)


if __name__ == "__main__":
    unittest.main()
