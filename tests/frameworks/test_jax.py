# SPDX-License-Identifier: Apache-2.0
"""JAX as people use it: every array is seen at its line, capped, spilled, and nothing else changes.

What the device computes is zeros here; which arrays there are is JAX's own doing.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness  # noqa: E402
from ordinary import Ordinary, Program  # noqa: E402
from owners import owners  # noqa: E402

MIB = 1 << 20
# Kernels are not tried out for speed where they compute nothing.
QUICK = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}
NOTE = "JAX's allocator cuda_async was chosen by memshim"

# A network of 8 layers of 4 MiB with momentum. Its figures are JAX's own.
TRAINING = """\
import json, os, sys
import jax, jax.numpy as jnp, numpy

def make():
    return [jnp.zeros((1024, 1024), jnp.float32) for _ in range(8)]

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x ** 2).mean()

@jax.jit
def train(params, momentum, x):
    grads = jax.grad(loss)(params, x)
    momentum = [0.9 * m + g for m, g in zip(momentum, grads)]
    return [p - 0.1 * m for p, m in zip(params, momentum)], momentum

def main():
    params, momentum = make(), make()
    kept = []
    for _ in range(10):
        x = jax.device_put(numpy.ones((512, 1024), numpy.float32))
        params, momentum = train(params, momentum, x)
        if "leak" in sys.argv:
            kept.append(jnp.zeros(2 << 20, jnp.float32))  # 8 MiB
    jax.block_until_ready(params)
    # None under the allocators that keep no figures.
    stats = jax.local_devices()[0].memory_stats() or {"peak_bytes_in_use": None}
    print(json.dumps({"event": "end", "peak_bytes": stats["peak_bytes_in_use"],
                      "settings": [name for name in os.environ if name.startswith("XLA_PYTHON")]}))

main()
"""

# Arrays of 64 MiB, kept. Says how many there were when it failed.
FULL = """\
import json
import jax, jax.numpy as jnp

def main():
    kept = []
    said = None
    try:
        for _ in range(100):
            kept.append(jnp.ones((16, 1 << 20), jnp.float32).block_until_ready())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps({"event": "end", "arrays": len(kept), "said": said}))

main()
"""

# Twice in twenty steps what it asks for is too much; it goes on without.
CAUGHT = """\
import json
import jax, jax.numpy as jnp

def main():
    caught = 0
    state = jnp.zeros((1024, 1024), jnp.float32)
    for step in range(20):
        x = jnp.ones((1024, 1024), jnp.float32)
        y = jnp.ones((2048, 1024), jnp.float32)
        try:
            if step in (7, 13):
                jnp.ones((4096, 1 << 20), jnp.float32).block_until_ready()
        except Exception as error:
            assert "RESOURCE_EXHAUSTED" in str(error), error
            caught += 1
        state = state + x
        del x, y
    jax.block_until_ready(state)
    print(json.dumps({"event": "end", "caught": caught}))

main()
"""

# Five epochs, and after each a validation whose last predictions are kept.
EPOCHS = """\
import json
import jax, jax.numpy as jnp, numpy

