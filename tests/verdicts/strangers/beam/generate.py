# SPDX-License-Identifier: Apache-2.0
"""Beam search over many prompts at once; nobody has set a maximal length."""

import argparse

import torch
from decoder import Decoder


class BeamSearch:
    def __init__(self, model, beams):
        self.model, self.beams = model, beams

    def reorder(self, past, origin):
        return [tuple(part.index_select(0, origin) for part in layer) for layer in past]  # culprit

    @torch.inference_mode()
    def generate(self, prompts, max_length):
        tokens = prompts.repeat_interleave(self.beams, dim=0)
        scores = torch.zeros(len(tokens), device=tokens.device)
        logits, past = self.model(tokens, None)
        for _ in range(max_length):
            best = logits[:, -1].log_softmax(-1).add(scores[:, None])
            scores, chosen = best.max(dim=-1)
            origin = torch.arange(len(tokens), device=tokens.device)
            past = self.reorder(past, origin)
            logits, past = self.model(torch.zeros_like(chosen)[:, None], past)
        return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--beams", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    args = parser.parse_args()
    model = Decoder().cuda().eval()
    search = BeamSearch(model, args.beams)
    prompts = torch.zeros(args.prompts, 16, dtype=torch.long, device="cuda")
    print(search.generate(prompts, args.max_length).shape)


if __name__ == "__main__":
    main()
