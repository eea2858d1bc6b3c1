# SPDX-License-Identifier: Apache-2.0
"""The card that a program sees under memshim dry-run, and those that its answer names."""

from __future__ import annotations

import json
import re
import sys
import unittest
from pathlib import Path

from browser import Browser, find_chromium
from dry_run import CLI, MIB, PROGRAM, DryRunTest
from machine import run
from report.test_page import embedded

NVML = """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
watts, energy = ctypes.c_uint(), ctypes.c_ulonglong()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
limit = nvml.nvmlDeviceGetEnforcedPowerLimit(device, ctypes.byref(watts))
unknown = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
print("nvml", *memory, limit, unknown, flush=True)
"""

# A kernel, and what the driver says of its blocks; then launches of it.
FUNCTION = r"""
module, function = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), b"simgpu-module\nkernel wide_tile 0:8\n")
call("cuModuleGetFunction", ctypes.byref(function), module, b"wide_tile")
def launch(grid, block, shared):
    return cuda.cuLaunchKernel(function, *grid, *block, shared, None, None, None)
"""

OCCUPANCY = (
    FUNCTION
    + """
least, best, active = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
call("cuOccupancyMaxPotentialBlockSize", ctypes.byref(least), ctypes.byref(best), function, None,
     ctypes.c_size_t(0), 0)
call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(active), function, 32,
     ctypes.c_size_t(0))
print("best", best.value, least.value, active.value, flush=True)
"""
)

LAUNCHES = FUNCTION + "assert [launch((1, 1, 1), (128, 1, 1), 160 << 10) for _ in 'ab'] == [1, 1]\n"


