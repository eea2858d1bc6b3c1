# SPDX-License-Identifier: Apache-2.0
"""Metrics that see a whole epoch."""

import torch


class Metric:
    def reset(self):
        raise NotImplementedError

    def update(self, logits, labels):
        raise NotImplementedError


class Accuracy(Metric):
    def __init__(self):
        self.reset()

    def reset(self):
        self.right = torch.zeros((), device="cuda")
        self.seen = 0

    def update(self, logits, labels):
        self.right += (logits.argmax(-1) == labels).sum()
        self.seen += len(labels)


class AUROC(Metric):
    """Needs all scores until compute(). Who calls update() has to call reset(), too."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, logits, labels):
        self.scores.append(logits.detach().softmax(-1))  # culprit
        self.labels.append(labels)

    def compute(self):
        return torch.cat(self.scores).mean().item()


class MetricCollection:
    def __init__(self, **metrics):
        self.metrics = metrics

    def update(self, logits, labels):
        for metric in self.metrics.values():
            metric.update(logits, labels)
