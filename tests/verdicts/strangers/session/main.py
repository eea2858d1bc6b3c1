# SPDX-License-Identifier: Apache-2.0
"""Trains on sessions, then keeps what it has computed of each of them for the web site."""

import argparse

import torch
from model import SessionModel


class SessionCache:
    """States by the first user of a batch, so that nobody is computed twice."""

    def __init__(self, model):
        self.model = model
        self.states = {}

    @torch.inference_mode()
    def lookup(self, users, history):
        key = int(users[0])
        if key not in self.states:
            history = history.cuda()
            encode = self.model.encode
            self.states[key] = encode(history)  # culprit: session-cache, session-cache-pool-off
        return self.states[key]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=50000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--serve", type=int, default=400)
    args = parser.parse_args()
    model = SessionModel(args.users).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(args.steps):
        user = torch.randint(0, args.users, (256,)).cuda()
        history = torch.randint(0, 20000, (256, 50)).cuda()
        loss = model(user, history, history[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # culprit: session-momentum
    cache = SessionCache(model)
    for first in range(0, args.serve * 256, 256):
        cache.lookup(range(first, first + 256), torch.randint(0, 20000, (256, 50)))


if __name__ == "__main__":
    main()
