# SPDX-License-Identifier: Apache-2.0
"""A Python program that asks for memory from hard places: survive.py SCENARIO HELPER.

Each allocation has a size of its own. At the end a line for each: the size, and the functions and
lines that Python itself says are under way there, the innermost first."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

HELPER = ctypes.CDLL(sys.argv[2])
HOLDING = ctypes.PyDLL(sys.argv[2])  # its functions run with the GIL held
CUDA = ctypes.CDLL("libcuda.so.1")
KIB = 1024
sizes = iter(range(1, 1 << 20))
said: list[str] = []


def use_device() -> None:
    context = ctypes.c_void_p()
    assert CUDA.cuInit(0) == 0
    assert CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    HELPER.helper_use(CUDA.cuCtxSetCurrent, context)


def allocate() -> None:
    size, depth, frame = next(sizes), 0, sys._getframe()
    line = frame.f_lineno + 1
    assert HELPER.helper_allocate(CUDA.cuMemAlloc_v2, ctypes.c_size_t(size * KIB)) == 0
    told = [(frame.f_code.co_name, line)]
    while (outer := frame.f_back) is not None and depth < 100:
        told.append((outer.f_code.co_name, outer.f_lineno))
        frame, depth = outer, depth + 1
    said.append(json.dumps([size, told]))


def generators() -> None:
    def inner() -> Iterator[int]:
        for each in range(3):
            allocate()
            yield each

    def outer() -> Iterator[int]:
        yield from inner()
        allocate()

    async def leaf() -> None:
        await asyncio.sleep(0)
        allocate()

    async def items() -> AsyncIterator[int]:
        await leaf()
        yield 1

    async def root() -> None:
        async for _ in items():
            allocate()
        await asyncio.gather(leaf(), leaf())

    for _ in outer():
        allocate()
    sum(outer())
    asyncio.run(root())


def recurse(depth: int, then: Callable[[], None]) -> None:
    if depth > 0:
        recurse(depth - 1, then)
    else:
        then()


def recurse_in_c(depth: int, then: Callable[[], None]) -> None:
    """Each level is a call of the interpreter by C."""
    if depth > 0:
        list(map(lambda _: recurse_in_c(depth - 1, then), [1]))
    else:
        then()


def deep() -> None:
    sys.setrecursionlimit(30000)
    recurse(20000 if sys.version_info >= (3, 11) else 900, allocate)
    recurse_in_c(150, allocate)
    threading.stack_size(512 * KIB)
    for body in (
        lambda: recurse(300, allocate),
        lambda: recurse_in_c(60, allocate),
    ):
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()


def strangers() -> None:
    """A thread that Python has not seen, while this one waits for it."""
    for _ in range(10):
        size = ctypes.c_size_t(next(sizes) * KIB)
        assert HELPER.helper_thread(CUDA.cuMemAlloc_v2, size) == 0


def held() -> None:
    """One thread never lets go of the GIL; another one, and threads without Python, allocate."""
    threading.Thread(
        target=HELPER.helper_allocate_while_held, args=(CUDA.cuMemAlloc_v2, 200, 9), daemon=True
    ).start()
    time.sleep(0.2)
    HOLDING.helper_hold()


def finalizing() -> None:
    """Daemon threads allocate while the interpreter goes."""

    def busy() -> None:
        HELPER.helper_allocate_for_ever(CUDA.cuMemAlloc_v2, CUDA.cuMemFree_v2)

    for _ in range(3):
        threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.1)


def interpreters() -> None:
    """The other interpreter keeps the GIL: before 3.12 it is not seen without."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = importlib.import_module(name)
            break
        except ImportError:
            continue
    other = module.create("legacy") if name == "_interpreters" else module.create(isolated=False)
    inside = f"""
import sys
sys.argv = {["", "none", sys.argv[2]]!r}
sys.path.insert(0, {str(Path(__file__).parent)!r})
import survive
survive.HELPER = survive.HOLDING
survive.sizes = iter(range({{start}}, 10000))
def inside_another():
    survive.allocate()
for _ in range(50):
    inside_another()
print("\\n".join(survive.said))
"""
    for start in (100, 200):
        allocate()
        failed = module.run_string(other, inside.format(start=start))
        assert failed is None, failed
    module.destroy(other)
    allocate()


def greenlets() -> None:
    greenlet = importlib.import_module("greenlet").greenlet

    def other() -> None:
        while True:
            recurse_in_c(3, allocate)
            recurse(2, main.switch)

    main = greenlet.getcurrent()
    first, second = greenlet(other), greenlet(other)
    for _ in range(10):
        recurse_in_c(2, first.switch)
        recurse(3, second.switch)
        allocate()


def handlers() -> None:
    """Python's own handlers run between instructions."""
    seen = []

    def handler(number: int, frame: object) -> None:
        allocate()
        seen.append(number)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    while len(seen) < 30:
        allocate()
    signal.setitimer(signal.ITIMER_REAL, 0)


def forks() -> None:
    stop = False

    def busy() -> None:
        while not stop:
            recurse(next(sizes) % 50, lambda: HELPER.helper_allocate(CUDA.cuMemAlloc_v2, 4096))

    def exit_in_time(number: int) -> None:
        signal.alarm(60)
        if number % 2:
            os._exit(0)
        os.execv("/bin/true", ["true"])

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(60):
        child = os.fork()
        if child == 0:
            exit_in_time(number)
        assert os.waitpid(child, 0)[1] == 0
    stop = True
    for thread in threads:
        thread.join()


def names() -> None:
    """Files and functions whose names do not want to stay in their place."""
    for name in NAMES:
        code = compile("allocate()", name, "exec").replace(co_name=name)
        if hasattr(code, "co_qualname"):
            code = code.replace(**{"co_qualname": name})  # type: ignore[arg-type]
        exec(code, {"allocate": allocate})


NAMES = (
    "quotes\"'`.py",
    "new\nline\r\ttab.py",
    "</script><b>&amp;.py",
    "semi;colon {}.py",
    "alone-\udcff-\ud800.py",
    "\x1b[31m\x01.py",
)

if __name__ == "__main__":
    use_device()
    globals()[sys.argv[1]]()
    print("\n".join(said))
