# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters, and their merge into the base's weights."""

import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=16, alpha=32):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.zeros(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a.t() @ self.b.t()) * self.scale

    def merged(self):
        delta = (self.b @ self.a) * self.scale  # culprit
        return self.base.weight + delta  # culprit


def add_adapters(model):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, LoRALinear(child))
        else:
            add_adapters(child)
    return model


@torch.no_grad()
def merged_state_dict(model):
    state = {}
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            state[name + ".weight"] = module.merged()  # culprit
    return state