class Card(DryRunTest):
    def test_card(self) -> None:
        result, answer = self.answer("--gpu", "rtx4090", *self.program())
        result.check()
        self.assertIn(f"Simulated RTX 4090 {24207 * MIB}", result.stderr)
        self.assertEqual(answer["schema"], "memshim-dry-run/1")
        self.assertEqual(answer["end"], "ended")
        (rank,) = answer["ranks"]
        self.assertEqual(rank["peak_live_bytes"], 96 * MIB)
        self.assertEqual(rank["peak_charged_bytes"], (96 + 470) * MIB)
        self.assertFalse(rank["batch_known"])
        self.assertEqual(answer["cards"][0]["id"], "rtx4090")
        self.assertTrue(all(all(card["fits"].values()) for card in answer["cards"]))
        self.assertTrue(Path(answer["report"]).is_relative_to(self.folder))
        self.assertTrue(list(Path(answer["report"]).glob("*/*/report.txt")))

    def test_cards_in_the_page(self) -> None:
        """Of the run: the table of the answer."""
        _, answer = self.answer("--gpu", "t4", *self.program())
        (folder,) = [path for path in Path(answer["report"]).iterdir() if not path.is_symlink()]
        page = embedded(folder / "report.html")
        self.assertEqual(json.loads(page["cards"])["cards"], answer["cards"])
        chromium = find_chromium()
        if not chromium:
            self.skipTest("there is no Chromium")
        browser = Browser(chromium)
        self.addCleanup(browser.close)
        browser.open(folder / "report.html")
        browser.wait_for("document.body.dataset.shown === 'whole'")
        rows = browser.ask(
            "[...document.querySelectorAll('#card-rows tbody tr')]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        self.assertEqual(len(rows), len(answer["cards"]))
        self.assertEqual(rows[0][:4], ["T4", "14.58 GiB", "fits", "fits"])
        self.assertEqual(rows[0][4], f"fits from {answer['cards'][0]['fraction']}")
        (folder / "cards.json").write_text("{</script>")
        run([CLI, "report", folder, "--format", "html", "--output", folder / "again.html"]).check()
        browser.open(folder / "again.html")
        browser.wait_for("document.body.dataset.shown === 'whole'")
        self.assertEqual(browser.ask("document.querySelectorAll('#cards table').length"), 0)
        self.assertEqual(browser.complaints, [])

    def test_processors(self) -> None:
        """By the card, as NVIDIA's table has them: kernels that need more shared memory than one of
        another capability has are launched, and work spaces that follow the blocks in flight are as
        large as on it."""
        attributes = {"shared": 97, "threads": 39, "blocks": 106, "processors": 16}
        code = PROGRAM + f"for number in {tuple(attributes.values())}:\n"
        code += "    call('cuDeviceGetAttribute', ctypes.byref(count), number, 0)\n"
        code += "    print('has', count.value, flush=True)\n" + OCCUPANCY
        for card, kib, threads, blocks, processors, best in (
            ("t4", 64, 1024, 16, 40, 1024),
            ("a100-40gb", 163, 2048, 32, 108, 1024),
            ("rtx3090", 99, 1536, 16, 82, 768),
            ("rtx4090", 99, 1536, 24, 128, 768),
            ("h200", 227, 2048, 32, 132, 1024),
            ("b200", 227, 2048, 32, 148, 1024),
            ("rtx5090", 99, 1536, 24, 170, 768),
        ):
            said = self.dry_run("--gpu", card, "--", sys.executable, "-c", code).check().stderr
            has = [int(word) for word in re.findall(r"^has (\d+)$", said, re.MULTILINE)]
            self.assertEqual(has, [kib << 10, threads, blocks, processors], card)
            self.assertIn(f"best {best} {threads // best * processors} {blocks}\n", said, card)

    def test_a_launch_that_the_card_refuses(self) -> None:
        """It is named once, with the reason: a program's own message is 'invalid argument'."""
        code = PROGRAM + LAUNCHES
        said = self.dry_run("--gpu", "rtx4090", "--", sys.executable, "-c", code).check().stderr
        (line,) = [line for line in said.splitlines() if "refuses" in line]
        for word in ("wide_tile", "163840 bytes of shared memory", "8.9", "101376"):
            self.assertIn(word, line)
        for grid, block, words in (
            ((1, 1, 1), (1024, 2, 1), "2048 threads"),
            ((1, 65536, 1), (1, 1, 1), "1 x 65536 x 1"),
            ((0, 1, 1), (1, 1, 1), "0 x 1 x 1"),
        ):
            code = PROGRAM + FUNCTION + f"launch({grid}, {block}, 0)\n"
            said = self.dry_run("--", sys.executable, "-c", code).check().stderr
            self.assertIn(words, said)

    def test_size_and_number(self) -> None:
        result, _ = self.answer("--gpu", "3GiB", "--gpus", "2", *self.program())
        lines = [line for line in result.check().stderr.splitlines() if str(3 << 30) in line]
        self.assertEqual(len(lines), 2)

    def test_number_that_a_script_says(self) -> None:
        """Of a launcher in a shell's script, as of one without."""
        for words in ("true --nproc-per-node=2", "cd / && (exec true --num_processes 2)"):
            _, answer = self.answer("--", "sh", "-c", words)
            self.assertEqual(answer["devices"], 2, words)

    def test_file(self) -> None:
        card = self.folder / "card"
        card.write_text("# mine\nname My card\nmemory 2GiB\ncontext 1GiB\ncapability 8.6\n")
        result, answer = self.answer("--gpu", card, *self.program())
        self.assertIn(f"Simulated My card {2 << 30}", result.check().stderr)
        self.assertEqual(answer["ranks"][0]["peak_charged_bytes"], (96 + 1024) * MIB)
        card.write_bytes(b"name From Windows\r\nmemory 2GiB\r\n\r\n")
        said = self.dry_run("--gpu", card, *self.program()).check().stderr
        self.assertIn(f"Simulated From Windows {2 << 30}", said)
        for text in (
            *("name My card\n", "memory 2GiB\ncolour blue\n", "memory\n", "memory 5TiB\n"),
            *("memory 2GiB\nprocessors -4\n", "memory 2GiB\ncontext 2GiB\n"),
            *("memory 2GiB\ncapability -9.0\n", "\0" * 1_000_000),
        ):
            card.write_text(text)
            result = self.dry_run("--gpu", card, *self.program())
            self.assertEqual(result.status, 2, text)
            self.assertIn(str(card), result.stderr)

    def test_file_with_a_key_twice(self) -> None:
        card = self.folder / "card"
        given = {"context": "1GiB", "capability": "8.6", "processors": "4", "bus": "20GiB"}
        for key in ("name", "memory", *given):
            values = {"memory": "3GiB", **given}
            value = values.pop(key, "mine")
            rest = "".join(f"{other} {values[other]}\n" for other in values)
            card.write_text(f"{key} {value}\n# mine\n{rest}\n  {key} {value}\n")
            result = self.dry_run("--gpu", card, *self.program())
            self.assertEqual(result.status, 2, result.describe())
            line = len(values) + 4
            self.assertIn(f"{card}:{line} has '{key}' again: it is in line 1, too", result.stderr)

    def test_nvidia_smi(self) -> None:
        """Of the simulated card; PATH outside is as it was."""
        fields = "name,memory.total,compute_cap"
        for words, said in (
            ("-L", "GPU 1: Simulated RTX 4090 (UUID: GPU-"),
            ("", "24207MiB"),
            (f"--query-gpu={fields} --format=csv", "name, memory.total [MiB], compute_cap\n"),
            (f"--query-gpu={fields} --format=csv", "Simulated RTX 4090, 24207 MiB, 8.9\n"),
            ("--query-gpu=memory.total --format=csv,noheader,nounits -i 1", "\n24207\nstatus 0"),
            ("--query-gpu=nonsense --format=csv", 'Field "nonsense" is not a valid field'),
            ("dmon", "dmon is not answered"),
            ("-i 2", "No devices were found"),
        ):
            with self.subTest(words):
                script = f"echo; nvidia-smi {words}; echo status $?"
                command = ("--gpu", "rtx4090", "--gpus", "2", "--", "bash", "-c", script)
                self.assertIn(said, self.dry_run(*command).stderr)
        code = "import subprocess; subprocess.run(['nvidia-smi', '-L'], check=True)"
        result = self.dry_run("--", sys.executable, "-c", PROGRAM + code)
        self.assertIn("GPU 0: Simulated H100 80GB", result.check().stderr)

    def test_nvml(self) -> None:
        """As pynvml asks it: of the simulated card, and what the process holds is used. What a
        tracker may ask besides is not supported, which is no missing function."""
        result = self.dry_run("--gpu", "rtx4090", "--", sys.executable, "-c", PROGRAM + NVML)
        (line,) = (line for line in result.check().stderr.splitlines() if line.startswith("nvml"))
        _, total, free, used, limit, energy = line.split()
        self.assertEqual(int(total), 24207 * MIB)
        self.assertEqual(int(used), (96 + 470) * MIB)
        self.assertEqual(int(free), int(total) - int(used))
        self.assertEqual((limit, energy), ("0", "3"))

    def test_bus_of_a_file(self) -> None:
        card = self.folder / "card"
        card.write_text("memory 600MiB\nbus 1GiB\n")
        _, answer = self.answer("--gpu", card, *self.program())
        said = answer["cards"][0]
        self.assertEqual((said["bus_bytes_per_s"], said["bus_is"]), (1 << 30, "as given"))
        self.assertEqual(said["spilled_bytes"], 16 * MIB)
        self.assertEqual(said["spilling_ns_per_step"], 2 * 16 * 10**9 // 1024)
        card.write_text("memory 600MiB\nbus 0\n")
        self.assertEqual(self.dry_run("--gpu", card, *self.program()).status, 2)
        _, answer = self.answer("--gpu", "600MiB", *self.program())
        self.assertEqual(answer["cards"][0]["bus_is"], "guessed")

    def test_version_of_a_context(self) -> None:
        """Contexts differ by version of CUDA: the answer says for which the figure is."""
        for card, known, version in (
            ("h200", "measured with CUDA 13.0", "13.0"),
            ("rtx3090", "documented with CUDA 12.8", "12.8"),
            ("t4", "guessed, for no version of CUDA in particular", None),
        ):
            said = self.dry_run("--gpu", card, *self.program()).check().stdout
            self.assertIn(known, said)
            self.assertIn("before CUDA 11.7", said)
            _, answer = self.answer("--gpu", card, *self.program())
            self.assertEqual(answer["cards"][0].get("context_cuda"), version, card)
        given = self.folder / "card"
        given.write_text("memory 2GiB\ncontext 1GiB\n")
        said = self.dry_run("--gpu", given, *self.program()).check().stdout
        self.assertIn("The context's 1.00 GiB are as given.", said)


if __name__ == "__main__":
    unittest.main()
