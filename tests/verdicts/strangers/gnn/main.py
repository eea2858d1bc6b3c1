# SPDX-License-Identifier: Apache-2.0
import torch
from data import Molecules, collate
from layers import GraphNet
from torch.utils.data import DataLoader


def to(graph, device):
    return {key: part.to(device) if torch.is_tensor(part) else part for key, part in graph.items()}


def epoch(model, loader, optimizer):
    for graph in loader:
        graph = to(graph, "cuda")
        predicted = model(graph)
        loss = torch.nn.functional.mse_loss(predicted, graph["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = GraphNet().cuda()
    loader = DataLoader(Molecules(), batch_size=16, collate_fn=collate)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        epoch(model, loader, optimizer)


if __name__ == "__main__":
    main()
