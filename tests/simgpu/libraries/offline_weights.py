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
import re
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

SHARD_BYTES = 5 << 30
MOST_LAYERS = 10_000
MOST_WORDS = 300  # of a library's message, in characters
SIZE = re.compile(
    r"(hidden|vocab|intermediate|embedding|image|patch)_size|num_(\w+_)?(layers|heads)"
    r"|n_(embd|layer|head)|d_(model|ff)|\w+_layers"
)
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


def read_config(path: Path) -> dict[str, Any]:
    """Its fields, after a look at what a library would not refuse, or would work on for hours."""
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise Bad(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Bad(f"{path}: is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Bad(f"{path}: is no JSON object")
    if not isinstance(fields.get("model_type"), str):
        raise Bad(f'{path}: has no field "model_type" with the name of a kind of model')
    if "quantization_config" in fields:
        raise Bad(
            f'{path}: has a field "quantization_config": the weights of quantized models have '
            f"other names and shapes; without the field there are weights of the model's own type"
        )
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool) or not SIZE.fullmatch(name):
            continue
        if value < 0:
            raise Bad(f'{path}: the field "{name}" is {value}, and cannot be negative')
        if "layer" in name and value > MOST_LAYERS:
            raise Bad(f'{path}: the field "{name}" is {value}, and {MOST_LAYERS} is the most')
    return fields


def class_name(path: Path, fields: dict[str, Any]) -> str | None:
    """None: the config names no class."""
    names = fields.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Bad(f'{path}: the field "architectures" is no list of names')
    return names[0] if names else None


def blame(fields: dict[str, Any], error: Exception) -> str:
    """What a library said, in a line, and the fields whose values it named."""
    text = " ".join(str(error).split()) or "no reason was given"
    words = set(re.findall(r"[\w.+-]+", text))
    named = [
        f'"{name}" is {value}'
        for name, value in fields.items()
        if isinstance(value, int | float | str) and str(value) in words and name not in words
    ]
    return f"{type(error).__name__}: {text[:MOST_WORDS]}" + (
        f" (the field {', and '.join(named)})" if named else ""
    )


def element_type(path: Path, fields: dict[str, Any]) -> torch.dtype | None:
    import torch

    for name in ("dtype", "torch_dtype"):
        value = fields.get(name)
        found = getattr(torch, value, None) if isinstance(value, str) else None
        if isinstance(found, torch.dtype) and found.is_floating_point:
            return found
        if value not in (None, "auto"):
            raise Bad(f'{path}: the field "{name}" is {value}, which is no type of weights')
    return None


def build(folder: Path) -> nn.Module:
    """The model on the meta device."""
    path = folder / "config.json"
    fields = read_config(path)
    name = class_name(path, fields)
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Bad(f"needs transformers in the command's Python: {error}") from None
    dtype = element_type(path, fields)
    kind = getattr(transformers, name, None) if name else None
    if name and not hasattr(kind, "_from_config"):
        raise Bad(f'{path}: the field "architectures" names {name}: transformers has no such model')
    try:
        # Code of the folder itself would be asked about on a terminal.
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = (
                kind._from_config(config)
                if kind
                else transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
            )
    except Exception as error:  # whatever a stranger's config makes of transformers
        raise Bad(f"{path}: transformers makes no model of it: {blame(fields, error)}") from None
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


def keep(cache: Path, config: bytes, all_entries: Sequence[Entry]) -> Path:
    """The folder with the files. A folder under its final name is complete."""
    state = hashlib.sha256(config + json.dumps(all_entries).encode())
    kept = cache / state.hexdigest()[:16]
    if kept.is_dir():
        return kept
    making = Path(tempfile.mkdtemp(prefix="weights.", dir=cache))
    try:
        make(making, all_entries)
        making.rename(kept)
    except OSError as error:
        if not kept.is_dir():  # another dry run was not faster
            raise Bad(f"{kept} cannot be made: {error.strerror}") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return kept


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
    if not folder.is_dir():
        raise Bad(f"{folder}: is no folder with a config.json")
    there = [path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")]
    if there:
        raise Bad(f"{folder} has weights already ({there[0]}): leave --offline-weights out")
    all_entries = list(entries(build(folder)))
    if not all_entries:
        raise Bad(f"{folder}/config.json: the model has no weights")
    say(all_entries, limit, processes)
    print(keep(cache, (folder / "config.json").read_bytes(), all_entries))
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
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
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
