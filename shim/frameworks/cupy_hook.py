# SPDX-License-Identifier: Apache-2.0
"""What memshim runs in a process that imports CuPy (shim/frameworks/cupy.c hands it to Python).

CuPy tells its memory hooks (cupy.cuda.MemoryHook) what its pool hands out and takes back. Hooks are
a thread's own: the importing one and those that `threading` starts take ours. What other threads do
is not told, so memshim takes nothing out of the pool's blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Of memshim's functions, which take a device, an address and a size; set before this runs.
ADDRESSES: tuple[int, int, int] = globals()["ADDRESSES"]


def hook_class(base: type) -> Any:  # noqa: ANN401
    """Of CuPy's class, which is not there yet where this is read."""
    # Python's lock is kept: these calls are short, and wait for nothing that needs it.
    kind = ctypes.PYFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    block, born, died = (kind(address) for address in ADDRESSES)

    def tell(function: Any) -> Callable[..., None]:  # noqa: ANN401
        def told(_: object, **what: int) -> None:
            if what["mem_ptr"]:
                function(what["device_id"], what["mem_ptr"], what["mem_size"])

        return told

    members = {
        "name": "memshim",
        "alloc_postprocess": tell(block),
        "malloc_postprocess": tell(born),
        # Not after it: another thread may have the memory by then.
        "free_preprocess": tell(died),
    }
    return type("MemshimHook", (base,), members)


def take(hook: Any) -> None:  # noqa: ANN401
    """In this thread. One that the program named so stays."""
    with contextlib.suppress(KeyError):
        hook.__enter__()


def begin_threads_with(hook: Any) -> None:  # noqa: ANN401
    """What `threading.setprofile` is given is called first in each thread: once, and then what was
    there before."""
    before = threading.getprofile()

    def first(frame: FrameType, event: Any, argument: Any) -> None:  # noqa: ANN401
        sys.setprofile(before)
        take(hook)
        if before is not None:
            before(frame, event, argument)

    threading.setprofile(first)


def install() -> bool:
    base = getattr(sys.modules.get("cupy.cuda.memory_hook"), "MemoryHook", None)
    if base is None:
        return False
    hook = hook_class(base)()
    take(hook)
    begin_threads_with(hook)
    return True


# False while CuPy is still about to make its class of hooks.
INSTALLED = install()
