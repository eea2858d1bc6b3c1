# SPDX-License-Identifier: Apache-2.0
"""A trainer with hooks, as everybody writes one once."""

import torch
from evaluator import Evaluator


class ActivationStatistics:
    """Forward hooks that keep what a histogram will be drawn of."""

    def __init__(self, model):
        self.values = {}
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Conv1d):
                module.register_forward_hook(self.hook_for(name))

    def hook_for(self, name):
        def hook(module, inputs, output):
            value = output.detach().abs()  # culprit: engine-hooks, engine-hooks-fast
            self.values.setdefault(name, []).append(value)

        return hook


class Trainer:
    def __init__(self, model, criterion, optimizer, eval_every):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.eval_every = eval_every
        self.evaluator = Evaluator(model, criterion)
        self.history = []

    def fit(self, train, valid):
        for step, (x, y) in enumerate(train):
            loss = self.criterion(self.model(x.cuda()), y.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % self.eval_every == self.eval_every - 1:
                self.history.append(float(self.evaluator.run(valid)))
