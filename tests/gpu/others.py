# SPDX-License-Identifier: Apache-2.0
"""A computation in a framework other than PyTorch: others.py NAME. Says a digest of its results,
and the most that the framework itself knows to have had from the device, where it tells."""

from __future__ import annotations

import hashlib
import json
import os
import sys

import numpy

SIZE = 2048
ROUNDS = 40

Outcome = tuple[numpy.ndarray, int | None]


def inputs() -> numpy.ndarray:
    return numpy.random.default_rng(3).standard_normal((SIZE, SIZE)).astype(numpy.float32)


def cupy_job() -> Outcome:
    import cupy

    x = cupy.asarray(inputs())
    for n in range(ROUNDS):
        wide = cupy.tile(x, (1 + n % 5, 1))
        x = cupy.tanh(wide[:SIZE] @ x.T / SIZE)
        del wide
    result: numpy.ndarray = cupy.asnumpy(x)
    # Its pool gives nothing back by itself.
    return result, int(cupy.get_default_memory_pool().total_bytes())


def jax_job() -> Outcome:
    import jax

    if jax.default_backend() not in ("gpu", "cuda"):
        sys.exit("JAX sees no GPU")
    step = jax.jit(lambda x: jax.numpy.tanh(x @ x.T / SIZE))
    x = jax.numpy.asarray(inputs())
    for _ in range(ROUNDS):
        x = step(x)
    result = numpy.asarray(x)
    told = jax.local_devices()[0].memory_stats() or {}
    # Its own allocator takes memory in large pieces, of which arrays are parts.
    in_pieces = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") == "default"
    return result, told.get("pool_bytes" if in_pieces else "peak_bytes_in_use")


def numba_job() -> Outcome:
    from numba import cuda

    @cuda.jit
    def scale(values, factor):  # type: ignore  # noqa: ANN001, ANN202
        i = cuda.grid(1)
        if i < values.size:
            values[i] = values[i] * factor + 1.0

    x = cuda.to_device(inputs().ravel())
    for n in range(ROUNDS):
        scale[(x.size + 255) // 256, 256](x, numpy.float32(1.0 / (n + 1)))
        other = cuda.device_array_like(x)
        other.copy_to_device(x)
        x = other
    result: numpy.ndarray = x.copy_to_host()
    return result, None


JOBS = {"cupy": cupy_job, "jax": jax_job, "numba": numba_job}


def main() -> None:
    result, own_bytes = JOBS[sys.argv[1]]()
    digest = hashlib.sha256(numpy.ascontiguousarray(result).tobytes()).hexdigest()
    finite = bool(numpy.isfinite(result).all())
    values = {"digest": digest, "finite": finite, "own_bytes": own_bytes}
    print(json.dumps({"event": "other", **values}))


if __name__ == "__main__":
    main()
