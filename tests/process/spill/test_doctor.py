# SPDX-License-Identifier: Apache-2.0
"""memshim doctor says what the machine can do, and what not when a capability is taken away."""

from __future__ import annotations

import json
import signal
import sys
import unittest
from pathlib import Path
from typing import Any

from machine import CLI, GIB, MIB, ProcessTest, run

UUID_CHARACTERS = 32
NOWHERE = "/none"


class Doctor(ProcessTest):
    def ask(self, *arguments: str, status: int = 0, **settings: Any) -> dict[str, Any]:
        """Its findings as JSON, which say the same as the lines of the text."""
        value = json.loads(
            run([CLI, "doctor", "--json", *arguments], **{"MEMSHIM_SPILL": "auto", **settings})
            .check(status)
            .stdout
        )
        assert isinstance(value, dict)
        self.assertEqual(value["schema"], "memshim-doctor/1")
        self.assertEqual(value["serves"], status == 0)
        return value

    def finding(
        self, report: dict[str, Any], topic: str, device: int | None = 0
    ) -> tuple[str, str]:
        """Level and sentence of the one finding of a topic."""
        found = [f for f in report["findings"] if f["topic"] == topic and f["device"] == device]
        self.assertEqual(len(found), 1, report["findings"])
        return found[0]["level"], found[0]["says"]

    def test_a_whole_machine(self) -> None:
        report = self.ask(SIMGPU_MEMORY="12GiB", SIMGPU_DEVICES=2)
        self.assertEqual([d["ordinal"] for d in report["devices"]], [0, 1])
        for device in report["devices"]:
            self.assertEqual(device["total_bytes"], 12 * GIB)
            self.assertEqual(device["granule_bytes"], 2 * MIB)
            self.assertEqual(len(device["uuid"]), UUID_CHARACTERS)
            self.assertTrue(device["mapping"] and device["spill_offered"])
            self.assertTrue(device["spill_proved"])
            self.assertGreater(device["down_bytes_per_s"], 0)
            self.assertGreater(device["up_bytes_per_s"], 0)
            self.assertTrue(device["managed_at_birth"] and device["pinned_at_birth"])
        self.assertNotEqual(report["devices"][0]["uuid"], report["devices"][1]["uuid"])
        self.assertEqual(self.finding(report, "driver", None), ("ok", "CUDA 13.2"))
        level, says = self.finding(report, "functions", None)
        self.assertEqual(level, "ok")
        self.assertIn("cuMemAllocManaged", says)
        self.assertNotIn("cuMemAllocAsync", says)

    def test_handles_are_tried_not_believed(self) -> None:
        report = self.ask(SIMGPU_CAPABILITY="9.0")
        self.assertTrue(report["devices"][0]["handle_file_descriptor"])
        self.assertFalse(report["devices"][0]["handle_fabric"])
        self.assertNotIn("fabric", self.finding(report, "mapping")[1])

    def test_started_by_who_ignores_children(self) -> None:
        def ignore() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

        def levels(text: str) -> list[list[str]]:
            return [line.split()[:2] for line in text.splitlines()]

        ignored = run([CLI, "doctor"], preexec=ignore).check()
        self.assertEqual(levels(ignored.stdout), levels(run([CLI, "doctor"]).check().stdout))
        run([CLI, "run", "--", "false"], preexec=ignore).check(1)

    def test_as_text(self) -> None:
        result = run([CLI, "doctor"]).check()
        lines = result.stdout.splitlines()
        self.assertEqual(lines[-1], "memshim can serve here.")
        for line in lines[:-1]:
            self.assertIn(line.split()[0], ("ok", "limited", "missing"))
        self.assertRegex(result.stdout, r"(?m)^ok +spill +device 0: .*/s to the host, .*/s back$")

    def test_no_driver(self) -> None:
        report = self.ask(status=1, LD_LIBRARY_PATH=NOWHERE)
        self.assertEqual(report["devices"], [])
        level, says = self.finding(report, "driver", None)
        self.assertEqual(level, "missing")
        self.assertIn("libcuda.so.1", says)
        text = run([CLI, "doctor"], LD_LIBRARY_PATH=NOWHERE).check(1).stdout
        self.assertIn("memshim cannot serve here.", text)

    def test_a_driver_that_does_not_start(self) -> None:
        report = self.ask(status=1, SIMGPU_FAIL="cuInit@1=100")
        level, says = self.finding(report, "driver", None)
        self.assertEqual(level, "missing")
        self.assertIn("CUDA_ERROR_NO_DEVICE", says)

    def test_no_device(self) -> None:
        report = self.ask(status=1, SIMGPU_FAIL="cuDeviceGetCount@*=100")
        self.assertEqual(self.finding(report, "driver", None)[0], "ok")
        self.assertEqual(self.finding(report, "device", None)[0], "missing")

    def test_no_virtual_memory_management(self) -> None:
        report = self.ask(SIMGPU_NO_VMM=1)
        self.assertFalse(report["devices"][0]["mapping"])
        self.assertEqual(self.finding(report, "mapping")[0], "limited")
        self.assertEqual(self.finding(report, "spill")[0], "limited")

    def test_no_host_chunks(self) -> None:
        report = self.ask(SIMGPU_HOST_NUMA=0)
        device = report["devices"][0]
        self.assertFalse(device["spill_offered"] or device["spill_proved"])
        self.assertEqual(device["down_bytes_per_s"], 0)
        level, says = self.finding(report, "spill")
        self.assertEqual(level, "limited")
        self.assertIn("this driver cannot put host memory", says)
        self.assertTrue(device["managed_at_birth"])

    def test_host_chunks_where_what_no_host_wrote_is_zero(self) -> None:
        report = self.ask(SIMGPU_VALUES="zeros")
        self.assertTrue(report["devices"][0]["spill_proved"], "what was set, and copied, is read")

    def test_host_chunks_that_fault(self) -> None:
        report = self.ask(SIMGPU_FAIL="cuMemcpyDtoD@2=700")
        device = report["devices"][0]
        self.assertTrue(device["spill_offered"])
        self.assertIs(device["spill_proved"], False)
        level, says = self.finding(report, "spill")
        self.assertEqual(level, "limited")
        self.assertIn("a real access to it failed", says)

    def test_a_device_that_gives_no_context(self) -> None:
        report = self.ask(SIMGPU_FAIL="cuDevicePrimaryCtxRetain@*=46")
        self.assertIs(report["devices"][0]["spill_proved"], None)
        self.assertEqual(self.finding(report, "spill")[0], "limited")

    def test_rungs_at_birth(self) -> None:
        report = self.ask(SIMGPU_FAIL="cuMemAllocManaged@*=801")
        device = report["devices"][0]
        self.assertIs(device["managed_at_birth"], False)
        self.assertIs(device["pinned_at_birth"], True)
        report = self.ask(SIMGPU_FAIL="cuMemAllocManaged@*=801,cuMemHostAlloc@*=801")
        self.assertEqual(self.finding(report, "rungs")[0], "limited")

    def test_the_limit_of_spilling(self) -> None:
        host = self.ask()["host"]
        self.assertLessEqual(host["spill_limit_bytes"], host["available_bytes"] // 4)
        self.assertEqual(self.ask(MEMSHIM_SPILL="off")["host"]["spill_limit_bytes"], 0)
        limited = self.ask(MEMSHIM_SPILL_LIMIT="1MiB")["host"]
        self.assertEqual(limited["spill_limit_bytes"], MIB)
        shared = self.ask(LOCAL_WORLD_SIZE=4)["host"]
        self.assertLessEqual(shared["spill_limit_bytes"], shared["available_bytes"] // 16)

    def test_limits_of_others(self) -> None:
        limits: dict[str, Any] = {
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G,1=2G",
            "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.25",
        }
        report = self.ask(SIMGPU_MEMORY="12GiB", **limits)
        says = [f["says"] for f in report["findings"] if f["topic"] == "limit"]
        self.assertEqual(len(says), 2)
        self.assertIn("1.00 GiB of the device (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)", says[0])
        self.assertIn("3.00 GiB", says[1])
        self.assertEqual([f for f in self.ask()["findings"] if f["topic"] == "limit"], [])

    CONFLICTS: tuple[tuple[str, dict[str, Any]], ...] = (
        ("HAMi (by LD_PRELOAD)", {"LD_PRELOAD": "/none/libvgpu.so"}),
        ("HAMi (by CUDA_DEVICE_MEMORY_LIMIT_0)", {"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"}),
        ("nvshare (by LD_PRELOAD)", {"LD_PRELOAD": "/none/libnvshare.so"}),
        ("another malloc (by LD_PRELOAD)", {"LD_PRELOAD": "libjemalloc.so.2"}),
        ("another malloc (by LD_PRELOAD)", {"LD_PRELOAD": "/none/libtcmalloc_minimal.so.4"}),
        ("MPS (by CUDA_MPS_PIPE_DIRECTORY)", {"CUDA_MPS_PIPE_DIRECTORY": "/none"}),
        ("MIG (by the device's name)", {"SIMGPU_NAME": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}),
        ("vGPU (by the device's name)", {"SIMGPU_NAME": "NVIDIA A100-10C"}),
        ("vGPU (by the device's name)", {"SIMGPU_NAME": "GRID V100-8Q"}),
        (
            "compute-sanitizer or Nsight Compute (by LD_PRELOAD)",
            {"LD_PRELOAD": "/none/libTreeLauncherTargetInjection.so"},
        ),
        (
            "cuda-gdb or another debugger (by CUDA_DEVICE_WAITS_ON_EXCEPTION)",
            {"CUDA_DEVICE_WAITS_ON_EXCEPTION": "1"},
        ),
        ("an injected profiler (by CUDA_INJECTION64_PATH)", {"CUDA_INJECTION64_PATH": "/none"}),
        ("an injected profiler (by NVTX_INJECTION64_PATH)", {"NVTX_INJECTION64_PATH": "/none"}),
    )

    def test_conflicts(self) -> None:
        for begins, settings in self.CONFLICTS:
            with self.subTest(begins):
                report = self.ask(**settings)
                (found,) = (f for f in report["findings"] if f["topic"] == "conflict")
                self.assertEqual(found["level"], "limited")
                self.assertTrue(found["says"].startswith(begins + ": "), found)
                self.assertTrue(found["advice"])
        plain = self.ask(SIMGPU_NAME="NVIDIA A100-SXM4-40GB")
        self.assertEqual([f for f in plain["findings"] if f["topic"] == "conflict"], [])

    def python(self, *files: tuple[str, str]) -> dict[str, Any]:
        """The report where the interpreter finds these files."""
        for name, text in files:
            path = self.folder / "packages" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self.ask("--python", sys.executable, PYTHONPATH=self.folder / "packages")

    def test_pytorch_is_read_and_not_imported(self) -> None:
        report = self.python(
            ("torch/__init__.py", "raise SystemExit('imported')"),
            ("torch/version.py", "__version__ = '9.8.7'\ncuda: Optional[str] = '13.2'\n"),
            ("torch/lib/libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"),
        )
        python = report["python"]
        self.assertEqual((python["torch"], python["torch_cuda"]), ("9.8.7", "13.2"))
        self.assertTrue(python["torch_reports_tensors"])
        version = ".".join(map(str, sys.version_info[:3]))
        self.assertEqual(python["version"], version)
        level, says = self.finding(report, "pytorch", None)
        self.assertEqual(level, "ok")
        self.assertIn("mode native", says)

    def test_nccl_by_the_package_beside_pytorch(self) -> None:
        torch = ("torch/version.py", "__version__ = '9.8.7'\ncuda: Optional[str] = '13.2'\n")
        report = self.python(torch, ("nvidia_nccl_cu13-2.30.4.dist-info/METADATA", ""))
        (found,) = (f for f in report["findings"] if f["topic"] == "conflict")
        self.assertTrue(found["says"].startswith("NCCL 2.30.4 (by its version): "), found)
        self.assertIn("NCCL_PXN_DISABLE=1", found["advice"])

    def test_pytorch_without_reports_or_cuda(self) -> None:
        report = self.python(
            ("torch/__init__.py", ""),
            ("torch/version.py", "__version__ = '1.0'\ncuda = '11.0'\n"),
        )
        self.assertEqual(self.finding(report, "pytorch", None)[0], "limited")
        report = self.python(("torch/version.py", "__version__ = '1.0'\ncuda = None\n"))
        self.assertIn("without CUDA", self.finding(report, "pytorch", None)[1])

    def test_no_interpreter(self) -> None:
        report = self.ask("--python", str(Path(NOWHERE) / "python"))
        self.assertEqual(self.finding(report, "python", None)[0], "missing")

    def test_wrong_calls(self) -> None:
        self.assertEqual(run([CLI, "doctor", "--verbose"]).status, 2)
        self.assertEqual(run([CLI, "doctor", "--python"]).status, 2)
        self.assertIn("--json", run([CLI, "doctor", "--help"]).check().stdout)


if __name__ == "__main__":
    unittest.main()
