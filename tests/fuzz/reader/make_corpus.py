#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reader's corpus anew: small traces of every road on the simulated GPU, some damaged.

    MEMSHIM_BUILD=build PYTHONPATH=tests/process tests/fuzz/reader/make_corpus.py

Wanted after a change of the trace's format: the harness fails where the corpus cannot be read.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import BUILD, MAKE_RUN, MIB, ROOT, process_folders, program, run

CORPUS = Path(__file__).parent / "corpus"
HARNESS = BUILD / "tests" / "fuzz" / "reader" / "fuzz_reader"
EXTENT = 262144
KIND_AT, PAYLOAD_AT, COMMITTED_AT = 4, 36, 56  # of an extent's header
WINDOW = 1
MOST_PAYLOAD, MOST_RECORDS = 8000, 400
VERSION_AT = 12  # major and minor, behind the magic and the byte order

SMALL: dict[str, Any] = {"SIMGPU_MEMORY": "1GiB", "SIMGPU_CONTEXT": 64 * MIB}
SPILLING: dict[str, Any] = {
    "MEMSHIM_SPILL": "auto", "MEMSHIM_LIMIT": 136 * MIB, "MEMSHIM_SPILL_LIMIT": "512MiB",
    "SIMGPU_MEMORY": "1GiB", "SIMGPU_CONTEXT": 8 * MIB,
}  # fmt: skip
ROADS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "serve_arena": (["serve_job", "arena"], {}),
    "serve_pools": (["serve_job", "pools"], {}),
    "serve_capture": (["serve_job", "capture"], {}),
    "serve_vmm": (["serve_job", "vmm"], {}),
    "growth": (["growth_job", "13"], {}),
    "oom_demand": (["verdict_job", "ask", "600", "600"], SMALL),
    "oom_cap": (["verdict_job", "ask", "300", "300"], {**SMALL, "MEMSHIM_FRACTION": "0.5"}),
    "oom_search": (["verdict_job", "search"], SMALL),
    "oom_holes": (["verdict_job", "holes"], {**SMALL, "MEMSHIM_POOL": "off"}),
    "ledger": (["verdict_job", "ledger"], SMALL),
    "spill": (["spill_job", "7", "20", "48"], SPILLING),
    "steps": (["step_job", "4"], SPILLING),
    "tags": (["tags_job", "nested"], {}),
    "nvtx": (["nvtx_job", "ranges"], {}),
    "proxy": (["proxy_job", "story"], {"MEMSHIM_LIMIT": "8GiB", **SMALL}),
    "views": (["views_job", "row"], {"MEMSHIM_LIMIT": 12 * MIB, "MEMSHIM_VIEWS": "on"}),
}


def neutral(trace: bytes, folder: str) -> bytes:
    """Without where it was made. Every name keeps its length: lengths stand in the trace, too."""
    for name in (str(BUILD), str(ROOT), folder, socket.gethostname()):
        if len(name) > 1:
            filler = (b"/" if name.startswith("/") else b"h") + b"x" * (len(name) - 1)
            trace = re.sub(re.escape(name.encode()), filler, trace)
    return trace


def shortened(trace: bytes) -> bytes:
    """With the first records only of each window that has many: a mutation has to hit something."""
    kept = bytearray(trace)
    for at in range(EXTENT, len(trace) - EXTENT + 1, EXTENT):
        (payload,) = struct.unpack_from("<I", trace, at + PAYLOAD_AT)
        bytes_left, records = struct.unpack_from("<II", trace, at + COMMITTED_AT)
        if struct.unpack_from("<I", trace, at + KIND_AT)[0] == WINDOW and bytes_left > MOST_PAYLOAD:
            records = min(records, MOST_RECORDS)
            struct.pack_into("<II", kept, at + COMMITTED_AT, MOST_PAYLOAD, records)
            begin, end = at + payload + MOST_PAYLOAD, at + EXTENT
            kept[begin:end] = bytes(end - begin)
    return bytes(kept)


def corrupted(trace: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    changed = bytearray(trace)
    for at in chance.sample([at for at in range(EXTENT, len(trace)) if trace[at]], 30):
        changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def with_version(trace: bytes, major: int, minor: int) -> bytes:
    return trace[:VERSION_AT] + struct.pack("<HH", major, minor) + trace[VERSION_AT + 4 :]


def made(folder: str) -> dict[str, bytes]:
    traces = {}
    for name, (command, settings) in ROADS.items():
        output = Path(folder) / name
        job = program(command[0])
        if not job.exists():
            print(f"{name}: no {command[0]}")
            continue
        run([job, *command[1:]], shim=True, MEMSHIM_OUTPUT=output, MEMSHIM_LOG="off", **settings)
        (process,) = process_folders(output)
        traces[name] = (process / "trace.mshm").read_bytes()
    run([MAKE_RUN, Path(folder) / "made"]).check()
    for i, process in enumerate(process_folders(Path(folder) / "made")):
        traces[f"made_{i}"] = (process / "trace.mshm").read_bytes()
    return {name: neutral(trace, folder) for name, trace in traces.items()}


def damaged(traces: dict[str, bytes]) -> dict[str, bytes]:
    arena, pools = traces["serve_arena"], traces["serve_pools"]
    major, minor = struct.unpack_from("<HH", arena, VERSION_AT)
    return {
        "truncated_extent": arena[: len(arena) // 2 + 1],
        "truncated_header": arena[:100],
        "concatenated": arena + pools,
        "other_version": with_version(arena, major + 1, 0),
        **{f"corrupted_{seed}": corrupted(pools, seed) for seed in range(1, 4)},
    }


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        traces = made(folder)
        traces |= damaged(traces)
        for old in CORPUS.iterdir():
            if old.name not in ("empty", "text"):
                old.unlink()
        for name, trace in traces.items():
            raw = Path(folder) / "raw"
            raw.write_bytes(shortened(trace))
            run([HARNESS, "--squeeze", raw, CORPUS / name]).check()
            print(f"{name}: {(CORPUS / name).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
