# SPDX-License-Identifier: Apache-2.0
"""The preload that stamps tensors sees what it is there to see: memory broken on purpose.

Without memshim: the job itself takes memory away from PyTorch, through the driver.
"""

from __future__ import annotations

import re
import unittest
from typing import ClassVar

import harness

STATUS = 86  # STAMP_STATUS of stamp/words.h

# Each scenario runs in a child of one process that has imported PyTorch and not used the device.
SCENARIOS = """
    import ctypes, json, os, sys, torch

    driver = ctypes.CDLL("libcuda.so.1")
    MIB = 1 << 20

    def must(result):
        assert result == 0, result

    class Access(ctypes.Structure):
        _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]

    def page_of(tensor):
        return ctypes.c_uint64(tensor.data_ptr() // (20 * MIB) * (20 * MIB))

    def pages(count):
        # Each tensor has a page of 20 MiB of an expandable segment for itself.
        held = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(count)]
        base = held[0].data_ptr()
        assert [t.data_ptr() - base for t in held] == [20 * MIB * i for i in range(count)]
        return held

    def unmap(tensor):
        must(driver.cuMemUnmap(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(20 * MIB)))

    def share(first, second):
        handle = ctypes.c_uint64()
        must(driver.cuMemRetainAllocationHandle(ctypes.byref(handle),
                                                ctypes.c_void_p(first.data_ptr())))
        unmap(second)
        at, size = ctypes.c_uint64(second.data_ptr()), ctypes.c_size_t(20 * MIB)
        must(driver.cuMemMap(at, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))
        must(driver.cuMemSetAccess(at, size, ctypes.byref(Access(1, 0, 3)), ctypes.c_size_t(1)))

    def nothing_wrong():
        a, b = pages(2)
        a.copy_(torch.ones(20 * MIB, dtype=torch.uint8))
        b[5000:9001].copy_(torch.ones(4001, dtype=torch.uint8))
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(50):
                c = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
                c[:2 * MIB].copy_(b[:2 * MIB])
                b.record_stream(side)
        assert b[5000:9001].cpu().eq(1).all()

    def unbacked_at_death():
        a, b = pages(2)
        torch.cuda.synchronize()
        unmap(b)
        del b

    def unbacked_at_the_end():
        a, b = pages(2)
        torch.cuda.synchronize()
        unmap(a)

    def unbacked_at_birth():
        a, b = pages(2)
        at = b.data_ptr()
        del b
        torch.cuda.synchronize()
        must(driver.cuMemUnmap(ctypes.c_uint64(at), ctypes.c_size_t(20 * MIB)))
        torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")

    def shared_by_two():
        a, b = pages(2)
        torch.cuda.synchronize()
        share(a, b)
        del b

    def shared_by_two_that_live_on():
        a, b = pages(2)
        torch.cuda.synchronize()
        share(a, b)
        ctypes.CDLL(None).stamp_check()
        os._exit(0)

    def taken_too_early():
        a, b = pages(2)
        torch.cuda.synchronize()
        at = b.data_ptr()
        driver.simgpu_pause()
        del b                       # its last look is queued
        must(driver.cuMemUnmap(ctypes.c_uint64(at), ctypes.c_size_t(20 * MIB)))
        driver.simgpu_resume()
        torch.cuda.synchronize()

    def written_unannounced():
        a, b = pages(2)
        torch.cuda.synchronize()
        ctypes.memset(a.data_ptr() + 8 * MIB, 0, 8)
        del a

    def overwritten_and_wrong_elsewhere():
        a, b = pages(2)
        a[: 8 * MIB].zero_()
        a[:MIB].copy_(torch.ones(MIB, dtype=torch.uint8))
        torch.cuda.synchronize()
        ctypes.memset(a.data_ptr() + 4096, 7, 8)  # excused
        ctypes.memset(a.data_ptr() + 16 * MIB, 7, 8)
        del a

    for name in sys.argv[1:]:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), 2)
            globals()[name]()
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"event": name, "status": status, "said": open(name).read()}), flush=True)
"""

NAMES = tuple(re.findall(r"def (\w+)\(\):", SCENARIOS))


@harness.needs_torch
class Stamping(unittest.TestCase):
    said: ClassVar[dict[str, tuple[int, str]]]

    @classmethod
    def setUpClass(cls) -> None:
        job = harness.run_stamped(
            SCENARIOS, *NAMES, shim=False, PYTORCH_ALLOC_CONF="expandable_segments:True"
        )
        lines = job.result.check().lines()
        cls.said = {line["event"]: (line["status"], line["said"]) for line in lines}

    def check_caught(self, name: str, pattern: str, status: int = STATUS) -> None:
        ended, said = self.said[name]
        self.assertEqual(ended, status, said)
        self.assertRegex(said, pattern)

    def test_nothing_wrong(self) -> None:
        status, said = self.said["nothing_wrong"]
        self.assertEqual(status, 0, said)
        counts = re.search(r"verified (\d+),.* words right (\d+), overwritten (\d+)", said)
        assert counts is not None, said
        verified, right, overwritten = map(int, counts.groups())
        self.assertGreaterEqual(verified, 52)
        # All of the first tensor, one page's beginning of the second, 2 of 3 MiB of the others.
        self.assertEqual(overwritten, 5121 + 1 + 50 * 512)
        self.assertEqual(right, 5121 - 1 + 50 * 257)

    def test_unbacked_at_death(self) -> None:
        self.check_caught("unbacked_at_death", "NOT MAPPED: tensor 2 .* at its death, at byte 0")

    def test_unbacked_at_the_end(self) -> None:
        self.check_caught("unbacked_at_the_end", "NOT MAPPED: tensor 1 .* at its death")

    def test_unbacked_at_birth(self) -> None:
        self.check_caught("unbacked_at_birth", "NOT MAPPED: tensor 3 .* at its birth")

    def test_a_chunk_under_two_tensors(self) -> None:
        pattern = "WRONG BYTES in tensor 2 .*as a stamp: tensor 1"
        self.check_caught("shared_by_two", pattern)
        self.check_caught("shared_by_two_that_live_on", pattern)

    def test_taken_before_queued_work(self) -> None:
        self.check_caught("taken_too_early", "stamp: FAULT at 0x", status=-11)

    def test_written_by_nobody(self) -> None:
        self.check_caught("written_unannounced", "WRONG BYTES in tensor 1 .* at byte 8388608 ")

    def test_what_was_overwritten_is_excused_and_no_more(self) -> None:
        pattern = "WRONG BYTES in tensor 1 .* at byte 16777216 "
        self.check_caught("overwritten_and_wrong_elsewhere", pattern)


if __name__ == "__main__":
    unittest.main()
