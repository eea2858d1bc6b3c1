# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from sessions import MIB, Sessions
from torch import nn


class Scorer(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x):
        return self.net(x)


@torch.inference_mode()
def serve(requests, large):
    scorer = Scorer().cuda()
    sessions = Sessions(limit=requests)
    for number in range(requests):
        sessions.admit(number)
        scorer(torch.zeros(8, 256, device="cuda"))
    for session in sessions.open:
        session.close()
    print("a long document comes")
    document = torch.empty(large * MIB, dtype=torch.uint8, device="cuda")
    return document.shape


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=42)
    parser.add_argument("--large", type=int, default=300)
    args = parser.parse_args()
    serve(args.requests, args.large)