def network(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return x

@jax.jit
def train(params, x):
    value, grads = jax.value_and_grad(lambda p: (network(p, x) ** 2).mean())(params)
    return [p - 0.1 * g for p, g in zip(params, grads)], value

predict = jax.jit(network)

def main():
    params = [jnp.zeros((1024, 1024), jnp.float32) for _ in range(6)]
    predictions = []
    for epoch in range(5):
        for _ in range(16):
            x = jax.device_put(numpy.ones((512, 1024), numpy.float32))
            params, value = train(params, x)
        for _ in range(4):
            x = jax.device_put(numpy.ones((2048, 1024), numpy.float32))
            y = predict(params, x)
        predictions.append(y)
    jax.block_until_ready(params)
    stats = jax.local_devices()[0].memory_stats() or {}
    print(json.dumps({"event": "end", "peak_bytes": stats.get("peak_bytes_in_use"),
                      "kept": [y.shape for y in predictions]}))

main()
"""

# A step that is written out, layer by layer, in the function of its loop.
EAGER = """\
import json
import jax, jax.numpy as jnp, numpy

def main():
    params = [jax.device_put(numpy.ones((1024, 1024), numpy.float32)) for _ in range(6)]
    kept = []
    for _ in range(20):
        acts = [jax.device_put(numpy.ones((512, 1024), numpy.float32))]
        for w in params:
            h = acts[-1] @ w
            acts.append(jnp.tanh(h))
        g = acts[-1] * 2.0
        grads = []
        for w, a in zip(reversed(params), reversed(acts[:-1])):
            grads.append(a.T @ g)
            g = g @ w.T
        params = [p - 0.1 * d for p, d in zip(params, reversed(grads))]
        kept.append(jnp.zeros(2 << 20, jnp.float32))
    jax.block_until_ready(params)
    stats = jax.local_devices()[0].memory_stats() or {}
    print(json.dumps({"event": "end", "peak_bytes": stats.get("peak_bytes_in_use"),
                      "shapes": [p.shape for p in params]}))

main()
"""

needs_jax = unittest.skipUnless(
    importlib.util.find_spec("jax_plugins"), "JAX for CUDA is not installed in this Python"
)


@needs_jax
class Jax(unittest.TestCase):
    def test_arrays_are_live_at_their_lines_and_the_peak_is_jaxs(self) -> None:
        job = harness.run_memshim(TRAINING, **QUICK)
        job.result.check()
        (end,) = job.result.lines("end")
        self.assertEqual(end["settings"], [], "the environment stays as it was")
        report = job.only()
        device = report["devices"][0]
        self.assertEqual(device["peak_live_bytes"], end["peak_bytes"])
        lines = owners(report)
        named = sum(live for where, live in lines.items() if where != "?")
        self.assertGreaterEqual(named, 0.9 * device["peak_live_bytes"], lines)
        self.assertTrue(any(NOTE in text for text in report["notes"]), report["notes"])

    def test_what_the_user_chose_stays(self) -> None:
        job = harness.run_memshim(TRAINING, XLA_PYTHON_CLIENT_ALLOCATOR="platform", **QUICK)
        job.result.check()
        self.assertFalse([text for text in job.only()["notes"] if NOTE in text])

    def test_an_out_of_memory_is_jaxs_own_and_one_event(self) -> None:
        job = harness.run_memshim(FULL, MEMSHIM_LIMIT="800MiB", **QUICK)
        (end,) = job.result.check().lines("end")
        self.assertIn("RESOURCE_EXHAUSTED", str(end["said"]))
        report = job.only()
        self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], 800 * MIB)
        self.assertEqual(len(report["oom_events"]), 1, report["oom_events"])
        self.assertGreaterEqual(end["arrays"], 5)

    def test_allocators_that_the_user_chose_are_right(self) -> None:
        """`platform` and `vmm` ask the driver themselves: nothing is lost or counted twice."""
        for name in ("platform", "vmm"):
            with self.subTest(name):
                job = harness.run_memshim(TRAINING, XLA_PYTHON_CLIENT_ALLOCATOR=name, **QUICK)
                job.result.check()
                device = job.only()["devices"][0]
                # 16 arrays of 4 MiB that stay; gradients, the batch and what XLA keeps beside.
                self.assertGreaterEqual(device["peak_live_bytes"], 64 * MIB)
                self.assertLessEqual(device["peak_live_bytes"], 512 * MIB)

    def test_an_out_of_memory_that_the_loop_catches_ends_no_step(self) -> None:
        job = harness.run_memshim(CAUGHT, MEMSHIM_LIMIT="2GiB", **QUICK)
        (end,) = job.result.check().lines("end")
        self.assertEqual(end["caught"], 2)
        report = job.only()
        self.assertEqual(report["steps"]["count"], 20, report["steps"])
        self.assertTrue(report["oom_events"])
        self.assertEqual(
            [oom["recovered"] for oom in report["oom_events"]], [True] * len(report["oom_events"])
        )

    def test_spill_lets_it_finish(self) -> None:
        job = harness.run_memshim(FULL, MEMSHIM_LIMIT="4GiB", MEMSHIM_SPILL="auto", **QUICK)
        (end,) = job.result.check().lines("end")
        self.assertEqual(end["arrays"], 100, end["said"])


@needs_jax
class Scripts(Ordinary):
    def check(self, source: str, steps: int, line: str, *arguments: str) -> dict[str, Any]:
        return self.check_script(
            Program(source, arguments, settings=QUICK),
            steps=steps,
            line=line,
            each=8 * MIB,
            refused="RESOURCE_EXHAUSTED",
        )

    def test_a_function_that_is_compiled(self) -> None:
        report = self.check(TRAINING, 10, "kept.append", "leak")
        self.assertGreaterEqual(report["steps"]["confidence"], 0.9)

    def test_epochs_that_keep_a_validation_each(self) -> None:
        report = self.check(EPOCHS, 80, "y = predict")
        self.assertEqual(report["devices"][0]["leaks"][0]["degree"], "likely", "four were seen")

    def test_layers_in_the_function_of_the_step(self) -> None:
        self.check(EAGER, 20, "kept.append")


if __name__ == "__main__":
    unittest.main()
