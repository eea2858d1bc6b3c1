# SPDX-License-Identifier: Apache-2.0
"""Models of six families as Hugging Face has them, made from small configurations with random
weights: nothing is fetched. Needs transformers."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import settle  # noqa: F401
import torch
import transformers

WORDS, LENGTH, WIDTH, PIXELS, FRAMES = 4096, 128, 128, 64, 200


def tokens(batch: int) -> torch.Tensor:
    return torch.randint(2, WORDS, (batch, LENGTH))


def text(model: torch.nn.Module, batch: int) -> torch.Tensor:
    ids = tokens(batch).cuda()
    loss: torch.Tensor = model(input_ids=ids, labels=ids).loss
    return loss


def image(model: torch.nn.Module, batch: int) -> torch.Tensor:
    pixels = torch.zeros(batch, 3, PIXELS, PIXELS).cuda()
    loss: torch.Tensor = model(pixel_values=pixels, labels=torch.zeros(batch).long().cuda()).loss
    return loss


def speech(model: torch.nn.Module, batch: int) -> torch.Tensor:
    heard = torch.zeros(batch, 80, FRAMES).cuda()
    loss: torch.Tensor = model(input_features=heard, labels=tokens(batch).cuda()).loss
    return loss


def gpt2() -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=4)
    )


def sizes() -> dict[str, int]:
    return {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama() -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=WORDS, intermediate_size=4 * WIDTH, **sizes())
    )


def bert() -> torch.nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=WORDS, intermediate_size=4 * WIDTH, **sizes())
    )


def t5() -> torch.nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS,
            d_model=WIDTH,
            d_ff=4 * WIDTH,
            num_layers=2,
            num_heads=4,
            d_kv=32,
            decoder_start_token_id=0,
        )
    )


def vit() -> torch.nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=PIXELS, patch_size=8, intermediate_size=4 * WIDTH, num_labels=10, **sizes()
        )
    )


def whisper() -> torch.nn.Module:
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=WORDS,
            d_model=WIDTH,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=4 * WIDTH,
            decoder_ffn_dim=4 * WIDTH,
            max_source_positions=FRAMES // 2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
            decoder_start_token_id=1,
        )
    )


FAMILIES: dict[
    str, tuple[Callable[[], torch.nn.Module], Callable[[torch.nn.Module, int], torch.Tensor]]
] = {
    "gpt2": (gpt2, text),
    "llama": (llama, text),
    "bert": (bert, text),
    "t5": (t5, text),
    "vit": (vit, image),
    "whisper": (whisper, speech),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small model of a family.")
    parser.add_argument("family", choices=tuple(FAMILIES))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    make, loss = FAMILIES[options.family]
    model = make().cuda().train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(options.steps):
        loss(model, options.batch).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
