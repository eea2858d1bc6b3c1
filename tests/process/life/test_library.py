# SPDX-License-Identifier: Apache-2.0
"""What the built library needs, exports and asks of the C library, read off the file itself."""

from __future__ import annotations

import platform
import re
import shutil
import unittest
from pathlib import Path

from machine import BUILD, INSTALLED, ROOT, ProcessTest, process_folders, program, run

LIBC = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 28)
RESOLVERS = {"dlclose", "dlsym", "dlvsym", "getenv", "syscall"}
ENDS = {"_exit", "_Exit"}
# Of the processor's floating-point units, without moves; and those whose results are exact here.
ARITHMETIC = re.compile(
    r"\s+[0-9a-f]+:\s+(v?cvt\w+|v?(?:mul|div|add|sub|sqrt|max|min|round|u?comi|cmp\w*)[sp][sd]"
    r"|f(?:i?ld|i?st|mul|add|div|sub|u?com)\w*)\b"
)
EXACT = {"cvtsi2sd", "cvttsd2si", "mulsd", "comisd"}
SHELLS = {"bash-completion", "zsh", "fish"}
NVTX = {"InitializeInjectionNvtx2"}
TENSORFLOW = {"TFE_Execute"}
TORCH = {
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    "_ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKSs",
    "_ZN3c104cuda20CUDACachingAllocator20setAllocatorSettings"
    "ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb",
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbb",
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb",
}


def tool(*command: str | Path) -> str:
    return run(command).check().stdout


class Library(unittest.TestCase):
    def test_needs_nothing_but_libc(self) -> None:
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-dW", INSTALLED)))
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(needed, LIBC)

    def test_exports_are_the_table_and_the_interface(self) -> None:
        table = [
            symbol
            for name in ("hooks.def", "hooks_gated.def")
            for symbol in re.findall(
                r"^MS_HOOK\((\w+),", (ROOT / "shim" / "tables" / name).read_text(), re.MULTILINE
            )
        ]
        self.assertGreater(len(table), 100)
        interface = re.findall(
            r"^MEMSHIM_API .*?(\w+)\(", (ROOT / "shim" / "memshim.h").read_text(), re.MULTILINE
        )
        self.assertGreaterEqual(len(interface), 3)
        lines = tool("nm", "-D", "--defined-only", INSTALLED).splitlines()
        exported = {line.split()[-1] for line in lines}
        self.assertEqual(
            exported, {*table, *interface, *RESOLVERS, *ENDS, *NVTX, *TENSORFLOW, *TORCH}
        )
        self.assertEqual({line.split()[-2] for line in lines}, {"T"})

    def test_asks_for_no_symbol_newer_than_glibc_2_28(self) -> None:
        newest = max(
            tuple(int(part) for part in version.split("."))
            for version in re.findall(r"@GLIBC_([\d.]+)", tool("nm", "-D", INSTALLED))
        )
        libc = run(["ldd", "--version"]).stdout.splitlines()[0]
        self.assertLessEqual(newest, NEWEST_GLIBC, f"built on {libc}")

    def test_asks_for_no_driver_symbol(self) -> None:
        undefined = tool("nm", "-D", "--undefined-only", INSTALLED)
        self.assertEqual(re.findall(r"\bU (cu\w+|nvml\w+)", undefined), [])

    @unittest.skipUnless(platform.machine() == "x86_64", "instructions of another processor")
    def test_computes_in_integers(self) -> None:
        """A program may have the exceptions of floating-point operations end it, and looks at their
        flags. What converts the doubles of public structs is exact, and compares raise nothing."""
        found: dict[str, set[str]] = {}
        function = ""
        for line in tool("objdump", "-d", "--no-show-raw-insn", INSTALLED).splitlines():
            if header := re.match(r"[0-9a-f]+ <(.*)>:$", line):
                function = header[1]
            elif instruction := ARITHMETIC.match(line):
                found.setdefault(function, set()).add(instruction[1])
        self.assertEqual({name: sorted(i - EXACT) for name, i in found.items() if i - EXACT}, {})
        self.assertLessEqual(len(found), 6, f"more functions than convert doubles: {sorted(found)}")
        undefined = tool("nm", "-D", "--undefined-only", INSTALLED)
        self.assertEqual(re.findall(r"\b(strto(?:d|f|ld)|atof|ldexp|exp|log|pow)@", undefined), [])

    def test_holds_no_reader(self) -> None:
        """What reads traces and writes reports is the command's alone: no file of those rooms is in
        it. A static function's file is named by the symbol table, too."""
        inside = {
            line.split()[-1]
            for line in tool("readelf", "-sW", INSTALLED).splitlines()
            if " FILE " in line
        }
        self.assertIn("writer.c", inside)
        rooms = [
            ROOT / "report" / name for name in ("read", "symbols", "replay", "model", "render")
        ]
        theirs = {path.name for room in rooms for path in room.glob("*.c")}
        # Of the same name as one that belongs there: told apart by what they define.
        shared = {
            path.name for room in ("shim", "allocator") for path in (ROOT / room).rglob("*.c")
        }
        shared |= {
            path.name
            for room in ("trace", "fold", "write")
            for path in (ROOT / "report" / room).glob("*.c")
        }
        self.assertGreater(len(theirs - shared), 40)
        self.assertEqual(inside & (theirs - shared), set())
        symbols = set(re.findall(r" [tTbBdDrR] (ms_\w+)$", tool("nm", INSTALLED), re.MULTILINE))
        self.assertIn("ms_trace_open", symbols)
        reading = r"ms_(model|reader|stacks|survey|replay|what_if|format|page|merged|dwarf)_"
        self.assertEqual([name for name in symbols if re.match(reading, name)], [])

    def test_is_never_unloaded_and_has_no_executable_stack(self) -> None:
        self.assertIn("NODELETE", tool("readelf", "-dW", INSTALLED))
        stack = re.search(r"GNU_STACK.*", tool("readelf", "-lW", INSTALLED))
        assert stack
        self.assertNotIn("RWE", stack[0])


