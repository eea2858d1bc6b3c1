# SPDX-License-Identifier: Apache-2.0
"""memshim dry-run, with programs that need no PyTorch: what it finds out about them, and what is
said of calls that make no sense and commands that fail."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

from dry_run import CLI, MIB, PROGRAM, DryRunTest
from machine import BUILD, ROOT, TIMEOUT_S, run

# Reads back what the host wrote, a copy of that, what a memset wrote, and what nobody did.
READER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
word = ctypes.c_uint32(7)
def place(offset):
    return ctypes.c_ulonglong(at.value + offset)
def read(offset):
    got = ctypes.c_uint32(99)
    call("cuMemcpyDtoH_v2", ctypes.byref(got), place(offset), ctypes.c_size_t(4))
    return got.value
call("cuMemcpyHtoD_v2", place(0), ctypes.byref(word), ctypes.c_size_t(4))
call("cuMemcpyDtoD_v2", place(512), place(0), ctypes.c_size_t(4))
call("cuMemsetD32_v2", place(1024), 5, ctypes.c_size_t(1))
call("cuMemcpyDtoD_v2", place(4096), place(2048), ctypes.c_size_t(4))
call("cuMemcpyHtoD_v2", place(8192), ctypes.byref(word), ctypes.c_size_t(4))
call("cuMemcpyDtoD_v2", place(8192), place(2048), ctypes.c_size_t(4))
def known():
    return read(0), read(512)
def filled():
    return read(1024)
def unknown():
    return read(2048), read(4096), read(8192)
print("read", known(), filled(), unknown(), flush=True)
"""


# What queries say of work of two streams, the first of which waits for the second: before the host
# has waited for anything, after it has for the second's, and after it has for the first's.
ORDER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
def made(name, *arguments):
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle
call("cuInit", 0)
context = made("cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)
at = ctypes.c_ulonglong()
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
first, second, third = (made("cuStreamCreate", 1) for _ in range(3))
early, late, other, front = (made("cuEventCreate", 2) for _ in range(4))
def work(stream, event):
    call("cuMemsetD8Async", at, 0, ctypes.c_size_t(64), stream)
    call("cuEventRecord", event, stream)
def ask():
    return "".join("ny"[cuda.cuEventQuery(e) == 0] for e in (early, late, other, front))
work(second, early)
work(second, late)
work(third, other)
call("cuStreamWaitEvent", first, late, 0)
work(first, front)
said = [ask()]
call("cuEventSynchronize", early)
said.append(ask())
call("cuStreamSynchronize", first)
said.append(ask())
while cuda.cuEventQuery(other) != 0:
    pass
said.append(ask())
print("order", *said, flush=True)
"""

# A loop without a backward pass, as of a sampler: each of its first turns keeps some memory more,
# as a cache of keys does; the last of them needs most.
SAMPLER = f"""
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
def take(size):
    at = ctypes.c_ulonglong()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    return at
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
for turn in range(40 if "short" in sys.argv else 100000):
    if turn < 40:
        kept = take({2 * MIB})
    first = take({4 * MIB})
    second = take({8 * MIB})
    call("cuMemFree_v2", first)
    call("cuMemFree_v2", second)
    time.sleep(0.02)
"""

# Tells its steps, each of which draws how much it takes of its batch.
STEPS = f"""
import ctypes
cuda, memshim = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
for drawn in (3, 4, 2, 1):
    at = ctypes.c_ulonglong()
    memshim.memshim_step()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(batch * drawn * {MIB}))
    call("cuMemFree_v2", at)
