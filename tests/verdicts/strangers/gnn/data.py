# SPDX-License-Identifier: Apache-2.0
"""Molecules, collated into one large graph a batch. One of them is a protein."""

import torch


def molecule(atoms, degree=8):
    return {
        "x": torch.zeros(atoms, 32),
        "edges": torch.zeros(2, atoms * degree, dtype=torch.long),
        "y": torch.zeros(1),
    }


def collate(graphs):
    offset, edges, batch = 0, [], []
    for number, graph in enumerate(graphs):
        edges.append(graph["edges"] + offset)
        batch.append(torch.full((len(graph["x"]),), number))
        offset += len(graph["x"])
    return {
        "x": torch.cat([graph["x"] for graph in graphs]),
        "edges": torch.cat(edges, dim=1),
        "batch": torch.cat(batch),
        "y": torch.cat([graph["y"] for graph in graphs]),
        "count": len(graphs),
    }


class Molecules(torch.utils.data.Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return molecule(40_000 if index == 421 else 20 + index % 11)
