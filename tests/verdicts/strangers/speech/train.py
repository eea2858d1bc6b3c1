# SPDX-License-Identifier: Apache-2.0
"""Trains a speech recognizer with CTC and looks at its word errors after each epoch."""

import argparse
import random

import torch
import torch.nn.functional as F
from model import AcousticModel


class Utterances:
    """Made-up audio. Most recordings take 16 s; some have been cut badly."""

    def __init__(self, batch, count, longest=0):
        self.batch, self.count, self.longest = batch, count, longest

    def __iter__(self):
        draw = random.Random(7)
        for index in range(self.count):
            frames = draw.randrange(1520, 1600, 16)
            if self.longest and index == 12:
                frames = self.longest
            mel = torch.zeros(self.batch, 80, frames)
            text = torch.randint(1, 999, (self.batch, 60))
            yield mel, text


def ctc(log_probs, text):
    frames = torch.full((len(text),), log_probs.shape[1])
    lengths = torch.full((len(text),), text.shape[1])
    return F.ctc_loss(log_probs.transpose(0, 1), text, frames, lengths)


def train(model, optimizer, utterances):
    model.train()
    for mel, text in utterances:
        log_probs = model(mel.cuda())  # culprit: speech-batch, speech-long, speech-batch-off
        loss = ctc(log_probs, text.cuda())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


@torch.no_grad()
def evaluate(model, utterances):
    model.eval()
    hypotheses = []
    for mel, _text in utterances:
        log_probs = model(mel.cuda())  # culprit: speech-hypotheses
        hypotheses.append(log_probs)
    return sum(len(greedy(one)) for one in hypotheses)


def greedy(log_probs):
    return log_probs.argmax(-1).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--longest", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    model = AcousticModel().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(args.epochs):
        train(model, optimizer, Utterances(args.batch, 20, args.longest))
        words = evaluate(model, Utterances(args.batch, 120))
        print(f"epoch {epoch}: {words} words")


if __name__ == "__main__":
    main()
