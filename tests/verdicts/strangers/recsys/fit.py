# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from tables import TwoTowers


class Fitter:
    """SGD while the loss falls quickly, then Adam."""

    def __init__(self, args):
        self.args = args
        self.model = TwoTowers(args.users, args.items).to("cuda")
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.1)]
        self.loss = torch.nn.BCEWithLogitsLoss()

    def batches(self):
        size = self.args.batch
        for _ in range(self.args.steps):
            yield (
                torch.randint(0, self.args.users, (size, 20)).cuda(),
                torch.randint(0, self.args.items, (size, 5)).cuda(),
                torch.zeros(size, device="cuda"),
            )

    def fit(self):
        for step, (users, items, clicked) in enumerate(self.batches()):
            if step == self.args.switch:
                self.optimizers.append(torch.optim.Adam(self.model.parameters(), lr=1e-3))
            loss = self.loss(self.model(users, items), clicked)
            self.optimizers[-1].zero_grad()
            loss.backward()
            self.optimizers[-1].step()  # culprit


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=600_000)
    parser.add_argument("--items", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--switch", type=int, default=25)
    Fitter(parser.parse_args()).fit()
