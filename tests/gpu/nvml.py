# SPDX-License-Identifier: Apache-2.0
"""The device as NVML shows it from outside: name, driver, and memory in use over a time."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from types import TracebackType
from uuid import UUID

PERIOD_S = 0.01
TEXT_BYTES = 96


class NvmlError(Exception):
    """NVML is missing, or said no."""


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong)] + [
        ("used", ctypes.c_ulonglong)
    ]


class Nvml:
    """One device, by its UUID in 32 hexadecimal digits; "" for the first."""

    def __init__(self, uuid: str = "", folder: Path | None = None) -> None:
        name = "libnvidia-ml.so.1"
        try:
            self.library = ctypes.CDLL(str(folder / name) if folder else name)
        except OSError as error:
            raise NvmlError(str(error)) from error
        self.handle = ctypes.c_void_p()
        self.must("nvmlInit_v2")
        if uuid:
            text = f"GPU-{UUID(hex=uuid)}"
            self.must("nvmlDeviceGetHandleByUUID", text.encode(), ctypes.byref(self.handle))
        else:
            self.must("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.handle))

    def must(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self.library, function)(*arguments)
        except AttributeError as error:
            raise NvmlError(f"NVML has no {function}") from error
        if status != 0:
            raise NvmlError(f"{function} gave {status}")

    def driver_version(self) -> str:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        self.must("nvmlSystemGetDriverVersion", text, TEXT_BYTES)
        return text.value.decode()

    def used_bytes(self) -> int:
        """By all processes on the device."""
        memory = Memory()
        self.must("nvmlDeviceGetMemoryInfo", self.handle, ctypes.byref(memory))
        return int(memory.used)


class Peak:
    """The most that was in use on the device while a block of code ran, above what was at its
    beginning."""

    def __init__(self, nvml: Nvml) -> None:
        self.nvml = nvml
        self.before_bytes = nvml.used_bytes()
        self.most_bytes = self.before_bytes
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self) -> None:
        while not self.over.wait(PERIOD_S):
            self.most_bytes = max(self.most_bytes, self.nvml.used_bytes())

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self.thread.join()

    @property
    def bytes(self) -> int:
        return self.most_bytes - self.before_bytes
