# SPDX-License-Identifier: Apache-2.0
"""The package `memshim` inside a program: phases, steps, figures, the report, trainers' callbacks.

The trainers are made up, of the interface that theirs document: they tell a callback what the real
ones tell it, in their order.
"""

from __future__ import annotations

import _ctypes
import json
import shutil
import sys
import unittest
from pathlib import Path
from typing import Any

from machine import MIB, ROOT, ProcessTest, Result, only_report, remove_output, run

PACKAGE = ROOT / "scripts" / "package"

# A device, and blocks of it that stay.
DEVICE = """
import ctypes, json, sys
import memshim
cuda = ctypes.CDLL("libcuda.so.1")
def must(result):
    assert result == 0, result
def use():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(cuda.cuCtxSetCurrent(context))
def keep(mib):
    block = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib << 20)))
def say(**what):
    print(json.dumps(what))
"""

INSIDE = (
    DEVICE
    + """
before = memshim.stats()
use()
with memshim.tag("train"):
    for _ in range(3):
        memshim.step()
        keep(4)
    with memshim.tag("eval\\0ate"):
        keep(8)
@memshim.tag("decorated")
def decorated():
    keep(16)
decorated()
now = memshim.stats()
try:
    memshim.report(at="dawn")
except ValueError as error:
    wrong = str(error)
say(active=memshim.active(), before=before, now=now and now._asdict(), other=memshim.stats(63),
    report=memshim.report(), parsed=json.loads(memshim.report(form="json") or "null"), wrong=wrong,
    folder=memshim.trace_folder())
"""
)

TRANSFORMERS = """
class TrainerCallback:
    pass
class Handler:
    def __init__(self): self.callbacks = [Logger()]
class Logger(TrainerCallback):
    seen = []
    def on_log(self, args, state, control, logs=None, **more): self.seen.append(dict(logs))
class Trainer:
    def __init__(self): self.callback_handler = Handler()
    def tell(self, what, **more):
        for callback in self.callback_handler.callbacks:
            event = getattr(callback, "on_" + what, None)
            if event is not None:
                event("args", State, "control", model=self, **more)
class State:
    epoch = 0.0
"""

TRAINER = (
    DEVICE
    + """
import transformers
from memshim.transformers import add_memshim
trainer = transformers.Trainer()
add_memshim(trainer, epochs=True)
use()
trainer.tell("train_begin")
for epoch in range(2):
    transformers.State.epoch = float(epoch)
    trainer.tell("epoch_begin")
    for _ in range(2):
        trainer.tell("step_begin")
        keep(2)
        trainer.tell("step_end")
    trainer.tell("log", logs={"loss": 1.0})
    trainer.tell("prediction_step")
    keep(1)
    trainer.tell("prediction_step")
    trainer.tell("evaluate", metrics={})
    trainer.tell("epoch_end")
trainer.tell("train_end")
keep(32)
say(logged=transformers.Logger.seen)
"""
)

LIGHTNING = """
class Callback:
    pass
"""

FIT = (
    DEVICE
    + """
from memshim.lightning import MemshimCallback
class Logger:
    seen = []
    def log_metrics(self, metrics, step=None): self.seen.append([step, metrics])
class Trainer:
    current_epoch = 0
    global_step = 0
    log_every_n_steps = 2
    loggers = [Logger()]
use()
told = MemshimCallback(epochs=True)
told.on_train_start(Trainer, None)
told.on_train_epoch_start(Trainer, None)
for batch in range(4):                 # two batches a step
    told.on_train_batch_start(Trainer, None, "batch", batch)
    keep(2)
    Trainer.global_step += batch % 2
    told.on_train_batch_end(Trainer, None, "outputs", "batch", batch)
told.on_validation_start(Trainer, None)
keep(1)
told.on_validation_end(Trainer, None)
told.on_train_epoch_end(Trainer, None)
told.on_exception(Trainer, None, RuntimeError())
keep(32)
say(logged=Logger.seen)
"""
)

# Parts of a block that the driver serves, as it does managed memory.
DRIVERS_OWN = (
    DEVICE
    + """
use()
managed = ctypes.c_uint64()
must(cuda.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(64 << 20), 1))
keep(2)
seen = [memshim.stats().live_bytes]
for part in range(2):
    memshim.range_born(0, managed.value + (part << 22), 4 << 20)
    seen.append(memshim.stats().live_bytes)
memshim.range_died(0, managed.value, 4 << 20)
seen.append(memshim.stats().live_bytes)
must(cuda.cuMemFree_v2(managed))
seen.append(memshim.stats().live_bytes)
say(seen=seen)
"""
)

