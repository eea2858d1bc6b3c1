# SPDX-License-Identifier: Apache-2.0
"""CuPy's arrays are seen where it is imported, and nothing of Python's start is changed for it.

CuPy's module of hooks is a stand-in (cupy_hooks.c), imported as CuPy's is; its pool tells
what CuPy's tells, in its order.
"""

from __future__ import annotations

import json
import shutil
import sys
import unittest
from typing import Any

from call_sites.test_python_package import DEVICE
from machine import MIB, ROOT, ProcessTest, Result, only_report, program, run

START = (
    """
import sys
sys.path[:0] = FOLDERS
"""
    + DEVICE
    + """
def live(): return memshim.stats().live_bytes
def make(mib):
    block = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib << 20)))
    return block.value
MIB = 1 << 20
use()
import cupy
from cupy.cuda import memory_hook as pool
"""
)

ARRAYS = """
foreign = make(16)
block = make(64)
pool.alloc(block, 64 * MIB)
seen = [live()]
pool.malloc(0, 1000)                      # it failed
pool.malloc(block, 4 * MIB - 100)
seen.append(live())
pool.malloc(foreign, MIB)                 # of a block that was not told
pool.free(foreign, MIB)
pool.free(block + 8 * MIB, MIB)           # what was not told
def kept(): pool.malloc(block + 4 * MIB, 2 * MIB)
kept()
seen.append(live())
pool.free(block, 4 * MIB - 100)
seen.append(live())
say(seen=seen, hooks=list(pool.get_memory_hooks()))
"""

THREADS = """
import _thread, threading
block = make(64)
pool.alloc(block, 64 * MIB)
def work(at):
    pool.malloc(block + at, 4 * MIB)
    seen.append((live(), sys.getprofile() is None))
seen = []
thread = threading.Thread(target=work, args=(0,))
thread.start()
thread.join()
# One that is not Python's own: what it frees, and puts elsewhere, is not told.
ended = _thread.allocate_lock()
ended.acquire()
def unseen():
    pool.free(block, 4 * MIB)
    pool.malloc(block + 2 * MIB, MIB)
    pool.free(block + 2 * MIB, MIB)
    ended.release()
_thread.start_new_thread(unseen, ())
ended.acquire()
unchanged = live()
pool.malloc(block + MIB, 16 * MIB)        # over what lived there for us
say(seen=seen, unchanged=unchanged, after=live())
"""

# Its profiler is there before CuPy, and is set once more.
PROFILED = """
def work(): say(profiler=sys.getprofile() is profile)
for again in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    threading.setprofile(profile)
"""
PROFILER = """
import threading
def profile(frame, event, argument): pass
threading.setprofile(profile)
"""

PACKAGE = """
from memshim.cupy import MemshimHook
block = make(64)
with MemshimHook():
    pool.alloc(block, 64 * MIB)
    pool.malloc(block, 4 * MIB)
    seen = [live()]
    pool.free(block, 4 * MIB)
seen.append(live())
say(seen=seen)
"""

SWITCHED_OFF = """
say(hooks=list(pool.get_memory_hooks()), module="_memshim_cupy" in sys.modules)
"""

NOTE = "memshim sees CuPy's arrays"


class Cupy(ProcessTest):
    def setUp(self) -> None:
        super().setUp()
        self.packages = self.folder / "packages"
        inside = self.packages / "cupy" / "cuda"
        inside.mkdir(parents=True)
        (inside.parent / "__init__.py").write_text("from cupy import cuda\n")
        (inside / "__init__.py").write_text(
            "from cupy.cuda import memory_hook, pinned_memory\n"
            "from cupy.cuda.memory_hook import MemoryHook\n"
        )
        for name in ("memory_hook", "pinned_memory"):
            shutil.copy(program("libcupy_hooks.so"), inside / f"{name}.so")

    def start(
        self,
        source: str,
        *options: str,
        first: str = "",
        **settings: Any,  # noqa: ANN401
    ) -> Result:
        script = self.folder / "script.py"
        folders = [str(ROOT / "scripts" / "package"), str(self.packages)]
        script.write_text(first + START.replace("FOLDERS", repr(folders)) + source)
        return run(
            [sys.executable, *options, script],
            shim=True,
            cwd=self.folder,
            PYTHONDONTWRITEBYTECODE="1",
            MEMSHIM_OUTPUT=self.folder / "out",
            **settings,
        ).check()

    def say(self, source: str, *options: str, **settings: Any) -> Any:  # noqa: ANN401
        return json.loads(self.start(source, *options, **settings).stdout)

    def test_arrays_are_live_at_their_lines(self) -> None:
        said = self.say(ARRAYS)
        self.assertEqual(said["seen"], [16 * MIB, 20 * MIB, 22 * MIB, 18 * MIB])
        self.assertEqual(said["hooks"], ["memshim"])
        report = only_report(self.folder / "out")
        self.assertTrue([text for text in report["notes"] if NOTE in text], report["notes"])
        (kept,) = [site for site in report["call_sites"] if site["bytes"] == 2 * MIB]
        self.assertRegex(kept["line"], r"script\.py:\d+ in kept")

    def test_isolated_and_without_site(self) -> None:
        self.assertEqual(self.say(ARRAYS, "-I", "-S")["hooks"], ["memshim"])

    def test_sitecustomize_is_the_users(self) -> None:
        own = self.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import sys; sys.customized = True\n")
        said = self.say("say(theirs=sys.customized)", PYTHONPATH=own)
        self.assertTrue(said["theirs"])

    def test_threads(self) -> None:
        """Those of Python's are seen; what others do leaves the books right where it is told."""
        said = self.say(THREADS)
        self.assertEqual(said["seen"], [[4 * MIB, True]])
        self.assertEqual(said["unchanged"], 4 * MIB)
        self.assertEqual(said["after"], 16 * MIB)

    def test_a_profiler_of_the_programs_stays(self) -> None:
        said = self.start(PROFILED, first=PROFILER).stdout.splitlines()
        self.assertEqual([json.loads(line) for line in said], [{"profiler": True}] * 2)

    def test_the_packages_hook_beside_it_counts_nothing_twice(self) -> None:
        self.assertEqual(self.say(PACKAGE)["seen"], [4 * MIB, 0])
        self.assertFalse(only_report(self.folder / "out")["oom_events"])

    def test_it_can_be_switched_off(self) -> None:
        for settings in ({"MEMSHIM_FRAMEWORKS": "torch"}, {"MEMSHIM_POOL": "off"}):
            with self.subTest(**settings):
                self.assertEqual(self.say(SWITCHED_OFF, **settings), {"hooks": [], "module": False})


if __name__ == "__main__":
    unittest.main()
