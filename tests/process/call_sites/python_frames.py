# SPDX-License-Identifier: Apache-2.0
"""Runs inside the interpreter under test, with libpython_frames.so preloaded: what memshim reads of
the thread's frames is compared with what Python itself says at the same moment.

python -m unittest python_frames.Plain, with PYTHON_FRAMES naming the library and PYTHON the
interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dis
import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TypeVar

Result = TypeVar("Result")

DEPTH = 256
CUT, LOST, INTERPRETER = 1, 2, 4
ENTRY = 1
LIBRARY = ctypes.CDLL(os.environ["PYTHON_FRAMES"])
HOLDING = ctypes.PyDLL(os.environ["PYTHON_FRAMES"])  # its functions run with the GIL held
CALLBACK = ctypes.CFUNCTYPE(None)


class CFrame(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint64),
        ("identity", ctypes.c_uint64),
        ("instruction", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


class CStack(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("hash", ctypes.c_uint64),
        ("frames", CFrame * DEPTH),
    ]


class CCode(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("first_line", ctypes.c_uint32),
        ("file_bytes", ctypes.c_size_t),
        ("function_bytes", ctypes.c_size_t),
        ("table_bytes", ctypes.c_size_t),
        ("file", ctypes.c_ubyte * 4096),
        ("function", ctypes.c_ubyte * 1024),
        ("table", ctypes.c_ubyte * 32768),
    ]


LIBRARY.frames_refusal.restype = ctypes.c_char_p
LIBRARY.frames_code.argtypes = [ctypes.c_uint64, ctypes.POINTER(CCode)]


@dataclass
class Stack:
    """What was read, innermost first: the function that asked, then what Python says of its
    callers at that moment."""

    frames: list[tuple[int, int, int, int]]  # code, instruction, flags, identity
    flags: int
    hash: int
    line: int = 0  # at which the innermost asked
    callers: list[tuple[CodeType, int, int]] = field(default_factory=list)
    loops: int = 0


def told(stack: CStack) -> Stack:
    frames = [
        (frame.code, frame.instruction, frame.flags, frame.identity)
        for frame in stack.frames[: stack.count]
    ]
    return Stack(frames, stack.flags, stack.hash)


def chain(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def capture(depth: int = DEPTH, library: ctypes.CDLL = LIBRARY) -> Stack:
    stack = CStack()
    room = ctypes.byref(stack)
    line = sys._getframe().f_lineno + 1
    library.frames_capture(depth, room)
    got = told(stack)
    got.line = line
    got.callers = [(each.f_code, each.f_lasti, each.f_lineno) for each in chain(sys._getframe(1))]
    got.loops = library.frames_loops()
    return got


def line_of(code: CodeType, instruction: int) -> int:
    if not hasattr(code, "co_lines"):  # 3.9
        starts = [line for start, line in dis.findlinestarts(code) if start <= instruction]
        return starts[-1]
    for start, end, line in code.co_lines():
        if start <= instruction < end:
            return line or 0
    return 0


def encoded(text: str, room: int) -> bytes:
    """Whole characters only, as many as fit."""
    out = b""
    for character in text:
        more = character.encode("utf-8", "surrogatepass")
        if len(out) + len(more) > room:
            break
        out += more
    return out


class FramesTest(unittest.TestCase):
    switched = False

    def same(self, got: Stack) -> None:
        self.assertEqual(got.flags, INTERPRETER)
        self.assertEqual(
            [(code, instruction) for code, instruction, _, _ in got.frames[1:]],
            [(id(code), max(instruction, 0)) for code, instruction, _ in got.callers],
        )
        self.assertEqual(got.frames[0][0], id(capture.__code__))
        self.assertEqual(line_of(capture.__code__, got.frames[0][1]), got.line)
        for code, instruction, line in got.callers:
            if instruction >= 0:  # else it has not begun
                self.assertEqual(line_of(code, instruction), line)
            self.named(code)
        # The symbol tells nothing where the loop was split into several functions, and a greenlet's
        # native stack goes on into that of whoever switched to it.
        if got.loops and not self.switched:
            self.assertEqual(sum(flags & ENTRY for _, _, flags, _ in got.frames), got.loops)
        self.assertTrue(got.frames[-1][2] & ENTRY)

    def named(self, code: CodeType) -> None:
        out = CCode()
        self.assertTrue(LIBRARY.frames_code(id(code), ctypes.byref(out)))
        name = getattr(code, "co_qualname", code.co_name)  # 3.11
        table = code.co_lnotab if sys.version_info < (3, 10) else code.co_linetable
        self.assertEqual(out.version, sys.hexversion >> 16)
        self.assertEqual(out.first_line, code.co_firstlineno)
        self.assertEqual(bytes(out.file[: out.file_bytes]), encoded(code.co_filename, 4095))
        self.assertEqual(bytes(out.function[: out.function_bytes]), encoded(name, 1023))
        fits = len(table) <= 32768
        self.assertEqual(bytes(out.table[: out.table_bytes]), table if fits else b"")


class Plain(FramesTest):
    def test_here(self) -> None:
        self.same(capture())

    def test_repeated(self) -> None:
        """Also once plain loads are used."""
        for _ in range(200):
            self.same(capture())
        first, second = [capture() for _ in range(2)]
        self.assertEqual(first.hash, second.hash)
        self.assertNotEqual(first.hash, capture().hash)

    def test_holding_the_gil(self) -> None:
        self.same(capture(library=HOLDING))

    def test_class_body_and_lambda(self) -> None:
        class Body:
            (lambda: self.same(capture()))()
            self.same(capture())

        self.assertIsNotNone(Body)

    def test_exec(self) -> None:
        exec("self.same(capture())", {**globals(), "self": self})
        eval("self.same(capture())", {**globals(), "self": self})

    def test_many_instructions(self) -> None:
        text = "x = 1\n" * 60000 + "self.same(capture())\n"
        exec(compile(text, "long.py", "exec"), {**globals(), "self": self})

    def test_no_refusal(self) -> None:
        capture()
        self.assertIsNone(LIBRARY.frames_refusal())

    def test_finalizer_and_exception(self) -> None:
        class Dying:
            def __del__(inner) -> None:  # noqa: N805
                self.same(capture())

        def holder(value: object) -> None:
            pass

        holder(Dying())
        loop: list[object] = [Dying()]
        loop.append(loop)
        del loop
        gc.collect()
        try:
            raise KeyError
        except KeyError:
            self.same(capture())

    def test_traced(self) -> None:
        def tracer(frame: FrameType, event: str, arg: object) -> None:
            sys.settrace(None)
            self.same(capture())

        def traced() -> None:
            pass

        sys.settrace(tracer)
        traced()


class Callbacks(FramesTest):
    def test_nested(self) -> None:
        def key(value: int) -> int:
            self.same(capture())
            return functools.reduce(fold, [1, 2, 3], value)

        def fold(left: int, right: int) -> int:
            self.same(capture())
            return left + right

        sorted([3, 1, 2], key=key)
        list(map(key, [1]))

    def test_through_foreign_code(self) -> None:
        def back() -> None:
            self.same(capture())
            if sys.getrecursionlimit() > len(list(chain(sys._getframe()))) + 900:
                LIBRARY.frames_call(CALLBACK(lambda: self.same(capture())))

        LIBRARY.frames_call(CALLBACK(back))

    def test_descriptors_and_operators(self) -> None:
        class Thing:
            def __add__(inner, other: object) -> None:  # noqa: N805
                self.same(capture())

            @property
            def value(inner) -> None:  # noqa: N805
                self.same(capture())

            def __init__(inner) -> None:  # noqa: N805
                self.same(capture())

            def __iter__(inner) -> Iterator[int]:  # noqa: N805
                self.same(capture())
                yield 1

        for _ in range(20):  # until the interpreter has specialized them
            _ = Thing() + 1
            _ = Thing().value
            list(Thing())
            for _ in Thing():
                pass


class Generators(FramesTest):
    def test_generators(self) -> None:
        def inner(count: int) -> Iterator[int]:
            for each in range(count):
                self.same(capture())
                yield each

        def outer(count: int) -> Iterator[int]:
            yield from inner(count)
            self.same(capture())

        for _ in range(30):
            for _ in outer(3):
                self.same(capture())
            sum(outer(3))
            sum(each for each in outer(2))

    def test_threw_and_closed(self) -> None:
        def generator() -> Iterator[int]:
            try:
                yield 1
            except ValueError:
                self.same(capture())
                yield 2
            finally:
                self.same(capture())

        running = generator()
        next(running)
        running.throw(ValueError())  # type: ignore[attr-defined]
        running.close()  # type: ignore[attr-defined]

    def test_coroutines(self) -> None:
        async def leaf() -> None:
            self.same(capture())
            await asyncio.sleep(0)
            self.same(capture())

        async def items() -> AsyncIterator[int]:
            for each in range(3):
                await leaf()
                yield each

        async def root() -> None:
            async for _ in items():
                self.same(capture())
            await asyncio.gather(leaf(), leaf())

        asyncio.run(root())


class Names(FramesTest):
    def test_odd_names(self) -> None:
        for name in [
            "quote\"'`.py",
            "new\nline\ttab\x00zero",
            "<b>&amp;",
            "latin-é",
            "greek-λ",
            "astral-\U0001f40d",
            "alone-\ud800\udfff-\udc80",
            "",
            "x" * 5000,
            "é" * 5000,
            "x" * 4095 + "é",
            "x" * 4093 + "\U0001f40d",
        ]:
            code = compile("self.same(capture())", "f", "exec")
            exec(code.replace(co_filename=name), {**globals(), "self": self})
            renamed = code.replace(co_name=name)
            if hasattr(code, "co_qualname"):  # 3.11
                renamed = renamed.replace(**{"co_qualname": name})  # type: ignore[arg-type]
            exec(renamed, {**globals(), "self": self})

    def test_of_a_derived_class(self) -> None:
        class Text(str):
            pass

        code = compile("self.same(capture())", Text("derivedé.py"), "exec")
        exec(code, {**globals(), "self": self})

    def test_not_code(self) -> None:
        out = CCode()
        for address in [0, 8, 0x1234, 1 << 46, 1 << 63, id(self), id("text")]:
            self.assertFalse(LIBRARY.frames_code(address, ctypes.byref(out)))

    def test_identity(self) -> None:
        """Code that comes to lie where other code did, under a name that lies elsewhere."""
        seen: dict[int, set[int]] = {}
        names: list[str] = []
        reused = 0
        for each in range(2000):
            name = f"function_{each}"
            scope = {**globals()}
            exec(f"def {name}():\n    return capture(2)", scope)
            names += [scope[name].__code__.co_name, scope[name].__qualname__]
            code, _, _, identity = scope[name]().frames[1]
            known = seen.setdefault(code, set())
            reused += bool(known)
            self.assertNotIn(identity, known)
            known.add(identity)
        self.assertGreater(reused, 0)


def recurse(depth: int, then: Callable[[], Result]) -> Result:
    return recurse(depth - 1, then) if depth else then()


class Depth(FramesTest):
    def test_cut(self) -> None:
        for depth in [1, 2, 7, 64, DEPTH]:
            got = recurse(300, functools.partial(capture, depth))
            self.assertEqual(got.flags, INTERPRETER | CUT)
            self.assertEqual(len(got.frames), depth)
            self.assertTrue(all(each[0] == id(recurse.__code__) for each in got.frames[1:]))

    def test_exactly(self) -> None:
        here = len(list(chain(sys._getframe()))) + 1
        self.assertEqual(capture(here).flags, INTERPRETER)
        self.assertEqual(capture(here - 1).flags, INTERPRETER | CUT)

    def test_very_deep(self) -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20000)
        try:
            got = recurse(15000, capture)
        finally:
            sys.setrecursionlimit(limit)
        self.assertEqual((len(got.frames), got.flags), (DEPTH, INTERPRETER | CUT))


class Threads(FramesTest):
    def test_without_python(self) -> None:
        stack = CStack()
        self.assertEqual(LIBRARY.frames_on_new_thread(ctypes.byref(stack)), 0)
        self.assertEqual((stack.count, stack.flags), (0, 0))

    def test_own_frames(self) -> None:
        errors: list[BaseException] = []

        def body() -> None:
            try:
                for _ in range(300):
                    self.same(capture())
                    self.same(capture(library=HOLDING))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=body) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_come_and_go(self) -> None:
        """While threads are born and die, and others change their frames."""
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                thread = threading.Thread(target=capture)
                thread.start()
                thread.join()

        churning = threading.Thread(target=churn)
        churning.start()
        try:
            for _ in range(2000):
                self.assertEqual(capture().flags, INTERPRETER)
        finally:
            stop.set()
            churning.join()


class SubInterpreters(FramesTest):
    def inside(self, text: str) -> None:
        for name in ["_interpreters", "_xxsubinterpreters"]:
            with contextlib.suppress(ImportError):
                module = importlib.import_module(name)
                break
        else:
            self.skipTest("no module of sub-interpreters")
        fresh = {"_interpreters": ["legacy"]}.get(name, [])
        if sys.version_info[:2] == (3, 12):
            other = module.create(isolated=False)
        else:
            other = module.create(*fresh)
        try:
            failed = module.run_string(other, text)
            self.assertIsNone(failed)
        finally:
            module.destroy(other)

    def script(self, holding: bool) -> str:
        """ctypes does not load in every sub-interpreter: the library is called by its module's
        function of the main one where it does."""
        return f"""
