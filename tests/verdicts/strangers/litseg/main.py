# SPDX-License-Identifier: Apache-2.0
import argparse
import logging

import lightning as L
import torch
from module import Segmenter


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.zeros(3, 128, 128), torch.zeros(128, 128, dtype=torch.long)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = torch.utils.data.DataLoader(Pictures(32), batch_size=4)
    val = torch.utils.data.DataLoader(Pictures(40), batch_size=4)
    trainer.fit(Segmenter(), train, val)


if __name__ == "__main__":
    main()
