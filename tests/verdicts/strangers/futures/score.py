# SPDX-License-Identifier: Apache-2.0
"""Ranks documents with a few threads; results are read when all have been handed in."""

import argparse
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, dim=256, words=16384):
        super().__init__()
        self.embed = nn.Embedding(1000, dim)
        self.head = nn.Linear(dim, words)

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)).mean(1))  # culprit


class Pool:
    def __init__(self, threads):
        self.model = Ranker().cuda().eval()
        self.threads = ThreadPoolExecutor(threads)
        self.pending = []

    def score(self, documents):
        with torch.inference_mode():
            return self.model(documents.cuda())  # culprit

    def submit(self, documents):
        self.pending.append(self.threads.submit(self.score, documents))

    def results(self):
        return [one.result().argmax(-1).tolist() for one in self.pending]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    pool = Pool(args.threads)
    for _ in range(1000):
        pool.submit(torch.zeros(64, 32, dtype=torch.long))
    print(len(pool.results()))


if __name__ == "__main__":
    main()
