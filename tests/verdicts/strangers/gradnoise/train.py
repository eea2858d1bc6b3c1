# SPDX-License-Identifier: Apache-2.0
"""Training that watches how much gradients differ from step to step."""

import torch
from torch import nn


class NoiseScale:
    """Hooks run as soon as a gradient is there; the report is written at the end."""

    def __init__(self, model, names):
        self.seen = {name: [] for name in names}
        for name, p in model.named_parameters():
            if name in self.seen:
                p.register_post_accumulate_grad_hook(self.hook(name))

    def hook(self, name):
        def note(p):
            self.seen[name].append(p.grad.flatten().clone())  # culprit

        return note

    def report(self):
        return {name: torch.stack(all_).var(0).mean() for name, all_ in self.seen.items()}


class Encoder(nn.Module):
    def __init__(self, dim=768):
        super().__init__()
        self.up, self.mid = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, 2 * dim)
        self.down = nn.Linear(2 * dim, 10)

    def forward(self, x):
        return self.down(torch.relu(self.mid(torch.relu(self.up(x)))))


def main():
    model = Encoder().cuda()
    noise = NoiseScale(model, {"up.weight", "down.weight"})
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(1000):
        x = torch.zeros(128, 768, device="cuda")
        labels = torch.zeros(128, dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(noise.report())


if __name__ == "__main__":
    main()
