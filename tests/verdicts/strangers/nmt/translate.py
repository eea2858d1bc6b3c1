# SPDX-License-Identifier: Apache-2.0
"""Translation; sentences come sorted by their length, the short ones first."""

import torch
from layers import DecoderLayer, EncoderLayer
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocab=800, dim=128, depth=2):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.encoder = nn.ModuleList(EncoderLayer(dim) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, source, target):
        memory = self.source(source)
        for layer in self.encoder:
            memory = layer(memory)
        n = target.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool, device=target.device).triu(1)
        x = self.target(target)
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return self.head(x)


class SortedSentences(torch.utils.data.IterableDataset):
    def __init__(self, batch, shortest, longest, by):
        self.batch, self.lengths = batch, range(shortest, longest, by)

    def __iter__(self):
        for length in self.lengths:
            yield torch.zeros(2, self.batch, length, dtype=torch.long)


def main():
    model = Translator().cuda()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=-1)
    data = torch.utils.data.DataLoader(SortedSentences(16, 16, 2000, 16), batch_size=None)
    for source, target in data:
        source, target = source.cuda(), target.cuda()
        logits = model(source, target)  # culprit
        loss = criterion(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
