# SPDX-License-Identifier: Apache-2.0
"""A computation in a framework other than PyTorch: others.py NAME. Says a digest of its results."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy

SIZE = 512
ROUNDS = 40


def inputs() -> numpy.ndarray:
    return numpy.random.default_rng(3).standard_normal((SIZE, SIZE)).astype(numpy.float32)


def cupy_job() -> numpy.ndarray:
    import cupy

    x = cupy.asarray(inputs())
    for n in range(ROUNDS):
        wide = cupy.tile(x, (1 + n % 5, 1))
        x = cupy.tanh(wide[:SIZE] @ x.T / SIZE)
        del wide
    result: numpy.ndarray = cupy.asnumpy(x)
    return result


def jax_job() -> numpy.ndarray:
    import jax

    if jax.default_backend() not in ("gpu", "cuda"):
        sys.exit("JAX sees no GPU")
    step = jax.jit(lambda x: jax.numpy.tanh(x @ x.T / SIZE))
    x = jax.numpy.asarray(inputs())
    for _ in range(ROUNDS):
        x = step(x)
    return numpy.asarray(x)


def numba_job() -> numpy.ndarray:
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
    return result


JOBS = {"cupy": cupy_job, "jax": jax_job, "numba": numba_job}


def main() -> None:
    result = JOBS[sys.argv[1]]()
    digest = hashlib.sha256(numpy.ascontiguousarray(result).tobytes()).hexdigest()
    finite = bool(numpy.isfinite(result).all())
    print(json.dumps({"event": "other", "digest": digest, "finite": finite}))


if __name__ == "__main__":
    main()
