# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes with the Trainer; the evaluation's predictions stay on the device until its end."""

import argparse
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments


class TokenClassifier(nn.Module):
    def __init__(self, vocab=8192, dim=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, input_ids, labels=None):
        h = self.mix(self.embed(input_ids)).relu()
        logits = self.head(h)  # culprit
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        ids = torch.randint(0, 8192, (64,))
        return {"input_ids": ids, "labels": ids}


def metrics(prediction):
    return {"seen": len(prediction.predictions)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eval-sentences", type=int, default=800)
    parser.add_argument("--accumulate", type=int, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=10,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            eval_accumulation_steps=args.accumulate,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=TokenClassifier(),
            args=settings,
            train_dataset=Sentences(80),
            eval_dataset=Sentences(args.eval_sentences),
            compute_metrics=metrics,
        )
        trainer.train()
        print(trainer.evaluate())  # culprit


if __name__ == "__main__":
    main()
