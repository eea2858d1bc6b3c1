# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime without its arena: each tensor on the device is seen, at its line.

    options = {**memshim.onnxruntime.options(), ...}
    onnxruntime.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])

ONNX Runtime's CUDA provider takes two functions by which another allocator gives it memory
(`gpu_external_alloc`, `gpu_external_free`). These ask the driver, and so memshim, for each tensor.
The provider's other options for its arena then mean nothing.
"""

from __future__ import annotations

import ctypes
import functools
from types import TracebackType

from memshim import _process

_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Empty = ctypes.CFUNCTYPE(None)


class _Memory:
    """A device's memory, as functions of C."""

    def __init__(self, device: int) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.must(self.cuda.cuInit(0))
        self.must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.functions = (_Alloc(self.alloc), _Free(self.free), _Empty(lambda: None))

    @staticmethod
    def must(result: int) -> None:
        if result != 0:
            raise RuntimeError(f"memshim: the CUDA driver answered {result}")

    def __enter__(self) -> None:
        self.must(self.cuda.cuCtxPushCurrent_v2(self.context))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.must(self.cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))

    def alloc(self, size: int) -> int | None:
        """None, where there is no memory: ONNX Runtime says so."""
        address = ctypes.c_uint64()
        with self:
            result = self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return address.value if result == 0 else None

    def free(self, address: int | None) -> None:
        with self:
            self.cuda.cuMemFree_v2(ctypes.c_uint64(address or 0))


@functools.lru_cache(None)
def _memory(device: int) -> _Memory:
    """Kept: a session uses its functions as long as it lives."""
    return _Memory(device)


def options(device: int = 0) -> dict[str, str]:
    """Options of the CUDA provider for that device; none, where memshim is not preloaded."""
    if not _process.active():
        return {}
    alloc, free, empty = (
        str(ctypes.cast(function, ctypes.c_void_p).value) for function in _memory(device).functions
    )
    return {
        "device_id": str(device),
        "gpu_external_alloc": alloc,
        "gpu_external_free": free,
        "gpu_external_empty_cache": empty,
    }
