# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's own wheel: tensors are seen at their lines, capped, spilled; nothing else changes.

What the device computes is zeros here; which tensors there are is TensorFlow's own doing.
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
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
NOTE = "TensorFlow's allocator cuda_malloc_async was chosen by memshim"

# A network of 8 layers of 4 MiB with momentum. Its figures are TensorFlow's own.
TRAINING = """\
import json, os, sys
import tensorflow as tf

def make():
    return [tf.Variable(tf.zeros((1024, 1024))) for _ in range(8)]

def loss_of(params, x):
    for w in params:
        x = tf.tanh(x @ w)
    return tf.reduce_mean(x ** 2)

def train(params, momentum, x):
    with tf.GradientTape() as tape:
        loss = loss_of(params, x)
    for p, m, g in zip(params, momentum, tape.gradient(loss, params)):
        m.assign(0.9 * m + g)
        p.assign_sub(0.1 * m)

def main():
    assert tf.config.list_physical_devices("GPU"), "TensorFlow found no GPU"
    params, momentum = make(), make()
    kept = []
    for _ in range(10):
        x = tf.ones((512, 1024))
        train(params, momentum, x)
        if "leak" in sys.argv:
            kept.append(tf.zeros((2 << 20,)))  # 8 MiB
    stats = tf.config.experimental.get_memory_info("GPU:0")
    print(json.dumps({"event": "end", "peak_bytes": stats["peak"],
                      "settings": [name for name in os.environ if name == "TF_GPU_ALLOCATOR"]}))

main()
"""

# Keras's own loop, 80 batches: a tf.function for each, which runs on threads without Python.
KERAS = """\
import json, sys
import numpy
import tensorflow as tf

class Keeps(tf.keras.callbacks.Callback):
    kept = []

    def on_train_batch_end(self, batch, logs=None):
        self.kept.append(tf.zeros((2 << 20,)))  # 8 MiB

def make():
    layers = [tf.keras.layers.Dense(1024, activation="tanh") for _ in range(8)]
    model = tf.keras.Sequential([tf.keras.Input((1024,)), *layers])
    jit = False if "plain" in sys.argv else "auto"  # with XLA
    model.compile(optimizer="adam", loss="mse", jit_compile=jit)
    return model

def main():
    model = make()
    x = numpy.ones((20480, 1024), "float32")
    callbacks = [Keeps()] if "leak" in sys.argv else []
    history = model.fit(x, x, batch_size=512, epochs=2, verbose=0, callbacks=callbacks)
    stats = tf.config.experimental.get_memory_info("GPU:0")
    print(json.dumps({"event": "end", "peak_bytes": stats["peak"],
                      "losses": len(history.history["loss"])}))

main()
"""

# Arrays of 64 MiB, kept. Says how many there were when it failed.
FULL = """\
import json
import tensorflow as tf

def main():
    kept = []
    said = None
    try:
        for _ in range(100):
            kept.append(tf.zeros((16, 1 << 20)))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps({"event": "end", "arrays": len(kept), "said": said}))

main()
"""

needs_tensorflow = unittest.skipUnless(
    importlib.util.find_spec("tensorflow"), "TensorFlow is not installed in this Python"
)


@needs_tensorflow
class TensorFlow(unittest.TestCase):
    def test_tensors_are_live_at_their_lines_and_the_peak_is_tensorflows(self) -> None:
        job = harness.run_memshim(TRAINING, **QUIET)
        (end,) = job.result.check().lines("end")
        self.assertEqual(end["settings"], [], "the environment stays as it was")
        report = job.only()
        device = report["devices"][0]
        self.assertEqual(device["peak_live_bytes"], end["peak_bytes"])
        lines = owners(report)
        named = sum(live for where, live in lines.items() if where != "?")
        self.assertGreaterEqual(named, 0.9 * device["peak_live_bytes"], lines)
        self.assertTrue(any(NOTE in text for text in report["notes"]), report["notes"])

    def test_keras_is_seen_at_the_programs_lines(self) -> None:
        (alone,) = harness.run(KERAS, **QUIET).check().lines("end")
        job = harness.run_memshim(KERAS, **QUIET)
        (end,) = job.result.check().lines("end")
        self.assertEqual(end["losses"], alone["losses"])
        report = job.only()
        device = report["devices"][0]
        self.assertAlmostEqual(device["peak_live_bytes"] / end["peak_bytes"], 1, delta=0.01)
        lines = owners(report)
        named = sum(live for where, live in lines.items() if where != "?")
        self.assertGreaterEqual(named, 0.9 * device["peak_live_bytes"], lines)
        self.assertEqual(device["leaks"], [], "layers are made in a loop, which is none of steps")
        self.assert_kerass_steps(report["steps"])

    def test_kerass_steps_without_xla(self) -> None:
        job = harness.run_memshim(KERAS, "plain", **QUIET)
        job.result.check()
        self.assert_kerass_steps(job.only()["steps"])

    def assert_kerass_steps(self, steps: dict[str, Any]) -> None:
        # The first call, which traces the function, is reached in another way.
        self.assertIn(steps["count"], (79, 80), steps)
        self.assertGreaterEqual(steps["confidence"], 0.9)

    def test_what_the_user_chose_stays(self) -> None:
        job = harness.run_memshim(TRAINING, TF_GPU_ALLOCATOR="", **QUIET)
        job.result.check()
        self.assertFalse([text for text in job.only()["notes"] if NOTE in text])

    def test_an_out_of_memory_is_tensorflows_own_and_one_event(self) -> None:
        job = harness.run_memshim(FULL, MEMSHIM_LIMIT="1200MiB", **QUIET)
        (end,) = job.result.check().lines("end")
        self.assertIn("ResourceExhausted", str(end["said"]))
        report = job.only()
        self.assertLessEqual(report["devices"][0]["peak_charged_bytes"], 1200 * MIB)
        self.assertEqual(len(report["oom_events"]), 1, report["oom_events"])
        self.assertGreaterEqual(end["arrays"], 8)

    def test_spill_lets_it_finish(self) -> None:
        job = harness.run_memshim(FULL, MEMSHIM_LIMIT="4GiB", MEMSHIM_SPILL="auto", **QUIET)
        (end,) = job.result.check().lines("end")
        self.assertEqual(end["arrays"], 100, end["said"])


@needs_tensorflow
class Scripts(Ordinary):
    def test_a_loop_that_is_written_out(self) -> None:
        report = self.check_script(
            Program(TRAINING, ("leak",), settings=QUIET),
            steps=10,
            line="kept.append",
            each=8 * MIB,
            refused="ResourceExhausted",
        )
        self.assertGreaterEqual(report["steps"]["confidence"], 0.9)

    def test_keras(self) -> None:
        report = self.check_script(
            Program(KERAS, ("leak",), settings=QUIET),
            steps=80,
            line="self.kept.append",
            each=8 * MIB,
            refused="ResourceExhausted",
            unseen=1,  # the call that traces
            near=0.01,
        )
        self.assertGreaterEqual(report["steps"]["confidence"], 0.9)


if __name__ == "__main__":
    unittest.main()