# A pool of one block, whose hooks are told as CuPy's are: by keywords, of sizes that it rounds up.
CUPY = """
class MemoryHook:
    name = "MemoryHook"
    def __enter__(self):
        hooks.append(self)
        return self
    def __exit__(self, *_): hooks.remove(self)
    def alloc_postprocess(self, **kwargs): pass
    def malloc_postprocess(self, **kwargs): pass
    def free_preprocess(self, **kwargs): pass
hooks = []
def alloc(size, at):
    for hook in hooks:
        hook.alloc_postprocess(device_id=0, mem_size=size, mem_ptr=at)
def malloc(size, at):
    for hook in hooks:
        hook.malloc_postprocess(device_id=0, size=size, mem_size=(size + 511) // 512 * 512,
                                mem_ptr=at, pmem_id=1)
def free(size, at):
    for hook in hooks:
        hook.free_preprocess(device_id=0, mem_size=(size + 511) // 512 * 512, mem_ptr=at, pmem_id=1)
"""

ARRAYS = (
    DEVICE
    + """
from cupy import cuda as pool
from memshim.cupy import MemshimHook
use()
block, older = ctypes.c_uint64(), ctypes.c_uint64()
must(cuda.cuMemAlloc_v2(ctypes.byref(older), ctypes.c_size_t(32 << 20)))
def live(): return memshim.stats().live_bytes - (32 << 20)
with MemshimHook():
    pool.malloc(2 << 20, older.value)  # who knows what else is in it
    pool.free(2 << 20, older.value)
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(64 << 20)))
    pool.alloc(64 << 20, block.value)
    seen = [live()]
    pool.malloc(1000, 0)               # it failed
    pool.malloc((4 << 20) - 100, block.value)
    seen.append(live())
    pool.malloc(2 << 20, block.value + (4 << 20))
    seen.append(live())
    pool.free((4 << 20) - 100, block.value)
    seen.append(live())
say(seen=seen)
"""
)


# The collector runs while the hook looks an array up, and what it finds frees another array.
COLLECTED = (
    DEVICE
    + """
import faulthandler, gc
from cupy import cuda as pool
from memshim.cupy import MemshimHook
faulthandler.dump_traceback_later(20, exit=True)
use()
block = ctypes.c_uint64()
must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(64 << 20)))
class Size(int):
    def __radd__(self, address):
        gc.collect()
        return address + int(self)
class Array:
    def __init__(self): self.itself = self
    def __del__(self): pool.free(2 << 20, block.value)
with MemshimHook():
    pool.alloc(64 << 20, block.value)
    pool.malloc(2 << 20, block.value)
    Array()
    for hook in pool.hooks:
        there = block.value + (4 << 20)
        hook.malloc_postprocess(device_id=0, mem_size=Size(4 << 20), mem_ptr=there)
    say(live=memshim.stats().live_bytes)
"""
)


# Resources with the interface that RMM documents: DeviceMemoryResource and CallbackMemoryResource.
RMM = """
class Pool:
    def __init__(self, start): self.next, self.calls = start, []
    def allocate(self, nbytes, stream=None):
        self.calls.append("allocate")
        address, self.next = self.next, self.next + (nbytes + 255) // 256 * 256
        return address
    def deallocate(self, ptr, nbytes, stream=None): self.calls.append("deallocate")
class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self.allocate_func, self.deallocate_func = allocate_func, deallocate_func
    def allocate(self, nbytes, stream="default"): return self.allocate_func(nbytes, stream)
    def deallocate(self, ptr, nbytes, stream="default"):
        self.deallocate_func(ptr, nbytes, stream)
"""

RESOURCE = (
    DEVICE
    + """
from rmm.mr import Pool
from memshim.rmm import seen as seen_by
use()
block = ctypes.c_uint64()
must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(64 << 20)))
def live(): return memshim.stats().live_bytes
pool = Pool(block.value)
resource = seen_by(pool)
seen = [live()]
first = resource.allocate(4 << 20)
seen.append(live())
second = resource.allocate(2 << 20)
seen.append(live())
resource.deallocate(first, 4 << 20)
seen.append(live())
say(seen=seen, calls=pool.calls)
"""
)

