# SPDX-License-Identifier: Apache-2.0
"""A callback for Hugging Face's Trainer: its steps, phases and epochs, and figures in its logs.

`add_memshim(trainer)` is all.

W&B, TensorBoard and the others get the figures through Trainer's own log.
"""

from __future__ import annotations

from typing import Any

import transformers

from memshim import _process
from memshim._phases import Phases, figures

Theirs = Any  # an object of the trainer's


class MemshimCallback(transformers.TrainerCallback):
    """Give it to Trainer(callbacks=[...]), or to add_memshim. device: CUDA's number.

    Steps are optimizer steps. Phases: `train`, in it `epoch N` with epochs=True, and `eval`."""

    def __init__(self, device: int = 0, epochs: bool = False) -> None:
        self._device = device
        self._epochs = epochs
        self._phases = Phases()

    def on_train_begin(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        self._phases.begin("train")

    def on_train_end(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        self._phases.end("train")

    def on_epoch_begin(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        if self._epochs:
            self._phases.begin(f"epoch {int(state.epoch or 0) + 1}")

    def on_epoch_end(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        for name in [name for name in self._phases.open if name.startswith("epoch ")]:
            self._phases.end(name)

    def on_step_begin(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        _process.step()

    def on_prediction_step(
        self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs
    ) -> None:
        # Trainer tells of no evaluation's begin: its first batch has been computed here.
        self._phases.begin("eval")

    def on_evaluate(self, args: Theirs, state: Theirs, control: Theirs, **more: Theirs) -> None:
        self._phases.end("eval")

    def on_predict(
        self, args: Theirs, state: Theirs, control: Theirs, metrics: Theirs, **more: Theirs
    ) -> None:
        self._phases.end("eval")

    def on_log(
        self, args: Theirs, state: Theirs, control: Theirs, logs: Theirs = None, **more: Theirs
    ) -> None:
        if logs is not None:
            logs.update(figures(self._device))


def add_memshim(trainer: Theirs, device: int = 0, epochs: bool = False) -> MemshimCallback:
    """Before the loggers, which are told in their order: so that they see its figures."""
    callback = MemshimCallback(device, epochs)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback
