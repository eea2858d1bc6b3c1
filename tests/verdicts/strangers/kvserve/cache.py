# SPDX-License-Identifier: Apache-2.0
"""Where keys and values of a conversation are."""

import torch


class DynamicCache:
    def __init__(self, layers):
        self.keys, self.values = [None] * layers, [None] * layers

    def extend(self, layer, k, v):
        if self.keys[layer] is None:
            self.keys[layer], self.values[layer] = k, v
        else:
            old_k, old_v = self.keys[layer], self.values[layer]
            self.keys[layer] = torch.cat([old_k, k], dim=2)  # culprit: kvserve-finished
            self.values[layer] = torch.cat([old_v, v], dim=2)  # culprit: kvserve-finished
        return self.keys[layer], self.values[layer]


class StaticCache:
    def __init__(self, layers, slots, heads=8, length=1024, dim=64):
        shape = (slots, heads, length, dim)
        self.keys, self.values = [], []
        for _ in range(layers):
            key = torch.zeros(shape, device="cuda")  # culprit: kvserve-static, kvserve-static-cap
            value = torch.zeros(shape, device="cuda")  # culprit: kvserve-static, kvserve-static-cap
            self.keys.append(key)
            self.values.append(value)