RESOURCE_ALONE = """
import json
from rmm.mr import Pool
from memshim.rmm import seen
pool = Pool(0)
print(json.dumps({"same": seen(pool) is pool}))
"""


# What ONNX Runtime's CUDA provider does with its options: it calls the functions at the addresses
# from threads of its own.
PROVIDER = (
    DEVICE
    + """
import sys, threading
import memshim.onnxruntime
ctypes.CDLL(sys.argv[1]) if sys.argv[1:] else None
options = memshim.onnxruntime.options()
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(int(options["gpu_external_alloc"]))
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(options["gpu_external_free"]))
empty = ctypes.CFUNCTYPE(None)(int(options["gpu_external_empty_cache"]))
def live(): return memshim.stats().live_bytes
def work():
    first = alloc(4 << 20)
    seen.append(live())
    second = alloc(2 << 20)
    seen.append(live())
    free(first)
    empty()
    seen.append(live())
    seen.append(alloc(1 << 36))
seen = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
say(seen=seen, device=options["device_id"], same=memshim.onnxruntime.options() == options)
"""
)

PROVIDER_ALONE = """
import json
import memshim.onnxruntime
print(json.dumps({"options": memshim.onnxruntime.options()}))
"""


def tagged(report: dict[str, Any]) -> dict[str, int]:
    """Bytes asked for, by the path of tags."""
    found: dict[str, int] = {}
    for site in report["call_sites"]:
        path = "/".join(site["tags"])
        found[path] = found.get(path, 0) + site["bytes"]
    return found


