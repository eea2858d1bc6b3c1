# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning's Trainer: its steps, phases and epochs, and figures in its loggers.

`Trainer(callbacks=[MemshimCallback()])` is all.
"""

from __future__ import annotations

from typing import Any

from memshim import _process
from memshim._phases import Phases, figures

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

Theirs = Any  # an object of the trainer's


class MemshimCallback(Callback):
    """device: CUDA's number. every: figures go to the loggers after so many batches; None: as often
    as the trainer logs.

    Steps are those of the optimizer. Phases: `train`, in it `epoch N` with epochs=True, and
    `validate`, `test`, `predict`."""

    def __init__(self, device: int = 0, every: int | None = None, epochs: bool = False) -> None:
        super().__init__()
        self._device = device
        self._every = every
        self._epochs = epochs
        self._phases = Phases()
        self._stepped: int | None = None

    def on_train_start(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.begin("train")

    def on_train_end(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.end("train")

    def on_train_epoch_start(self, trainer: Theirs, pl_module: Theirs) -> None:
        if self._epochs:
            self._phases.begin(f"epoch {trainer.current_epoch + 1}")

    def on_train_epoch_end(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.end(f"epoch {trainer.current_epoch + 1}")

    def on_train_batch_start(self, trainer: Theirs, pl_module: Theirs, *more: Theirs) -> None:
        # A step of several batches begins with its first: the count has moved since the last.
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            _process.step()

    def on_train_batch_end(
        self, trainer: Theirs, pl_module: Theirs, outputs: Theirs, batch: Theirs, batch_idx: int
    ) -> None:
        every = self._every or trainer.log_every_n_steps
        if every and (batch_idx + 1) % every == 0:
            now = figures(self._device)
            for logger in trainer.loggers if now else ():
                logger.log_metrics(now, step=trainer.global_step)

    def on_validation_start(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.begin("validate")

    def on_validation_end(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.end("validate")

    def on_test_start(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.begin("test")

    def on_test_end(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.end("test")

    def on_predict_start(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.begin("predict")

    def on_predict_end(self, trainer: Theirs, pl_module: Theirs) -> None:
        self._phases.end("predict")

    def on_exception(self, trainer: Theirs, pl_module: Theirs, exception: BaseException) -> None:
        for name in list(self._phases.open):
            self._phases.end(name)
