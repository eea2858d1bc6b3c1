# SPDX-License-Identifier: Apache-2.0
"""Generates for many conversations, each with its keys and values."""

import argparse

import torch
from cache import DynamicCache, StaticCache
from torch import nn

LAYERS, HEADS, DIM = 8, 8, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HEADS * DIM, 3 * HEADS * DIM)

    def forward(self, x, cache, layer):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
        k, v = cache.extend(layer, k, v)  # culprit: kvserve-finished
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return x + (weights @ v).transpose(1, 2).reshape(b, t, HEADS * DIM)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, HEADS * DIM)
        self.layers = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.head = nn.Linear(HEADS * DIM, 5000)

    def forward(self, tokens, cache):
        x = self.embed(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, cache, index)  # culprit: kvserve-finished
        return self.head(x[:, -1])


class Server:
    def __init__(self, evict):
        self.model = Generator().cuda().eval()
        self.evict = evict
        self.caches = {}

    @torch.no_grad()
    def chat(self, session, prompt, words):
        cache = self.caches.setdefault(session, DynamicCache(LAYERS))
        tokens = prompt.cuda()
        for _ in range(words):
            tokens = self.model(tokens, cache).argmax(-1, keepdim=True)  # culprit: kvserve-finished
        if self.evict:
            del self.caches[session]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--evict", action="store_true")
    parser.add_argument("--slots", type=int, default=0)
    args = parser.parse_args()
    server = Server(args.evict)
    if args.slots:
        static = StaticCache(LAYERS, args.slots)  # culprit: kvserve-static, kvserve-static-cap
        server.static = static
    for session in range(args.sessions):
        prompt = torch.randint(0, 5000, (1, 240))
        server.chat(f"user-{session}", prompt, 12)  # culprit: kvserve-finished


if __name__ == "__main__":
    main()
