# SPDX-License-Identifier: Apache-2.0
"""torch_memory_saver's own wheel, as SGLang uses it: tensors that sleep, and wake where they were.

Live memory falls and rises with them, others have the room meanwhile, and nothing is taken from
their pages, by each of its two ways to get at PyTorch's memory.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))

import harness  # noqa: E402

MIB = 1 << 20
PACKAGE = Path(__file__).resolve().parents[2] / "scripts" / "package"
WEIGHTS = 4 * 16 * MIB
OTHERS = 48 * MIB

# The first argument is the way. What is left behind by tensors that are gone is given back, so that
# figures are those of live memory.
SOURCE = """\
import json, os, sys
import memshim, torch
from torch_memory_saver import torch_memory_saver as saver

saver.hook_mode = sys.argv[1]

def note(event):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    stats = memshim.stats()
    print(json.dumps({"event": event, "live": stats and stats.live_bytes,
                      "free": torch.cuda.mem_get_info()[0]}))

def main():
    with saver.region(enable_cpu_backup=True):
        weights = [torch.full((16 << 20,), 3 + i, dtype=torch.uint8).cuda() for i in range(4)]
    places = [weight.data_ptr() for weight in weights]
    note("awake")
    for _ in range(2):
        saver.pause()
        note("asleep")
        others = [torch.full((16 << 20,), 99, dtype=torch.uint8).cuda() for _ in range(3)]
        note("others")
        del others
        saver.resume()
        note("awake")
    same = [bool((weight.cpu() == 3 + i).all()) for i, weight in enumerate(weights)]
    print(json.dumps({"event": "end", "same": same,
                      "moved": places != [weight.data_ptr() for weight in weights]}))

main()
sys.stdout.flush()
os._exit(0)  # its pool of PyTorch's must not be freed outside a region
"""


def preload() -> Path:
    """Its library for the CUDA version of the tests' PyTorch."""
    package = importlib.util.find_spec("torch_memory_saver")
    assert package is not None and package.origin is not None
    name = "torch_memory_saver_hook_mode_preload_cu13*.so"
    (found,) = Path(package.origin).parents[1].glob(f"**/{name}")
    return found


@harness.needs_torch
@unittest.skipUnless(
    importlib.util.find_spec("torch_memory_saver"), "torch_memory_saver is not installed"
)
class Saver(unittest.TestCase):
    def check(self, way: str, **settings: Any) -> None:  # noqa: ANN401
        alone = harness.run(SOURCE, way, PYTHONPATH=PACKAGE, **settings).check()
        job = harness.run_memshim(SOURCE, way, PYTHONPATH=PACKAGE, **settings)
        result = job.result.check()
        self.assertEqual(result.lines("end"), alone.lines("end"))
        self.assertEqual(
            result.lines("end"), [{"event": "end", "same": [True] * 4, "moved": False}]
        )
        live = {"awake": WEIGHTS, "asleep": 0, "others": OTHERS}
        for event, bytes_ in live.items():
            self.assertEqual({each["live"] for each in result.lines(event)}, {bytes_}, event)
        for run in (result, alone):
            free = [{each["free"] for each in run.lines(event)} for event in ("awake", "asleep")]
            ((awake,), (asleep,)) = free
            self.assertEqual(asleep - awake, WEIGHTS, "others have the room")
        device = job.only()["devices"][0]
        self.assertEqual(device["peak_live_bytes"], WEIGHTS)
        self.assertEqual(device["leaks"], [])

    def test_by_its_preload(self) -> None:
        simgpu = harness.BUILD / "simgpu"
        self.check("preload", LD_PRELOAD=preload(), LD_LIBRARY_PATH=simgpu)

    def test_by_a_pool_of_pytorchs(self) -> None:
        self.check("torch")


if __name__ == "__main__":
    unittest.main()
