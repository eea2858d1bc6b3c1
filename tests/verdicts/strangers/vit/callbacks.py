# SPDX-License-Identifier: Apache-2.0
"""What happens around a step."""

import torch


class Callback:
    def on_step_end(self, trainer, images, logits):
        pass


class AttentionRollout(Callback):
    """Remembers each block's attention, for a figure in the paper."""

    def __init__(self):
        self.maps = []

    def on_step_end(self, trainer, images, logits):
        self.maps.append([block.last_attn.detach() for block in trainer.model.blocks])


class WorstImages(Callback):
    """Keeps the images with the lowest confidence of each step on a contact sheet."""

    def __init__(self, count=32):
        self.count, self.sheets = count, []

    def on_step_end(self, trainer, images, logits):
        with torch.no_grad():
            confidence = logits.softmax(-1).amax(-1)
            worst = confidence.topk(self.count, largest=False).indices
            self.sheets.append(images[worst])  # culprit: vit-sheets
