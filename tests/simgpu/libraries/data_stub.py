# SPDX-License-Identifier: Apache-2.0
"""A data set that a hub would send, made by its features: `memshim dry-run --data-stub FILE`.

FILE is JSON, or a list of such:

    {"name": "org/data", "config": "default", "splits": {"train": 1000, "test": 100},
     "features": {"text": {"string": 2000}, "label": "int64",
                  "ids": {"list": "int32", "length": 512},
                  "answers": {"text": {"list": {"string": 20}, "length": 1}}}}

It becomes a folder of that name below the current one, in the private layer: load_dataset finds a
folder before it asks the hub. Whole numbers are 0, texts are of words and as long as is said.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NUMBERS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), 0),
    **dict.fromkeys(("float16", "float32", "float64"), 0.0),
    "bool": False,
    "string": "word " * 20,
}
WORD = "word "


class Bad(Exception):
    """What the file lacks."""


def value_of(feature: Any, where: str) -> Any:  # noqa: ANN401
    """One row's value."""
    if isinstance(feature, str):
        if feature not in NUMBERS:
            raise Bad(f"{where} is of type '{feature}'; known: {', '.join(NUMBERS)}")
        return NUMBERS[feature]
    if not isinstance(feature, dict) or not feature:
        raise Bad(f"{where} is neither a type nor an object")
    if set(feature) == {"string"} and isinstance(feature["string"], int):
        return (WORD * (feature["string"] // len(WORD) + 1))[: feature["string"]]
    if set(feature) == {"list", "length"} and isinstance(feature["length"], int):
        return [value_of(feature["list"], where)] * feature["length"]
    return {name: value_of(inner, f"{where}.{name}") for name, inner in feature.items()}


def checked(stub: Any) -> tuple[Path, dict[str, int], dict[str, Any]]:  # noqa: ANN401
    if not isinstance(stub, dict) or not isinstance(stub.get("features"), dict):
        raise Bad('is no object with "name" and "features"')
    name = stub.get("name")
    if not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in name:
        raise Bad('has no "name" such as "org/data"')
    splits = stub.get("splits", {"train": 1000})
    if not isinstance(splits, dict) or not all(isinstance(rows, int) for rows in splits.values()):
        raise Bad('has "splits" that are no object of numbers of rows')
    return Path(name), splits, stub["features"]


def row_of(features: dict[str, Any]) -> str:
    return json.dumps({name: value_of(kind, name) for name, kind in features.items()}) + "\n"


def make(stub: Any) -> Path:  # noqa: ANN401
    folder, splits, features = checked(stub)
    if folder.exists():
        raise Bad(f"{folder} is there already: leave --data-stub out, or name another")
    row = row_of(features)
    folder.mkdir(parents=True)
    lines = ["---", "configs:", f"- config_name: {stub.get('config', 'default')}", "  data_files:"]
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text(row * rows)
        lines += [f"  - split: {split}", f"    path: {split}.jsonl"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


def check(stub: Any) -> None:  # noqa: ANN401
    """All but whether the folder is there, where the command begins."""
    row_of(checked(stub)[2])


def main(path: Path, only_check: bool = False) -> None:
    try:
        stubs = json.loads(path.read_text())
        for stub in stubs if isinstance(stubs, list) else [stubs]:
            (check if only_check else make)(stub)
    except OSError as error:
        sys.exit(f"memshim dry-run: --data-stub {path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"memshim dry-run: --data-stub {path}: is no JSON: {error}")
    except Bad as error:
        sys.exit(f"memshim dry-run: --data-stub {path}: {error}")


if __name__ == "__main__":  # before the command begins
    main(Path(sys.argv[1]), only_check=True)