"""


class DryRun(DryRunTest):
    def test_two_schedules(self) -> None:
        """Late: only what the host has waited for has ended, and what came before that; who polls
        is told in the end, once."""
        result = self.dry_run("--", sys.executable, "-c", ORDER, schedules="both").check()
        lines = [line for line in result.stderr.splitlines() if line.startswith("order")]
        self.assertEqual(lines, ["order yyyy yyyy yyyy yyyy", "order nnnn ynnn yyny yyyy"])
        self.assertEqual(result.stderr.count("asks again and again"), 1)
        self.assertIn("the same, whether work ends at once", result.stdout)
        result = self.dry_run("--", sys.executable, "-c", ORDER)
        self.assertIn("--schedules both", result.check().stdout)
        self.assertNotIn("order nnnn", result.stderr)

    def test_values_that_nobody_computed(self) -> None:
        """Told with their line, and zeros; what a host wrote stays what it is, also copied."""
        script = self.folder / "reader.py"
        script.write_text(READER)
        for values in ("zeros", "random"):
            result, answer = self.answer("--values", values, "--", sys.executable, script)
            filled = 5 if values == "zeros" else 0  # of no known type
            self.assertIn(f"read (7, 7) {filled} (0, 0, 0)", result.check().stderr)
            self.assertEqual(answer["values"], values)
            reads = [
                (read["reader"], read["bytes"], read["count"]) for read in answer["value_reads"]
            ]
            self.assertEqual(reads, [("copy", 4, 4)])
            for read in answer["value_reads"]:
                self.assertIn("reader.py:5 in call", read["line"])
        text = self.dry_run("--", sys.executable, script).check().stdout
        self.assertIn("may take another branch", text)
        self.assertIn("4 x  reader.py", text)
        self.assertNotIn("may take another branch", self.dry_run(*self.program()).check().stdout)

    def test_batches(self) -> None:
        """By a variable and by an argument; the largest is where the memory ends."""
        by_variable = PROGRAM.replace(str(96 * MIB), f"int(__import__('os').environ['B']) * {MIB}")
        by_argument = PROGRAM.replace(str(96 * MIB), f"int(__import__('sys').argv[1][2:]) * {MIB}")
        for option, value, program in (
            ("--batch-env", "B=64,128", by_variable),
            ("--batch-arg", "B=64,128", by_argument),
        ):
            with self.subTest(option):
                command = ["--", sys.executable, "-c", program]
                result, answer = self.answer(option, value, *command)
                result.check()
                rows = {row["batch"]: row["peak_live_bytes"] for row in answer["batches"]}
                self.assertEqual(rows, {64: 64 * MIB, 128: 128 * MIB})
                find = ["--gpu", "1GiB", "--find-batch"]
                result, answer = self.answer(*find, option, value, *command)
                # Blocks of the driver are a multiple of 2 MiB; the context is 520.
                self.assertEqual(answer["largest_batch"], 504, result.describe())
                self.assertTrue(answer["confirmed"])
                self.assertLessEqual(len(answer["batches"]), 6)

    def test_batches_that_do_not_decide(self) -> None:
        """A larger batch that needs less: no number is an answer, and the search ends."""
        size = f"(900 if os.environ['B'] == '8' else 100) * {MIB}"
        program = "import os" + PROGRAM.replace(str(96 * MIB), size)
        find = ("--gpu", "1GiB", "--find-batch", "--batch-env", "B=8,16")
        command = ("--", sys.executable, "-c", program)
        result, answer = self.answer(*find, *command)
        self.assertFalse(answer["follows_batch"], result.describe())
        self.assertEqual(
            (answer["largest_batch"], answer["too_large_batch"], answer["confirmed"]),
            (0, None, False),
        )
        self.assertEqual([row["fits"]["torch"] for row in answer["batches"]], [False, True])
        text = self.dry_run(*find, *command).check().stdout
        self.assertNotIn("largest batch", text)
        self.assertIn("does not follow its batch", text)
        self.assertIn("8 had 900.0 MiB live,\nand 16, a larger batch, 100.0 MiB", text)
        self.assertIn("The most that PyTorch alone needed is 1.39 GiB, with a batch of 8.", text)
        self.assertIn("bound that", text)

    def test_batches_that_change_nothing(self) -> None:
        """The data are fewer, or nobody reads the batch: the search ends, and the words say so."""
        fewer = f"min(20, int(__import__('os').environ['B'])) * {MIB}"
        for size, runs, pair in (
            (fewer, 6, r"\d+ needs what 5\d\d needs"),
            (str(96 * MIB), 2, "16 needs what 8 needs"),
        ):
            with self.subTest(size):
                program = PROGRAM.replace(str(96 * MIB), size)
                find = ("--gpu", "1GiB", "--find-batch", "--batch-env", "B=8,16")
                text = self.dry_run(*find, "--", sys.executable, "-c", program).check().stdout
                self.assertRegex(text, pair)
                self.assertEqual(text.count("all three"), runs, text)

    def test_steps_that_differ(self) -> None:
        """Of the line with the largest tensor: by how much, and what that says of the answer. What
        was asked for in the step that was cut short does not count."""
        program = f"batch = int(__import__('os').environ.get('B', 8)){STEPS}"
        result, answer = self.answer("--", sys.executable, "-c", program)
        (rank,) = answer["ranks"]
        largest = {name: rank["largest_tensor"][name] for name in ("bytes", "step")}
        self.assertEqual(largest, {"bytes": 8 * 4 * MIB, "step": 2}, result.describe())
        least = {name: rank["largest_tensor"][name] for name in ("least_bytes", "least_step")}
        self.assertEqual(least, {"least_bytes": 8 * 2 * MIB, "least_step": 3})
        text = self.dry_run("--", sys.executable, "-c", program).check().stdout
        self.assertRegex(text, r"one tensor of 32\.0 MiB, .* in step 2; .* 16\.0 MiB in step 3")
        find = ("--gpu", "1GiB", "--find-batch", "--batch-env", "B=64,100")
        text = self.dry_run(*find, "--", sys.executable, "-c", program).check().stdout
        self.assertIn("largest batch with PyTorch alone is 126: it fits, and 127 does not", text)
        self.assertIn("256.0 MiB in step 2, and 128.0 MiB at most in step 3", text)
        self.assertIn("later step may need more", text)
        alike = program.replace("(3, 4, 2, 1)", "(4, 4, 4, 4)")
        text = self.dry_run(*find, "--", sys.executable, "-c", alike).check().stdout
        self.assertNotIn("later step may need more", text)

    def test_batches_that_all_fail(self) -> None:
        find = ("--gpu", "1GiB", "--find-batch", "--batch-env", "B=64,128")
        said = self.dry_run(*find, "--", sys.executable, "-c", PROGRAM + "raise SystemExit(3)")
        self.assertNotIn("largest tried is 0", said.stdout)
        self.assertIn("No batch was found: no run got far enough", said.stdout, said.describe())

    def test_a_loop_that_needs_more_later(self) -> None:
        """It is not stopped while it still needs more; and it is said what the answer is of."""
        command = ("--", sys.executable, "-c", SAMPLER)
        result, answer = self.answer(*command)
        self.assertEqual(answer["end"], "stopped", result.describe())
        (rank,) = answer["ranks"]
        self.assertEqual(rank["peak_live_bytes"], (40 * 2 + 4 + 8) * MIB)
        self.assertTrue(rank["loop"])
        text = self.dry_run("--steps", "9", *command).check().stdout
        self.assertIn("turns of a loop seen, and no backward pass", text)
        self.assertIn("It was stopped then", text)
        self.assertIn("another optimizer's first step", text)
        text = self.dry_run(*command, "short").check().stdout
        self.assertIn("turns of a loop seen, and no backward pass; the command ended", text)
        self.assertNotIn("It was stopped then", text)

    def test_too_small_a_card(self) -> None:
        """It is run again with memory enough, so that there is an answer."""
        program = PROGRAM.replace(str(96 * MIB), str(900 * MIB))
        result, answer = self.answer("--gpu", "1GiB", "--", sys.executable, "-c", program)
        result.check()
        self.assertFalse(answer["fits_the_card"])
        self.assertEqual(answer["ranks"][0]["peak_live_bytes"], 900 * MIB)
        self.assertFalse(any(answer["cards"][0]["fits"].values()))
        self.assertEqual(answer["cards"][0]["slower"], {"torch": False, "expandable": False})
        self.assertEqual(answer["cards"][0]["spilled_bytes"], (900 + 520 - 1024) * MIB)
        self.assertTrue(all(answer["cards"][1]["fits"].values()))

    def test_fraction_that_serves(self) -> None:
        """Beside each card that it fits, and no other; memshim gives the program all that it asks
        for with that one, and not with a hundredth less."""
        result, answer = self.answer("--gpu", "1GiB", *self.program())
        given, largest = (
            next(card for card in answer["cards"] if card["id"] == name)
            for name in ("given", "b200")
        )
        self.assertEqual(given["fraction"], 0.61)  # 96 MiB and a context of 520
        self.assertEqual(largest["fraction"], 0.01)
        world: dict[str, Any] = {
            "SIMGPU_MEMORY": "1GiB",
            "SIMGPU_CONTEXT": 520 * MIB,
            "MEMSHIM_SPILL": "off",
        }
        for fraction, status in (("0.61", 0), ("0.6", 1)):
            result = self.run_under_shim(
                *[sys.executable, "-c", PROGRAM], MEMSHIM_FRACTION=fraction, **world
            )
            self.assertEqual(result.status, status, result.describe())
        text = self.dry_run("--gpu", "1GiB", *self.program()).check().stdout
        self.assertRegex(text, r"given .* fits from 0\.61 ")
        self.assertIn("from: the smallest MEMSHIM_FRACTION", text)
        self.assertNotIn("spilling", text)

    def test_what_spilling_costs(self) -> None:
        """By the bus of each card: what is on the host goes there and comes back in a step."""
        program = ["--", sys.executable, "-c", PROGRAM.replace(str(96 * MIB), str(64 << 30))]
        _, answer = self.answer("--gpu", "h200", *program)
        cards = {card["id"]: card for card in answer["cards"]}
        for name, rate, known in (
            ("rtx4090", 31_508_000_000, "documented"),
            ("t4", 15_754_000_000, "guessed"),
        ):
            card = cards[name]
            self.assertEqual((card["bus_bytes_per_s"], card["bus_is"]), (rate, known))
            seconds = card["spilled_bytes"] * 2 / rate
            self.assertAlmostEqual(card["spilling_ns_per_step"] / 1e9, seconds, places=6)
            self.assertNotIn("fraction", card)
        self.assertEqual(cards["h200"]["bus_is"], "measured")
        self.assertNotIn("spilling_ns_per_step", cards["h200"])
        text = self.dry_run("--gpu", "h200", *program).check().stdout
        self.assertRegex(text, r"t4 .* spills 49\.\d+ GiB, 6\.\d s ")
        self.assertIn("a bound", text)

    def test_text(self) -> None:
        result = self.dry_run(*self.program()).check()
        self.assertIn("Dry run on 1 simulated H100 80GB", result.stdout)
        self.assertIn("no step of an optimizer was seen", result.stdout)
        self.assertNotIn("Simulated H100", result.stdout)  # the command's own words

    def test_commands_that_fail(self) -> None:
        for command, status, said in (
            (["true"], 1, "no process of the command used a device; the command ended normally"),
            (["true"], 1, "Does it run on the CPU, because of an option or of a PyTorch without"),
            (["false"], 1, "the command failed: it ended with status 1"),
            (["bash", "-c", "kill -9 $$"], 1, "signal 9 ended it"),
            (["/nonexistent/program"], 127, "cannot run '/nonexistent/program'"),
            (["/etc/passwd"], 126, "cannot run '/etc/passwd'"),
            (["--ranks-of", "2", "--only", "0", "/nonexistent"], 127, "cannot run '/nonexistent'"),
        ):
            with self.subTest(command):
                result = self.dry_run(*([] if command[0].startswith("-") else ["--"]), *command)
                self.assertEqual(result.status, status, result.describe())
                self.assertIn(said, result.stdout + result.stderr)

    def test_what_is_asked_for_in_vain(self) -> None:
        """A device that is not there, a host, and a hub's model: one line each, where the command
        failed."""
        device = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); "
        device += "got = ctypes.c_int(); exit(cuda.cuDeviceGet(ctypes.byref(got), 3))"
        host = "import socket; socket.getaddrinfo('nowhere.invalid', 80)"
        hub = "import os; os.stat('/nowhere/hub/models--acme--tiny-2b')"
        for code, said in (
            (device, "It asked for device 3, counted from 0: --gpus 4 simulates enough of them."),
            (host, "It looked for the host nowhere.invalid, which was not found"),
            (hub, "It looked for acme/tiny-2b of the Hugging Face hub, which is not on this"),
        ):
            result = self.dry_run("--", sys.executable, "-c", code)
            self.assertEqual(result.status, 1, result.describe())
            self.assertIn(said, result.stdout)
        result = self.dry_run("--gpus", "4", "--", sys.executable, "-c", device)
        self.assertIn("the command ended normally", result.stdout)
        self.assertNotIn("It asked", result.stdout)

    def test_wrong_calls(self) -> None:
        for arguments, said in (
            ([], "there is no command to run"),
            (["--gpu", "h1000", "--", "true"], "cards: h100-80gb, h200"),
            (["--gpu", "4090", "--", "true"], "(did you mean 'rtx4090'?)"),
            (["--gpu", "80", "--", "true"], "(did you mean '80GiB'?)"),
            (["--gpu", "5TiB", "--", "true"], "a size as in 80GiB (4.00 TiB at most)"),
            (["--gpu", "500MiB", "--", "true"], "nothing is left, because a context takes 520.0 M"),
            (["--host-memory", "20", "--", "true"], "--host-memory is a size as in 20GiB"),
            (["--batch-env", "A B=8", "--", "true"], "--batch-env is a name and up to 16"),
            (["--batch-env", "SIMGPU_MEMORY=8", "--", "true"], "--batch-env is a name and up to"),
            (["--batch-env", "B=8", "--schedules", "both", "--", "true"], "each batch runs once"),
            (["--gpus", "0", "--", "true"], "--gpus is a number, 1 to 16"),
            (["--gpus", "17", "--", "true"], "--gpus is a number, 1 to 16"),
            (["--steps", "0", "--", "true"], "--steps is a number of steps"),
            (["--host-memory", "much", "--", "true"], "--host-memory is a size as in 20GiB"),
            (["--schedules", "two", "--", "true"], "--schedules is auto, one or both"),
            (["--values", "ones", "--", "true"], "--values is zeros or random"),
            (
                ["--batch-env", "B=8,8", "--", "true"],
                "--batch-env is a name and up to 16 different",
            ),
            (["--batch-arg", "--batch", "--", "true"], "--batch-arg is an argument and up to 16"),
            (["--batch-env", "B=8", "--find-batch", "--", "true"], "with two batches"),
            (["--find-batch", "--", "true"], "--find-batch needs"),
            (["--batch-env", "B=8", "--batch-arg", "b=8", "--", "true"], "give one of them"),
            (["--gpu", "/", "--", "true"], "--gpu /: Is a directory"),
            (["--data-stub", "/proc/version", "--", "true"], "/proc/version: is no JSON"),
            (["--ranks-of", "64", "--", "true"], "given together"),
            (["--offline-weights", "/nowhere", "--", "true"], "/nowhere: No such file"),
            (["--offline-weights", "/", "--", sys.executable], "/config.json: No such file"),
            (["--offline-weights", "/", "--allow-writes", "--", "true"], "leave --allow-writes"),
            (["--data-stub", "/nowhere", "--", "true"], "/nowhere: No such file"),
            (["--data-stub", "/", "--allow-writes", "--", "true"], "leave --allow-writes"),
            (["--only", "0", "--", "true"], "given together"),
            (["--ranks-of", "64", "--only", "1", "--", "true"], "--only is 0"),
            (["--ranks-of", "64", "--only", "0", "--", "torchrun", "x"], "leave 'torchrun' out"),
            *(
                (["--ranks-of", "64", "--only", "0", "--", *words], f"leave '{name}' out")
                for words, name in (
                    (["bash", "-c", "torchrun train.py"], "torchrun"),
                    (["sh", "-ec", "cd x && A=1 exec torchrun train.py"], "torchrun"),
                    (["env", "A=1", "B=2", "C=3", "torchrun", "x"], "torchrun"),
                    (["sh", "-c", "python -m torch.distributed.run x"], "torch.distributed.run"),
                    (["bash", "-l", "-c", "x; '/bin/accelerate' launch x"], "/bin/accelerate"),
                )
            ),
        ):
            with self.subTest(arguments):
                result = self.dry_run(*arguments)
                self.assertEqual(result.status, 2, result.describe())
                self.assertIn(said, result.stderr)

    def test_what_it_writes_is_gone(self) -> None:
        """Files that are there stay as they are; the command sees what it wrote."""
        checkpoint = self.folder / "model" / "checkpoint.pt"
        checkpoint.parent.mkdir()
        checkpoint.write_bytes(bytes(range(256)))
        other = checkpoint.with_name("other")
        other.write_text("kept")
        script = f"echo zeros > {checkpoint} && rm {other} && touch new && cat {checkpoint}"
        result = self.dry_run("--", "bash", "-c", script)
        self.assertIn("the command ended normally", result.stdout, result.describe())
        self.assertIn("zeros", result.stderr)
        self.assertEqual(checkpoint.read_bytes(), bytes(range(256)))
        self.assertEqual(other.read_text(), "kept")
        self.assertFalse((self.folder / "new").exists())
        self.dry_run("--allow-writes", "--", "bash", "-c", script)
        self.assertEqual(checkpoint.read_text(), "zeros\n")
        self.assertFalse(other.exists())

    def test_data_stub(self) -> None:
        """Rows by their features, where load_dataset looks; gone with the command."""
        stub = self.folder / "stub.json"
        features = {"text": {"string": 7}, "ids": {"list": "int32", "length": 3}, "label": "bool"}
        stub.write_text(
            json.dumps({"name": "org/data", "splits": {"train": 2}, "features": features})
        )
        command = ["--", sys.executable, "-c", "print(*open('org/data/train.jsonl'))"]
        result = self.dry_run("--data-stub", stub, *command)
        row = '{"text": "word wo", "ids": [0, 0, 0], "label": false}'
        self.assertEqual(result.stderr.count(row), 2, result.describe())
        self.assertFalse((self.folder / "org").exists())
        stub.write_text(json.dumps({"name": "org/data", "features": {"text": "sound"}}))
        result = self.dry_run("--data-stub", stub, *command)
        self.assertIn("text is of type 'sound'; known: int8", result.stderr)
        self.assertEqual((result.status, result.stdout), (2, ""), result.describe())

    def test_refused_where_writes_would_be_real(self) -> None:
        """Without a namespace of mounts: the command must not begin."""
        command = [CLI, "dry-run", "--", "touch", self.folder / "begun"]
        limited = ["unshare", "-r", "bash", "-c", "echo 0 > /proc/sys/user/max_mnt_namespaces; "]
        limited[-1] += " ".join(map(str, command))
        result = run(limited, cwd=self.folder, XDG_CACHE_HOME=self.cache())
        if "max_mnt_namespaces" in result.stderr or result.status == 1:
            self.skipTest("no user namespace can be limited here")
        self.assertEqual(result.status, 2, result.describe())
        self.assertIn("--allow-writes", result.stderr)
        self.assertFalse((self.folder / "begun").exists())

    def test_the_kernels_folders_elsewhere(self) -> None:
        """A /proc that is mounted elsewhere, as in a container's root, is left as it is."""
        script = f"mkdir proc && mount -t proc proc proc && {CLI} dry-run -- ls proc/self/status"
        result = self.unshared(script, "-p", "-f")
        self.assertIn("the command ended normally", result.stdout, result.describe())
        self.assertIn("proc/self/status", result.stderr)

    def test_folders_that_vanish(self) -> None:
        """Where a file system is mounted below a folder, each folder beside that one gets a layer
        of its own; others make and remove such folders meanwhile."""
        busy = self.folder / "busy"
        (busy / "mounted").mkdir(parents=True)
        (busy / "a:b,c").mkdir()
        for number in range(64):
            (busy / f"a{number}").mkdir()
        churn = f"""
import os
names = [("{busy}/a%d" % n, "{busy}/b%d" % n) for n in range(64)]
while os.getppid() == {os.getpid()}:
    for first, second in names:
        os.rename(first, second)
    for first, second in names:
        os.rename(second, first)
"""
        script = f"mount -t tmpfs none {busy}/mounted && "
        script += f"exec {CLI} dry-run -- touch {busy}/a:b,c/new"
        renaming = subprocess.Popen([sys.executable, "-c", churn])
        try:
            for _ in range(4):
                result = self.unshared(script)
                self.assertIn("the command ended normally", result.stdout, result.describe())
                self.assertFalse(any((busy / "a:b,c").iterdir()))
        finally:
            renaming.kill()
            renaming.wait()

    def test_installed(self) -> None:
        """Found beside the library, without any variable."""
        run(["cmake", "--install", BUILD], DESTDIR=self.folder / "root").check()
        cli = next((self.folder / "root").rglob("bin/memshim"))
        command: list[str | Path] = [cli, "dry-run", "--schedules", "one", *self.program()]
        result = run(command, cwd=self.folder, XDG_CACHE_HOME=self.cache())
        self.assertIn("Simulated H100 80GB", result.check().stderr)

    def test_nothing_is_left_in_memory(self) -> None:
        code = "import os; print(os.environ['SIMGPU_SHARED'])"
        left = Path(self.dry_run("--", sys.executable, "-c", code).stderr.splitlines()[-1]).parent
        self.assertTrue(left.name.startswith("memshim-dry-run."), left)
        self.assertFalse(left.exists())

    def sweep(self, command: list[str | Path], left: Path) -> None:
        """Runs what removes the folder of a dry run that has ended long ago. Another dry run on
        this machine may have removed it before."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(left, (0, 0))
        run(command, cwd=self.folder, XDG_CACHE_HOME=self.cache())

    def test_what_a_killed_one_left(self) -> None:
        """The next removes it, and so does memshim clean; neither takes one that runs, or whose
        command's processes do."""
        again: tuple[list[str | Path], ...] = (
            [CLI, "dry-run", "--schedules", "one", "--", "true"],
            [CLI, "clean", "--keep", "20GiB", self.folder],
        )
        # What the command has begun lives on after it.
        worker = "import os, sys; print(os.environ['SIMGPU_SHARED'], flush=True); input()"
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
        for command in again:
            with self.subTest(command):
                running = self.begin("--", sys.executable, "-c", code)
                assert running.stderr
                lines = iter(running.stderr.readline, b"")
                left = next(Path(line.decode().strip()) for line in lines if b"/devices" in line)
                left = left.parent
                self.sweep(command, left)
                self.assertTrue(left.exists(), "its process still runs")
                running.kill()
                running.wait()
                self.sweep(command, left)
                self.assertTrue(left.exists(), "a process of its command still runs")
                running.communicate()  # until that has ended, too
                self.sweep(command, left)
                self.assertFalse(left.exists())

    def test_workers_and_libraries(self) -> None:
        """A process that forks workers, as loaders do, and one that asks NVML."""
        workers = "import multiprocessing as m; p = m.get_context('fork').Pool(2); "
        workers += "print('squares', p.map(int(2).__pow__, [3, 4]), flush=True); p.close()"
        result = self.dry_run("--", sys.executable, "-c", PROGRAM + workers)
        self.assertIn("squares [8, 16]", result.check().stderr)
        self.assertIn("the command ended normally", result.stdout)
        nvml = """
import ctypes
nvml, name = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(96)
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetName(device, name, 96) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print("nvml", name.value.decode(), memory[0] >> 20, flush=True)
"""
        result = self.dry_run("--gpu", "rtx4090", "--", sys.executable, "-c", nvml)
        self.assertIn("nvml Simulated RTX 4090 24207", result.stderr, result.describe())

    def test_progress(self) -> None:
        """On a terminal: how far it is, and since when; the answer is not among it."""
        code = f"input()\n{PROGRAM}\ninput()"
        ours, its = pty.openpty()
        running = subprocess.Popen(
            [CLI, "dry-run", "--schedules", "one", "--", sys.executable, "-c", code],
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=its,
        )
        os.close(its)
        assert running.stdin
        said = b""
        for phase in (
            b"no device is used yet, for ",
            b"before the first step, 96.0 MiB at most, for",
        ):
            while phase not in said:
                said += os.read(ours, 4096)
            running.stdin.write(b"\n")
            running.stdin.flush()
        answer = running.communicate(timeout=TIMEOUT_S)[0]
        os.close(ours)
        self.assertIn(b"peak", answer)
        self.assertNotIn(b"dry run: before", answer)

    def test_each_run_has_its_report(self) -> None:
        """Also the second schedule, and the run that did not fit the card."""
        program = PROGRAM.replace(str(96 * MIB), str(900 * MIB))
        command = ("--gpu", "1GiB", "--", sys.executable, "-c", program)
        self.dry_run(*command, schedules="both").check()
        traces = list(self.folder.rglob("dry-run-*/**/trace.mshm"))
        self.assertEqual(len(traces), 3, traces)
        for trace in traces:
            self.assertTrue((trace.parent / "report.txt").exists(), trace)

    def test_version_and_host_memory(self) -> None:
        """What was not compared is this version; the host's memory is the largest process's."""
        version = run([CLI, "--version"]).check().stdout.split()[1]
        code = PROGRAM + f"kept = b'1' * {300 * MIB}"
        result, answer = self.answer("--", sys.executable, "-c", code)
        self.assertEqual(answer["version"], version, result.describe())
        self.assertGreater(answer["host_bytes"], 300 * MIB)
        self.assertLess(answer["host_bytes"], 600 * MIB)
        self.assertGreaterEqual(answer["host_all_bytes"], answer["host_bytes"])
        text = self.dry_run(*self.program()).check().stdout
        self.assertIn(f"memshim {version} was", text)
        self.assertIn("compared with one card, an H200, on 10 jobs (PyTorch 2.11.0, commit", text)
        self.assertIn("of this machine's memory, one process held at most", text)

    def test_host_memory(self) -> None:
        """A command that takes more than it may is ended, with its children, and it is said; what
        all took together is told."""
        child = PROGRAM + f"kept = b'1' * {200 * MIB}; print('holds', flush=True); input()"
        both = f"""
import subprocess, sys, time
command = [sys.executable, "-c", {child!r}]
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}}
children = [subprocess.Popen(command, **pipes) for _ in range(2)]
for child in children:
    while child.stdout.readline() != "holds\\n":
        pass
time.sleep(600)
"""
        limit = ("--host-memory", "300MiB")
        result, answer = self.answer(*limit, "--", sys.executable, "-c", both)
        self.assertEqual((result.status, answer["end"]), (1, "host memory"), result.describe())
        self.assertGreater(answer["host_all_bytes"], 300 * MIB, result.describe())
        self.assertLess(answer["host_bytes"], 300 * MIB)
        self.assertEqual(answer["host_limit_bytes"], 300 * MIB)
        self.assertIn("memory, and may hold 300.0 MiB: it is ended", result.stderr)
        self.assertEqual(len(answer["ranks"]), 2)
        text = self.dry_run(*limit, "--", sys.executable, "-c", both).stdout
        self.assertIn("it took more than 300.0 MiB of this machine's memory", text)

    def test_what_it_writes_counts(self) -> None:
        """Its files are in memory, and count with what it holds; who fills the layer is told so."""
        writer = f"""
{PROGRAM}
import sys, time
with open("checkpoint.pt", "wb") as file:
    for _ in range({{count}}):
        file.write(bytes({8 * MIB}))
        file.flush()
        time.sleep({{pause}})
time.sleep(2)
"""
        few = ["--", sys.executable, "-c", writer.format(count=25, pause=0)]
        result, answer = self.answer(*few)
        self.assertEqual(answer["end"], "ended", result.describe())
        self.assertGreaterEqual(answer["host_written_bytes"], 200 * MIB)
        self.assertLess(answer["host_written_bytes"], 210 * MIB)
        self.assertGreater(answer["host_all_bytes"], answer["host_written_bytes"])
        self.assertIn("200.0 MiB of it in files that it wrote", self.dry_run(*few).stdout)
        real = self.answer("--allow-writes", *self.program())[1]
        self.assertIsNone(real["host_written_bytes"])
        # Slowly, so that it is seen before the layer is full; at once, where either comes first.
        ended = "in files that it wrote, and may hold 300.0 MiB: it is ended"
        for pause, said in (
            (0.1, {"host memory": ended}),
            (0, {"host memory": ended, "failed": "No space left on device"}),
        ):
            with self.subTest(pause):
                command = ["--", sys.executable, "-c", writer.format(count=100, pause=pause)]
                result, answer = self.answer("--host-memory", "300MiB", *command)
                self.assertEqual(result.status, 1, result.describe())
                self.assertIn(answer["end"], said)
                self.assertIn(said[answer["end"]], result.stderr)
                self.assertLessEqual(answer["host_written_bytes"], 300 * MIB)
                text = self.dry_run("--host-memory", "300MiB", *command).stdout
                self.assertRegex(text, "(wrote filled its private|files that it wrote).* save no")
        self.assertFalse((self.folder / "checkpoint.pt").exists())

    def test_host_memory_of_who_does_not_end(self) -> None:
        """Who is told to end and takes more instead is killed before it has taken much more. In the
        time that others get, it would take five times as much."""
        deaf = f"""
import signal, threading, time
told = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: told.set())
{PROGRAM}
kept = [b"1" * {320 * MIB}]
told.wait()
for _ in range(60):
    kept.append(b"1" * {200 * MIB})
    time.sleep(1)
"""
        result, answer = self.answer("--host-memory", "300MiB", "--", sys.executable, "-c", deaf)
        self.assertEqual((result.status, answer["end"]), (1, "host memory"), result.describe())
        self.assertLess(answer["host_bytes"], 1000 * MIB)

    def test_a_machine_without_memory(self) -> None:
        """Where others have taken it, the command is not told that it took too much."""
        said = Path("/proc/meminfo").read_text().splitlines()
        lines = ["MemAvailable: 100000 kB" if "MemAvailable" in line else line for line in said]
        (self.folder / "meminfo").write_text("\n".join(lines) + "\n")
        program = self.folder / "program.py"
        program.write_text(f"{PROGRAM}\nimport time; time.sleep(60)")
        dry_run = f"{CLI} dry-run --schedules one --host-memory 2GiB -- {sys.executable} {program}"
        result = self.unshared(f"mount --bind meminfo /proc/meminfo && {dry_run}")
        self.assertEqual(result.status, 1, result.describe())
        self.assertIn("this machine has next to no memory left, and the command", result.stderr)
        self.assertIn("ended, because this machine had next to no memory left", result.stdout)
        self.assertNotIn("2.00 GiB", result.stdout + result.stderr)

    def test_weights_are_said_beforehand(self) -> None:
        """Those of a folder that the command names, for all its processes."""
        folder = self.folder / "model"
        folder.mkdir()
        for name in ("model-1-of-2.safetensors", "model-2-of-2.safetensors", "pytorch_model.bin"):
            with (folder / name).open("wb") as file:
                file.truncate(3 << 30)
        (folder / "optimizer.bin").write_bytes(b"1" * 4096)
        says = f"{folder} has weights of 6.00 GiB: a job that loads them to the host"
        program = ["--", sys.executable, "-c", PROGRAM, f"--model={folder}"]
        result = self.dry_run("--host-memory", "20GiB", *program, "--nproc-per-node", "2")
        self.assertIn(f"{says} in each of 2 processes takes 12.00 GiB of it", result.stderr)
        result = self.dry_run("--host-memory", "5GiB", *program)
        self.assertIn(f"{says} would take 6.00 GiB, and may take 5.00 GiB: it would", result.stderr)
        self.assertNotIn("has weights of", self.dry_run(*self.program()).stderr)

    def test_compared_with(self) -> None:
        """The version that was is the one whose results lie in the tree."""
        results = ROOT / "tests" / "gpu" / "NVIDIA-H200-580.159.04" / "results.json"
        found = json.loads(results.read_text())
        _, answer = self.answer(*self.program())
        compared = answer["compared_on_hardware"]
        self.assertTrue(found["commit"].startswith(compared.pop("commit")))
        machine = found["machine"]
        self.assertEqual(
            compared,
            {
                "version": machine["memshim"],
                "card": machine["device"],
                "driver": machine["driver"],
                "pytorch": machine["torch"].split("+")[0],
                "jobs": sum(
                    name.endswith("MiB, allocated") or name.endswith(", allocated")
                    for name in found["figures"]
                    if name.startswith("dry/")
                ),
            },
        )


if __name__ == "__main__":
    unittest.main()
