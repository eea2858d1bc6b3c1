# SPDX-License-Identifier: Apache-2.0
"""An acoustic model: convolutions that make one frame of four, feed-forward blocks, characters."""

from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        h = self.act(self.up(self.norm(x)))  # culprit: speech-batch, speech-long, speech-batch-off
        return x + self.down(h)  # culprit: speech-batch, speech-long, speech-batch-off


class AcousticModel(nn.Module):
    def __init__(self, mels=80, dim=256, blocks=4, symbols=1000):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(mels, dim, 3, 2, 1), nn.ReLU(), nn.Conv1d(dim, dim, 3, 2, 1), nn.ReLU()
        )
        self.blocks = nn.ModuleList(Block(dim) for _ in range(blocks))
        self.out = nn.Linear(dim, symbols)

    def forward(self, mel):
        x = self.front(mel).transpose(1, 2)  # culprit: speech-batch, speech-long, speech-batch-off
        for block in self.blocks:
            x = block(x)  # culprit: speech-batch, speech-long, speech-batch-off
        return self.out(x).log_softmax(-1)  # culprit: speech-hypotheses
