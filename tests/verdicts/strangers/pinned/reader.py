# SPDX-License-Identifier: Apache-2.0
"""Reads shards ahead, into page-locked memory, so that copies overlap."""

import torch


class ShardReader:
    def __init__(self, shards, rows=4096, columns=1024):
        self.shards, self.rows, self.columns = shards, rows, columns
        self.ready = []

    def read(self, number):
        shard = torch.zeros(self.rows, self.columns)
        return shard.pin_memory()  # culprit

    def read_all(self):
        for number in range(self.shards):
            self.ready.append(self.read(number))
        return self.ready


def regress(shards):
    model = torch.nn.Linear(1024, 1).cuda()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    for shard in shards:
        x = shard.cuda(non_blocking=True)

        def closure(x=x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


if __name__ == "__main__":
    regress(ShardReader(24).read_all())
