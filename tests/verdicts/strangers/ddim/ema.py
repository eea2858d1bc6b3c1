# SPDX-License-Identifier: Apache-2.0
"""The average of the weights, and snapshots of it, of which the best few are to be averaged."""

import copy

import torch


class EMA:
    def __init__(self, model, decay=0.999):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay
        self.snapshots = []

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)

    def snapshot(self, step):
        now = self.shadow.state_dict()
        weights = {k: v.clone() for k, v in now.items()}  # culprit: ddim-snapshots
        self.snapshots.append((step, weights))
