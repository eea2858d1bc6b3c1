# SPDX-License-Identifier: Apache-2.0
"""Trains a dual encoder for retrieval; passages of earlier steps serve as further negatives."""

import argparse
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F
from towers import Tower


class Retriever(nn.Module):
    def __init__(self, negatives):
        super().__init__()
        self.query, self.passage = Tower(), Tower()
        # so many passages, one thought
        self.queue = deque(maxlen=negatives)

    def forward(self, queries, passages):
        q = self.query(queries)
        p = self.passage(passages)  # culprit: dualenc-queue, dualenc-queue-tensor
        keys = torch.cat([p, *self.queue]) if self.queue else p
        scores = q @ keys.t() / 0.05
        self.queue.append(p.detach())  # culprit: dualenc-queue, dualenc-queue-tensor
        return F.cross_entropy(scores, torch.arange(len(q), device=q.device))


def batches(count, size):
    for _ in range(count):
        yield torch.randint(0, 29999, (size, 24)), torch.randint(0, 29999, (size, 180))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--negatives", type=int, default=4096)
    args = parser.parse_args()
    model = Retriever(args.negatives).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for queries, passages in batches(args.steps, 512):
        loss = model(queries.cuda(), passages.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print("done")


if __name__ == "__main__":
    main()
