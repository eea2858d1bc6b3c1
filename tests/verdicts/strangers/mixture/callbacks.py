# SPDX-License-Identifier: Apache-2.0
"""What is called while it trains."""

import contextlib

import torch


class Callback:
    def on_step_end(self, trainer, step):
        pass


class DomainEval(Callback):
    """How well each domain does, every few steps, and how that has changed."""

    def __init__(self, domains, every=4, no_grad=False):
        self.every = every
        self.history = {domain: [] for domain in domains}
        self.guard = torch.no_grad if no_grad else contextlib.nullcontext

    def on_step_end(self, trainer, step):
        if step % self.every:
            return
        trainer.model.eval()
        with self.guard():
            for domain, values in self.history.items():
                values.append(trainer.loss_of(domain))  # culprit
        trainer.model.train()


class Progress(Callback):
    def on_step_end(self, trainer, step):
        if step % 10 == 0:
            print("step", step, trainer.last)