import sys
sys.path[:] = {sys.path!r}
import python_frames as p
def inner():
    got = p.capture(library=p.{"HOLDING" if holding else "LIBRARY"})
    wanted = [(id(code), instruction) for code, instruction, _ in got.callers]
    assert [each[:2] for each in got.frames[1:]] == wanted, got.frames
    assert got.flags == p.INTERPRETER, got.flags
for _ in range(100):
    inner()
"""

    def test_with_the_gil(self) -> None:
        self.inside(self.script(holding=True))

    def test_without_the_gil(self) -> None:
        if sys.version_info >= (3, 12):
            self.inside(self.script(holding=False))
            return
        # Which thread state is detached cannot be known there: no crash is what is asked.
        self.inside(
            f"import sys; sys.path[:] = {sys.path!r}\nimport python_frames as p\n"
            "assert p.capture().flags == p.INTERPRETER"
        )

    def test_beside(self) -> None:
        """The main interpreter's frames, while another interpreter exists."""
        try:
            module = importlib.import_module("_xxsubinterpreters")
        except ImportError:
            module = importlib.import_module("_interpreters")
        other = module.create()
        try:
            for _ in range(100):
                self.same(capture())
                self.same(capture(library=HOLDING))
        finally:
            module.destroy(other)


class Greenlets(FramesTest):
    def test_switching(self) -> None:
        try:
            greenlet = importlib.import_module("greenlet").greenlet
        except ImportError:
            self.skipTest("greenlet is not installed")

        def key(value: int) -> int:
            self.same(capture())
            return value

        def other() -> None:
            for _ in range(50):
                self.same(capture())
                recurse(5, main.switch)
                sorted([2, 1], key=key)

        def nested() -> None:
            second = greenlet(other)
            for _ in range(5):
                second.switch()
                self.same(capture())
            main.switch()

        self.switched = True
        main = greenlet.getcurrent()
        first = greenlet(other)
        third = greenlet(nested)
        for _ in range(20):
            recurse(3, first.switch)
            self.same(capture())
            if not third.dead:
                third.switch()
            self.same(capture())