class Package(ProcessTest):
    def python(self, source: str, shim: bool, *arguments: str | Path, **made_up: str) -> Result:
        script = self.folder / "script.py"
        script.write_text(source)
        for name, text in made_up.items():
            place = self.folder / "made_up" / f"{name.replace('__', '/')}.py"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return run(
            [sys.executable, "-S", script, *arguments],
            shim=shim,
            cwd=self.folder,
            PYTHONPATH=f"{PACKAGE}:{self.folder / 'made_up'}",
            PYTHONDONTWRITEBYTECODE="1",
            MEMSHIM_OUTPUT=self.folder / "out",
        ).check()

    def report(self) -> dict[str, Any]:
        return only_report(self.folder / "out")

    def test_without_memshim_nothing_happens(self) -> None:
        said = json.loads(self.python(INSIDE, shim=False).stdout)
        self.assertFalse(said["active"])
        for name in ("before", "now", "other", "report", "parsed", "folder"):
            self.assertIsNone(said[name], name)

    def test_phases_steps_figures_and_the_report(self) -> None:
        said = json.loads(self.python(INSIDE, shim=True).stdout)
        self.assertTrue(said["active"])
        self.assertIsNone(said["before"], "the device was not used yet")
        self.assertIsNone(said["other"])
        self.assertEqual(said["now"]["live_bytes"], 36 * MIB)
        self.assertEqual(said["now"]["status"], "normal")
        self.assertEqual(said["now"]["refusals"], 0)
        self.assertIn('"now" is all', said["wrong"])
        self.assertIn("Peak ", said["report"])
        self.assertEqual(said["parsed"]["devices"][0]["peak_live_bytes"], 36 * MIB)
        self.assertTrue(Path(said["folder"], "trace.mshm").exists())
        report = self.report()
        self.assertEqual(
            tagged(report),
            {"train": 12 * MIB, "train/eval?ate": 8 * MIB, "decorated": 16 * MIB},
        )
        self.assertEqual(report["steps"]["count"], 3)

    def test_the_callback_of_hugging_faces_trainer(self) -> None:
        result = self.python(TRAINER, shim=True, transformers=TRANSFORMERS)
        logged = json.loads(result.stdout)["logged"]
        live = [row["memshim/live_bytes"] for row in logged]
        self.assertEqual(live, [4 * MIB, 9 * MIB], "the loggers see its figures")
        self.assertEqual([row["loss"] for row in logged], [1.0, 1.0])
        report = self.report()
        self.assertEqual(report["steps"]["count"], 4)
        self.assertEqual(
            tagged(report),
            {
                "train/epoch 1": 4 * MIB,
                "train/epoch 1/eval": MIB,
                "train/epoch 2": 4 * MIB,
                "train/epoch 2/eval": MIB,
                "": 32 * MIB,
            },
        )

    def test_the_callback_of_lightning(self) -> None:
        made_up = {"lightning__pytorch": LIGHTNING, "lightning____init__": ""}
        logged = json.loads(self.python(FIT, shim=True, **made_up).stdout)["logged"]
        self.assertEqual([step for step, _ in logged], [1, 2])
        self.assertEqual([row["memshim/live_bytes"] for _, row in logged], [4 * MIB, 8 * MIB])
        report = self.report()
        self.assertEqual(report["steps"]["count"], 2)
        self.assertEqual(
            tagged(report),
            {"train/epoch 1": 8 * MIB, "train/epoch 1/validate": MIB, "": 32 * MIB},
        )

    def test_arrays_inside_of_cupys_pool(self) -> None:
        made_up = {"cupy__cuda": CUPY, "cupy____init__": ""}
        said = json.loads(self.python(ARRAYS, shim=True, **made_up).stdout)
        self.assertEqual(said["seen"], [64 * MIB, 4 * MIB, 6 * MIB, 2 * MIB])
        self.assertEqual(sum(site["bytes"] for site in self.report()["call_sites"]), 38 * MIB)

    def test_the_collector_frees_an_array_while_another_is_looked_up(self) -> None:
        made_up = {"cupy__cuda": CUPY, "cupy____init__": ""}
        said = json.loads(self.python(COLLECTED, shim=True, **made_up).stdout)
        self.assertEqual(said["live"], 4 * MIB)

    def test_parts_of_the_drivers_own_blocks_count_once(self) -> None:
        said = json.loads(self.python(DRIVERS_OWN, shim=True).stdout)
        self.assertEqual(said["seen"], [size * MIB for size in (66, 6, 10, 6, 2)])
        self.assertEqual(self.report()["devices"][0]["peak_live_bytes"], 66 * MIB)

    def test_allocations_inside_of_rmms_pool(self) -> None:
        made_up = {"rmm__mr": RMM, "rmm____init__": ""}
        said = json.loads(self.python(RESOURCE, shim=True, **made_up).stdout)
        self.assertEqual(said["seen"], [64 * MIB, 4 * MIB, 6 * MIB, 2 * MIB])
        self.assertEqual(said["calls"], ["allocate", "allocate", "deallocate"])

    def test_rmms_resource_is_itself_without_memshim(self) -> None:
        made_up = {"rmm__mr": RMM, "rmm____init__": ""}
        said = json.loads(self.python(RESOURCE_ALONE, shim=False, **made_up).stdout)
        self.assertTrue(said["same"])

    def test_each_tensor_of_onnx_runtime(self) -> None:
        said = json.loads(self.python(PROVIDER, shim=True).stdout)
        self.assertEqual(said["seen"], [4 * MIB, 6 * MIB, 2 * MIB, None])
        self.assertEqual((said["device"], said["same"]), ("0", True))
        for site in self.report()["call_sites"]:
            self.assertIn("work", {frame["function"] for frame in site["frames"]})

    def test_the_report_says_whether_onnx_runtimes_arena_is_in_use(self) -> None:
        provider = self.folder / "libonnxruntime_providers_cuda.so"
        shutil.copy(Path(_ctypes.__file__), provider)
        self.python(PROVIDER, True, provider)
        self.assertTrue(self.notes("ONNX Runtime's arena is not in use"))
        remove_output(self.folder / "out")
        self.python(f"{DEVICE}ctypes.CDLL(sys.argv[1])\nuse()\nkeep(4)", True, provider)
        self.assertTrue(self.notes("ONNX Runtime's arena is in use"))

    def notes(self, words: str) -> list[str]:
        return [text for text in self.report()["notes"] if words in text]

    def test_onnx_runtime_keeps_its_arena_without_memshim(self) -> None:
        said = json.loads(self.python(PROVIDER_ALONE, shim=False).stdout)
        self.assertEqual(said["options"], {})

    def test_callbacks_do_nothing_without_memshim(self) -> None:
        result = self.python(TRAINER, shim=False, transformers=TRANSFORMERS)
        self.assertEqual(json.loads(result.stdout)["logged"], [{"loss": 1.0}] * 2)


if __name__ == "__main__":
    unittest.main()
