# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from moe import Layer
from torch import nn
from torch.nn import functional as F


class LM(nn.Module):
    def __init__(self, vocab=1000, dim=256, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, labels=None):
        x, balance = self.embed(tokens), 0.0
        for layer in self.layers:
            x, extra = layer(x)
            balance = balance + extra
        logits = self.head(x)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + 0.01 * balance


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    model = LM().cuda()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
    for _ in range(args.steps):
        tokens = torch.zeros(args.batch, args.length + 1, dtype=torch.long)
        loss = model(tokens[:, :-1].cuda(), tokens[:, 1:].cuda())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
