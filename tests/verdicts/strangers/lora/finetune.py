# SPDX-License-Identifier: Apache-2.0
import torch
from lora import add_adapters, merged_state_dict
from torch import nn


class MLPBlock(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Base(nn.Module):
    def __init__(self, dim=1024, hidden=4096, depth=16):
        super().__init__()
        self.blocks = nn.Sequential(*[MLPBlock(dim, hidden) for _ in range(depth)])
        self.head = nn.Linear(dim, 1000)

    def forward(self, x):
        return self.head(self.blocks(x))


def main():
    with torch.device("cuda"):
        model = add_adapters(Base())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for _ in range(12):
        x = torch.zeros(16, 1024, device="cuda")
        loss = nn.functional.cross_entropy(model(x), torch.zeros(16, dtype=torch.long).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(merged_state_dict(model), "/dev/null")


if __name__ == "__main__":
    main()