class Forks(FramesTest):
    def test_child(self) -> None:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    self.same(capture())
                    code = 0
                os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_while_others_capture(self) -> None:
        stop = threading.Event()

        def busy() -> None:
            while not stop.is_set():
                capture()

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            self.test_child()
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class Signals(FramesTest):
    def test_in_a_handler_of_c(self) -> None:
        """While the thread is in C: the frames are those of that call."""
        stack = CStack()
        HOLDING.frames_on_signal(signal.SIGUSR1, ctypes.byref(stack))
        line = sys._getframe().f_lineno + 1
        os.kill(os.getpid(), signal.SIGUSR1)
        got = told(stack)
        self.assertEqual(got.frames[0][0], id(sys._getframe().f_code))
        self.assertEqual(line_of(sys._getframe().f_code, got.frames[0][1]), line)

    def test_in_a_handler_of_python(self) -> None:
        seen: list[int] = []

        def handler(number: int, frame: FrameType | None) -> None:
            self.same(capture())
            seen.append(number)

        signal.signal(signal.SIGUSR2, handler)
        for _ in range(10):
            os.kill(os.getpid(), signal.SIGUSR2)
            self.same(capture())
        self.assertEqual(len(seen), 10)

    def test_at_any_moment(self) -> None:
        """A timer interrupts the interpreter wherever it is."""
        stack = CStack()
        HOLDING.frames_on_signal(signal.SIGALRM, ctypes.byref(stack))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            recurse(20, lambda: [each for each in (capture(), 1)])
            sum(each for each in range(50))
        signal.setitimer(signal.ITIMER_REAL, 0)


LEAVING = """
import atexit, sys, threading, time
sys.path[:] = {path!r}
import python_frames as p
class Late:
    def __del__(self, capture=p.LIBRARY.frames_capture, stack=p.CStack(), byref=p.ctypes.byref):
        capture(256, byref(stack))
late = Late()
p.LIBRARY.frames_at_exit()
atexit.register(p.capture)
def busy():
    library, stack = p.LIBRARY, p.CStack()
    reference = p.ctypes.byref(stack)
    while True:
        library.frames_many(64, 1000)
for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
time.sleep(0.05)
print("leaving", end=" ", flush=True)
"""


class Endings(FramesTest):
    def test_captures_go_on(self) -> None:
        """In destructors, in daemon threads, and in C after the interpreter is gone."""
        for _ in range(10):
            done = subprocess.run(
                [os.environ["PYTHON"], "-c", LEAVING.format(path=sys.path)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual((done.returncode, done.stdout), (0, "leaving left"), done.stderr)
