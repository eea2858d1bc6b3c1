# SPDX-License-Identifier: Apache-2.0
"""Transformer layers: with explicit attention, so that score matrices exist, and with fused."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class ExplicitAttention(nn.Module):
    """Multi-head self-attention over [batch, length, width], scores written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        merged: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


class Layer(nn.Module):
    """A pre-norm transformer layer with a feed-forward part of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = ExplicitAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), mask)
        y: torch.Tensor = x + self.narrow(functional.gelu(self.wide(self.norm2(x))))
        return y


class FusedAttention(nn.Module):
    """Causal multi-head self-attention on PyTorch's fused kernels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        merged: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


class FusedLayer(nn.Module):
    """As Layer, but causal and on fused attention; a mask is not looked at."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = FusedAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y: torch.Tensor = x + self.narrow(functional.gelu(self.wide(self.norm2(x))))
        return y


class Stack(nn.Module):
    """Several layers, one after the other."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return x
