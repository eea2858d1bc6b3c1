# SPDX-License-Identifier: Apache-2.0
"""Scores documents; a request that is wrong must not end the service."""

import argparse

import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.embed = nn.Embedding(20000, dim)
        self.mix = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens, lengths):
        words = self.embed(tokens)  # culprit
        hidden = torch.tanh(self.mix(words))  # culprit
        if max(lengths) > tokens.shape[1]:
            raise ValueError(f"a length of {max(lengths)}, and only {tokens.shape[1]} words")
        return self.score(hidden[:, 0])


class Service:
    def __init__(self):
        self.model = Scorer().cuda().eval()
        self.failures = []

    def handle(self, request):
        try:
            with torch.inference_mode():
                tokens = request["tokens"].cuda()
                return self.model(tokens, request["lengths"]).tolist()  # culprit
        except ValueError as error:
            self.failures.append(error)
            return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300)
    args = parser.parse_args()
    service = Service()
    for index in range(args.requests):
        wrong = index % 3 == 2
        request = {
            "tokens": torch.randint(0, 20000, (32, 128)),
            "lengths": [300 if wrong else 100] * 32,
        }
        service.handle(request)  # culprit
    print(len(service.failures), "failed")


if __name__ == "__main__":
    main()
