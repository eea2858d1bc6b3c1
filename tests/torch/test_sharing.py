# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch under memshim: CUDA tensors that go to other processes by torch.multiprocessing."""

from __future__ import annotations

import unittest

import harness

# After 2 GiB, so that memory is no longer new; written by both processes.
QUEUE = """
    import torch, torch.multiprocessing as mp

    def child(inbox, outbox):
        tensor = inbox.get()
        host = tensor.cpu()
        same = bool((host == torch.arange(host.numel()) % 251).all())
        tensor.copy_(torch.full(tensor.shape, 7))
        torch.cuda.synchronize()
        del tensor
        outbox.put(same)

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
        tensor = (torch.arange(3 << 20) % 251).cuda()
        inbox, outbox = mp.Queue(), mp.Queue()
        process = mp.Process(target=child, args=(inbox, outbox))
        process.start()
        inbox.put(tensor)
        print("the child saw it", outbox.get(timeout=150))
        process.join()
        print("written by the child", bool((tensor.cpu() == 7).all()), flush=True)
"""


@harness.needs_torch
class Queue(unittest.TestCase):
    def send(self, expandable: bool, **settings: str) -> None:
        job = harness.run_memshim(
            QUEUE,
            PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
            **{"MEMSHIM_SPILL": "auto", **settings},
        )
        self.assertEqual(
            job.result.check().stdout.splitlines(),
            ["the child saw it True", "written by the child True"],
        )

    def test_a_tensor_after_two_gib(self) -> None:
        self.send(expandable=False)

    def test_a_page_in_parts(self) -> None:
        self.send(expandable=True)

    def test_a_page_in_parts_where_nothing_may_spill(self) -> None:
        self.send(expandable=True, MEMSHIM_SPILL="off")


if __name__ == "__main__":
    unittest.main()
