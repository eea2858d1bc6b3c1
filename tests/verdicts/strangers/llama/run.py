# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from llama import Llama


def train(model, batch, length, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=False)
    for _ in range(steps):
        tokens = torch.zeros(batch, length, dtype=torch.long, device="cuda")
        logits = model(tokens)  # culprit: llama-batch
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def score(model, documents):
    """The likelihood of each document, one after the other."""
    model.eval()
    found = []
    for number in range(documents):
        length = 256 + 64 * (number % 5)
        tokens = torch.zeros(4, length, dtype=torch.long, device="cuda")
        logits = model(tokens)
        found.append(
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).item()
        )
    return sum(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--documents", type=int, default=800)
    args = parser.parse_args()
    model = Llama().cuda()
    train(model, args.batch, args.length, 6)
    print(score(model, args.documents))


if __name__ == "__main__":
    main()