class Installed(ProcessTest):
    def test_install(self) -> None:
        run(["cmake", "--install", BUILD], DESTDIR=self.folder).check()
        # What is below share/man and so on: test_manual.py.
        files = [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and not {"man", *SHELLS, "simulated-gpu"} & set(path.parts)
        ]
        self.assertEqual(
            {path.name for path in files},
            {"libmemshim.so", "libmemshim.so.1", "memshim", "memshim.h", "LICENSE"}
            | {"memshim.pc", "memshimConfigVersion.cmake", "import_torch_snapshot.py"}
            | {path.name for path in files if re.match(r"memshimConfig(-\w+)?\.cmake$", path.name)},
        )
        cli = next(path for path in files if path.name == "memshim")
        library = next(path for path in files if path.name == "libmemshim.so")
        result = run([cli, "run", "--", "bash", "-c", "echo $LD_PRELOAD"], cwd=self.folder).check()
        self.assertEqual(result.stdout.strip(), str(library))
        pickle = self.folder / "job.pickle"
        pickle.write_bytes(b"\x80\x04]\x94.")
        result = run([cli, "replay", pickle])
        self.assertIn("it is not what _dump_snapshot writes", result.stderr)

        simulated = library.parent / "memshim" / "simulated-gpu"
        self.assertEqual(
            {path.name for path in simulated.iterdir()},
            {"doubles", "libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "libnvidia-ml.so.1"}
            | {"libsimgpu-torch.so", "bin"},
        )

    def test_a_program_links_it(self) -> None:
        """By what pkg-config and CMake say; it asks for the SONAME."""
        prefix, source = self.folder / "prefix", self.folder / "source"
        run(["cmake", "--install", BUILD, "--prefix", prefix]).check()
        source.mkdir()
        (source / "main.c").write_text(
            "#include <memshim.h>\n#include <stdio.h>\n"
            "int main(void) { puts(memshim_version()); }\n"
        )
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(user C)\n"
            "find_package(memshim 0.1 REQUIRED)\n"
            "add_executable(user main.c)\ntarget_link_libraries(user memshim::memshim)\n"
        )
        made = self.folder / "made"
        run(
            ["cmake", "-G", "Ninja", "-S", source, "-B", made, f"-DCMAKE_PREFIX_PATH={prefix}"]
        ).check()
        run(["cmake", "--build", made]).check()
        (package,) = prefix.rglob("memshim.pc")
        flags = run(
            [*("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs"), package]
        ).check()
        other = self.folder / "other"
        run(["cc", source / "main.c", "-o", other, *flags.stdout.split()]).check()
        for user in (made / "user", other):
            needed = re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-dW", user))
            self.assertIn("libmemshim.so.1", needed)
            folder = package.parents[1]
            self.assertRegex(run([user], LD_LIBRARY_PATH=folder).check().stdout, r"^\d+\.\d+")

    def test_the_installed_library_finds_its_command(self) -> None:
        """Which makes the report; the folder of the library's own name beside it is no command."""
        run(["cmake", "--install", BUILD, "--prefix", self.folder]).check()
        library = next(self.folder.rglob("libmemshim.so"))
        self.assertTrue((library.parent / "memshim").is_dir())
        run(
            [program("trainer"), "--steps", "1"], LD_PRELOAD=library, MEMSHIM_OUTPUT=self.output
        ).check()
        (made,) = process_folders(self.output)
        self.assertTrue((made / "report.txt").exists())

    def test_by_name_from_any_folder(self) -> None:
        """As after an installation that the loader's cache knows."""
        place = self.folder / "lib"
        place.mkdir()
        shutil.copy(INSTALLED, place)
        for folder in (Path("/"), self.folder):
            result = run(["ls", "/"], cwd=folder, LD_LIBRARY_PATH=place, LD_PRELOAD=INSTALLED.name)
            self.assertEqual(result.check().stderr, "")


if __name__ == "__main__":
    unittest.main()
