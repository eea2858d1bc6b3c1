# SPDX-License-Identifier: Apache-2.0
"""Trains on sampled nodes and evaluates on the whole graph."""

import argparse

import torch
from sage import Sage
from torch.nn.functional import cross_entropy


class Graph:
    def __init__(self, nodes, dim=128, degree=10):
        self.nodes, self.degree = nodes, degree
        self.features = torch.zeros(nodes, dim)
        self.fetched = {}

    def sample(self, seed, size):
        """Nodes, the features of these and their neighbours, and who is whose neighbour."""
        if seed not in self.fetched:
            ids = torch.randint(0, self.nodes, (size * (1 + self.degree),))
            self.fetched[seed] = self.features[ids].to("cuda")  # culprit: sage-fetched
        near = torch.randint(0, size * self.degree, (size, self.degree), device="cuda")
        return self.fetched[seed], near


@torch.no_grad()
def evaluate(model, graph):
    model.eval()
    x = graph.features.cuda()
    near = torch.randint(0, graph.nodes, (graph.nodes, graph.degree)).cuda()
    return model(x, near).argmax(1)  # culprit: sage-full


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    graph = Graph(args.nodes)
    model = Sage().cuda()
    opt = torch.optim.Adam(model.parameters())
    for step in range(args.steps):
        model.train()
        x, near = graph.sample(step, 1024)
        loss = cross_entropy(model(x, near), torch.zeros(1024, dtype=torch.long, device="cuda"))
        opt.zero_grad()
        loss.backward()
        opt.step()
    evaluate(model, graph)


if __name__ == "__main__":
    main()
