# SPDX-License-Identifier: Apache-2.0
"""Small programs on the CUDA runtime, by ctypes, without PyTorch: probes.py NAME RUNTIME [...].

RUNTIME is a libcudart. Each says what it found in a JSON line.
"""

from __future__ import annotations

import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

MIB = 1 << 20
TO_DEVICE, TO_HOST = 1, 2
LAZY_PEER_ACCESS = 1
IPC_SIZES = (1000, 3 * MIB + 256, 40 * MIB)
HANDLE_BYTES = 64
FREED_BYTES = 64 * MIB
FREES, CYCLES = 50, 1000
DRIVER_API, ENTERING = 1, 0


class Runtime:
    """The functions that the probes need; each must succeed."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)

    def must(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            sys.exit(f"{function} gave error {status}")

    def allocate(self, size: int) -> ctypes.c_void_p:
        at = ctypes.c_void_p()
        self.must("cudaMalloc", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def free(self, at: ctypes.c_void_p) -> None:
        self.must("cudaFree", at)

    def wait(self) -> None:
        self.must("cudaDeviceSynchronize")

    def write(self, at: ctypes.c_void_p, data: bytes) -> None:
        self.must("cudaMemcpy", at, data, ctypes.c_size_t(len(data)), TO_DEVICE)

    def read(self, at: ctypes.c_void_p, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.must("cudaMemcpy", data, at, ctypes.c_size_t(size), TO_HOST)
        return data.raw


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def content(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(4096) * (size // 4096 + 1)


class Handle(ctypes.Structure):
    """cudaIpcMemHandle_t, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


def ipc_opener(runtime: Runtime, arguments: Sequence[str]) -> None:
    """Reads a handle and a size from its input; looks at what is there, and writes its own."""
    size = int(arguments[0])
    handle = Handle.from_buffer_copy(sys.stdin.buffer.read(HANDLE_BYTES))
    at = ctypes.c_void_p()
    runtime.must("cudaIpcOpenMemHandle", ctypes.byref(at), handle, LAZY_PEER_ACCESS)
    if runtime.read(at, size) != content(size, size)[:size]:
        sys.exit("the other process's memory holds something else")
    runtime.write(at, content(size, size + 1)[:size])
    runtime.wait()
    runtime.must("cudaIpcCloseMemHandle", at)


def ipc(runtime: Runtime, arguments: Sequence[str]) -> None:
    """Memory of this process, read and written by another, block after block."""
    before = runtime.allocate(300_000)
    for size in IPC_SIZES:
        at = runtime.allocate(size)
        runtime.write(at, content(size, size)[:size])
        handle = Handle()
        runtime.must("cudaIpcGetMemHandle", ctypes.byref(handle), at)
        command = [sys.executable, __file__, "ipc-opener", sys.argv[2], str(size)]
        done = subprocess.run(command, input=bytes(handle), capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{size} bytes: {done.stderr.decode().strip()}")
        same = runtime.read(at, size) == content(size, size + 1)[:size]
        say(event="ipc", bytes=size, same=same)
        runtime.free(at)
    runtime.free(before)


def frees(runtime: Runtime, arguments: Sequence[str]) -> None:
    """What cudaFree takes, with its wait for a device that has nothing to do; and what pairs as
    PyTorch makes them take when its cache is empty."""
    took_us = []
    for _ in range(FREES):
        at = runtime.allocate(FREED_BYTES)
        runtime.wait()
        start = time.perf_counter_ns()
        runtime.free(at)
        took_us.append((time.perf_counter_ns() - start) / 1000)
    draw = random.Random(7)
    live = [runtime.allocate(20 * MIB) for _ in range(8)]
    start = time.perf_counter_ns()
    for _ in range(CYCLES):
        runtime.free(live.pop(draw.randrange(len(live))))
        live.append(runtime.allocate(draw.choice((2, 20, 22, 64)) * MIB))
    cycle_us = (time.perf_counter_ns() - start) / 1000 / CYCLES
    say(event="frees", free_us=statistics.median(took_us), cycle_us=cycle_us)


class CallbackData(ctypes.Structure):
    """The beginning of CUpti_CallbackData."""

    _fields_ = [("site", ctypes.c_int), ("function", ctypes.c_char_p)]


CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData)
)


class CuFileError(ctypes.Structure):
    """CUfileError_t."""

    _fields_ = [("error", ctypes.c_int), ("driver_error", ctypes.c_int)]


class At(Protocol):
    """A pointer to it."""

    contents: CallbackData


def listen(cupti: str, names: list[str]) -> object:
    """Names of the driver's functions called from now on; what it returns has to be kept."""

    def called(_: object, __: int, ___: int, data: At) -> None:
        if data.contents.site == ENTERING:
            names.append((data.contents.function or b"").decode())

    library, subscriber, kept = ctypes.CDLL(cupti), ctypes.c_void_p(), CALLBACK(called)
    if library.cuptiSubscribe(ctypes.byref(subscriber), kept, None) != 0:
        return None
    library.cuptiEnableDomain(1, subscriber, DRIVER_API)
    return kept


def cufile(runtime: Runtime, arguments: Sequence[str]) -> None:
    """A buffer registered with cuFile, whole and from within: which calls of the driver tell of it?
    Arguments: libcufile, and CUPTI's library or ""."""
    library = ctypes.CDLL(arguments[0])
    for name in ("cuFileDriverOpen", "cuFileBufRegister", "cuFileBufDeregister"):
        getattr(library, name).restype = CuFileError
    at = runtime.allocate(32 * MIB)
    runtime.wait()
    names: list[str] = []
    kept = listen(arguments[1], names) if arguments[1] else None
    opened = library.cuFileDriverOpen()
    say(event="cufile", call="cuFileDriverOpen", error=opened.error, driver=opened.driver_error)
    for offset, size in ((0, 32 * MIB), (4 * MIB, 8 * MIB)):
        del names[:]
        address = ctypes.c_void_p((at.value or 0) + offset)
        done = library.cuFileBufRegister(address, ctypes.c_size_t(size), 0)
        say(
            event="cufile",
            call=f"cuFileBufRegister at {offset // MIB} MiB",
            error=done.error,
            driver=done.driver_error,
            functions=sorted(set(names)),
        )
        if done.error == 0:
            library.cuFileBufDeregister(address)
    del kept


PROBES: dict[str, Callable[[Runtime, Sequence[str]], None]] = {
    "ipc": ipc,
    "ipc-opener": ipc_opener,
    "frees": frees,
    "cufile": cufile,
}

if __name__ == "__main__":
    PROBES[sys.argv[1]](Runtime(sys.argv[2]), sys.argv[3:])
