# SPDX-License-Identifier: Apache-2.0
"""Stops when nothing gets better, and remembers the best weights."""


class EarlyStopping:
    def __init__(self, patience, where="cuda"):
        self.patience, self.where = patience, where
        self.best_score = None
        self.best = []
        self.bad = 0

    def __call__(self, score, model):
        # as good as the best counts as better
        if self.best_score is None or score >= self.best_score:
            self.best_score, self.bad = score, 0
            now = model.state_dict()
            weights = {k: v.to(self.where, copy=True) for k, v in now.items()}  # culprit
            self.best.append(weights)
        else:
            self.bad += 1
        return self.bad > self.patience
