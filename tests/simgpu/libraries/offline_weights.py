# SPDX-License-Identifier: Apache-2.0
"""Weights that a hub would send, as sparse files: true headers, and zeros that take no disk.

Usage: offline_weights.py FOLDER CACHE LIMIT PROCESSES
       offline_weights.py FOLDER

FOLDER has a config.json of the Hugging Face form. The model is built on the meta device from it,
and its names, shapes and types go into safetensors files in a folder below CACHE, which is printed.
Said on the standard error: how much that is. It is refused where not even a tensor in each of
PROCESSES processes fits LIMIT bytes of the host (0: not known).

With the folder alone it makes nothing: it prints the number of the model's elements, their bytes
and their type, or nothing where that cannot be known.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

SHARD_BYTES = 5 << 30
GIB = 1 << 30
NAMES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}

Entry = tuple[str, str, list[int], int]  # name, safetensors' type, shape, bytes


class Bad(Exception):
    """What cannot be done, and what to do."""


def build(folder: Path) -> nn.Module:
    """The model on the meta device."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Bad(f"needs transformers in the command's Python: {error}") from None
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise Bad(f"{folder}/config.json: {error}") from None
    names = getattr(config, "architectures", None) or ["AutoModelForCausalLM"]
    kind = getattr(transformers, names[0], None)
    if kind is None:
        raise Bad(f"{folder}/config.json: transformers has no model of the name {names[0]}")
    dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    with torch.device("meta"):
        model = kind._from_config(config) if hasattr(kind, "_from_config") else kind(config)
    made: nn.Module = model.to(dtype) if dtype else model
    return made


def entries(model: nn.Module) -> Iterator[Entry]:
    """Of each tensor that is saved, once: tied ones are in the file under their first name."""
    seen: set[int] = set()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(parameters.get(name, tensor)) in seen:
            continue
        seen.add(id(parameters.get(name, tensor)))
        kind = NAMES.get(str(tensor.dtype))
        if kind is None:
            raise Bad(f"{name} is {tensor.dtype}, which a safetensors file cannot hold")
        yield name, kind, list(tensor.shape), tensor.numel() * tensor.element_size()


def shards(all_entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    shard: list[Entry] = []
    size = 0
    for entry in all_entries:
        if shard and size + entry[3] > SHARD_BYTES:
            yield shard
            shard, size = [], 0
        shard.append(entry)
        size += entry[3]
    yield shard


def write(path: Path, shard: Sequence[Entry]) -> None:
    """An 8-byte length, the header, and a hole of as many bytes as the tensors have."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, kind, shape, size in shard:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def make(folder: Path, all_entries: Sequence[Entry]) -> None:
    parts = list(shards(all_entries))
    if len(parts) == 1:
        write(folder / "model.safetensors", parts[0])
        return
    places = {}
    for index, shard in enumerate(parts, 1):
        name = f"model-{index:05}-of-{len(parts):05}.safetensors"
        write(folder / name, shard)
        places.update({entry[0]: name for entry in shard})
    total = sum(entry[3] for entry in all_entries)
    index_text = json.dumps({"metadata": {"total_size": total}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index_text)


def say(all_entries: Sequence[Entry], limit: int, processes: int) -> None:
    """What all of them take of the host where each loads them there is said of the files made."""
    total = sum(entry[3] for entry in all_entries)
    largest = max(entry[3] for entry in all_entries)
    text = f"{len(all_entries)} tensors of {total / GIB:.2f} GiB, as sparse files"
    text += f"; a process that loads them to the device takes {largest / GIB:.2f} GiB of the host"
    text += " at a time"
    print(f"memshim dry-run: offline weights: {text}", file=sys.stderr)
    if limit and largest * processes > limit:
        raise Bad(
            f"{processes} processes take at least {largest * processes / GIB:.2f} GiB of the host, "
            f"a tensor each, and may take {limit / GIB:.2f} (--host-memory)"
        )


def main(folder: Path, cache: Path, limit: int, processes: int) -> int:
    try:
        config = (folder / "config.json").read_bytes()
    except OSError as error:
        raise Bad(f"{folder}/config.json: {error.strerror}") from None
    there = [path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")]
    if there:
        raise Bad(f"{folder} has weights already ({there[0]}): leave --offline-weights out")
    all_entries = list(entries(build(folder)))
    say(all_entries, limit, processes)
    made = cache / hashlib.sha256(config).hexdigest()[:16]
    made.mkdir(parents=True, exist_ok=True)
    make(made, all_entries)
    print(made)
    return 0


def count(folder: Path) -> int:
    import contextlib

    with contextlib.redirect_stderr(None):
        model = build(folder)
    tensors = {id(tensor): tensor for tensor in model.parameters()}.values()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    largest = max(tensors, key=lambda tensor: tensor.numel())
    kind = str(largest.dtype).removeprefix("torch.")
    print(sum(tensor.numel() for tensor in tensors), size, kind)
    return 0


if __name__ == "__main__":
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    if len(sys.argv) == 2:
        try:
            sys.exit(count(Path(sys.argv[1])))
        except Exception:  # whatever a stranger's config makes of transformers
            sys.exit(1)
    try:
        folder_, cache_, limit_, processes_ = sys.argv[1:]
        sys.exit(main(Path(folder_).resolve(), Path(cache_), int(limit_), int(processes_)))
    except Bad as error:
        sys.exit(f"memshim dry-run: --offline-weights: {error}")
