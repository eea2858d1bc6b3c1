# SPDX-License-Identifier: Apache-2.0
"""Makes the doubles of cuBLAS, cuBLASLt, cuDNN, NCCL and CUPTI for this interpreter's frameworks.

Usage: python build.py SIMGPU_DIR CACHE_DIR

What PyTorch, vLLM's extensions, ONNX Runtime and the libraries beside them import is read from
their own files. XLA's plugin for JAX and TensorFlow import nothing: they look functions up at run
time, so that for them a double has every function that the library beside them exports. The
functions that must answer something are in the object files beside this script, which were compiled
with the simulated GPU; all others are generated here and return success. One line says all at once
what the simulated GPU's own libraries (the runtime, the driver, NVML) lack of what the frameworks
import. Prints, one path a line, what has to be preloaded; nothing when this interpreter has no
framework for a GPU. SIMGPU_DIR holds the libraries of the simulated GPU. The result is kept in
CACHE_DIR/torch-<hash>/ until they, the frameworks or the object files change.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elf import ElfError, Import, Symbols, read_symbols

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Double:
    """A library to stand in for. `prefix`, a pattern, tells its functions where they carry no
    version. `version_name` is what its object file answers as its version. `looked_up`: only for
    frameworks that look functions up at run time; the others' own stays quiet while nothing calls
    it. `products`: functions that multiply matrices, and take a handle first."""

    stem: str
    prefix: str
    version_name: str
    version_header: str
    version_pattern: str
    looked_up: bool = False
    products: str = r"(?!)"


CUBLAS_VERSION = r"#define CUBLAS_VER_(MAJOR|MINOR|PATCH) (\d+)"
CUDNN_VERSION = r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) (\d+)"
NCCL_VERSION = r"#define NCCL_(MAJOR|MINOR|PATCH) (\d+)"
DOUBLES = (
    Double(
        *("libcublas", r"cublas(?!Lt)", "simcublas_version", "cublas_api.h", CUBLAS_VERSION),
        products=r"cublas(?!Xt)\w*[gG]emm\w*",
    ),
    Double("libcublasLt", "cublasLt", "simcublas_version", "cublas_api.h", CUBLAS_VERSION),
    Double("libcudnn", "", "simcudnn_version", "cudnn_version.h", CUDNN_VERSION),
    Double("libnccl", "nccl", "simnccl_version", "nccl.h", NCCL_VERSION),
    # Its header has the number in one piece, so that the object's own is used.
    Double("libcupti", "", "simcupti_version", "cupti_version.h", r"(?!)()"),
    Double("libcusolver", "", "simcusolver_version", "no header", r"(?!)()", looked_up=True),
)


# The simulated GPU's own libraries, with the beginning of their functions' names where an import
# carries no version.
OWN = {
    "libcuda.so.1": r"cu[A-Z]",
    "libnvidia-ml.so.1": r"nvml[A-Z]",
    "libcudart.so.12": r"(?!)",
    "libcudart.so.13": r"(?!)",
}


class BuildError(Exception):
    """Said to the user as it is."""


def package_folders(name: str) -> list[Path]:
    """Where a package's files are; found without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


def files_in(package: str, pattern: str) -> list[Path]:
    return sorted(path for folder in package_folders(package) for path in folder.glob(pattern))


@dataclass(frozen=True)
class Libraries:
    """The files that decide which functions the doubles have."""

    importing: list[Path]  # their imports are wanted
    looking: list[Path]  # they look functions up at run time
    looked_in: list[Path]  # in these, which are NVIDIA's own: everything that they export is wanted

    def all(self) -> list[Path]:
        return [*self.importing, *self.looking, *self.looked_in]


def stem_of(path: Path) -> str:
    return path.name.split(".so")[0]


def find_libraries() -> Libraries | None:
    """None: there is no framework for GPUs."""
    torch = files_in("torch", "lib/*.so*") if files_in("torch", "lib/libc10_cuda.so") else []
    extensions = files_in("vllm", "*.so") if torch else []
    onnxruntime = files_in("onnxruntime", "capi/libonnxruntime_providers_cuda.so")
    importing = [*torch, *extensions, *onnxruntime]
    beside = files_in("nvidia", "*/lib/*.so*")
    looking = files_in("jax_plugins", "xla_cuda*/xla_cuda_plugin.so")
    if any(stem_of(path) == "libcublas" for path in beside):
        looking += files_in("tensorflow", "libtensorflow_cc.so*")
    if not importing and not looking:
        return None
    stems = {double.stem for double in DOUBLES if looking or not double.looked_up}
    return Libraries(
        sorted(path for path in (*importing, *beside) if stem_of(path) not in stems),
        looking,
        [path for path in beside if looking and stem_of(path) in {*stems, "libcudart"}],
    )


def compiler() -> str:
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name
    raise BuildError("no C compiler was found (cc, gcc, clang or $CC): install gcc")


def fingerprint(files: Iterable[Path], cc: str) -> str:
    state = hashlib.sha256(f"{cc}\n".encode())
    for path in files:
        status = path.stat()
        state.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    for path in sorted(HERE.iterdir()):
        if path.suffix in {".o", ".py"}:
            state.update(path.read_bytes())
    return state.hexdigest()[:16]


def library_version(double: Double) -> int | None:
    """The number that the wheel's own library would answer; None leaves the object's default."""
    for header in files_in("nvidia", f"*/include/{double.version_header}"):
        parts = re.findall(double.version_pattern, header.read_text())
        if len(parts) == 3:
            major, minor, patch = (int(number) for _, number in parts)
            return major * 10000 + minor * 100 + patch
    return None


@dataclass
class End:
    """A signal that ends this script, by way of whatever has to be removed."""

    number: int = 0
    waits: bool = False

    def take(self, number: int, _: object) -> None:
        self.number = number
        if not self.waits:
            self.come()

    def come(self) -> None:
        self.waits = False
        if self.number:
            sys.exit(128 + self.number)


end = End()


def run_compiler(command: list[str]) -> None:
    """In a group of its own, since a compiler consists of several programs: all end with it."""
    end.waits = True  # until it is known which group that is
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        end.come()
        said, _ = running.communicate()
    except BaseException:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait()
        raise
    if running.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{said}")


def soname_of(double: Double, needed: set[str]) -> str | None:
    pattern = re.compile(re.escape(double.stem) + r"\.so\.\d+$")
    return next((name for name in sorted(needed) if pattern.match(name)), None)


def imported(double: Double, soname: str, imports: set[Import]) -> dict[str, str]:
    """The functions wanted of a library, each with the version that it is asked for under."""
    wanted = {entry.name: entry.version for entry in imports if entry.library == soname}
    version = next(iter(wanted.values()), "")
    for entry in imports:
        if double.prefix and not entry.library and re.match(double.prefix, entry.name):
            wanted.setdefault(entry.name, version)
    return wanted


def exported(library: Path) -> set[str]:
    """The functions of NVIDIA's interface that a library of theirs has."""
    return {name for name in read_symbols(library).defined if re.match(r"(cu|nccl)\w+$", name)}


def link_double(
    double: Double,
    soname: str,
    wanted: dict[str, str],
    version: int | None,
    cc: str,
    folder: Path,
) -> None:
    written_out = HERE / f"{double.stem}.o"
    written = read_symbols(written_out).defined
    stubs = folder / f"{double.stem}-stubs.c"
    lines = ["int simcublas_product(void *handle);\n"]
    for name in sorted(set(wanted) - written):
        if re.fullmatch(double.products, name):
            lines.append(f"int {name}(void *handle) {{ return simcublas_product(handle); }}\n")
        else:
            lines.append(f"int {name}(void);\nint {name}(void) {{ return 0; }}\n")
    if version:
        lines.append(f"const int {double.version_name} = {version};\n")
    stubs.write_text("".join(lines))
    own = ("simnccl_", "simcudnn_", "simcublas_", double.version_name)
    exported = sorted(set(wanted) | {name for name in written if not name.startswith(own)})
    versions = sorted(set(wanted.values())) or [""]
    if len(versions) > 1:
        raise BuildError(f"{soname} is imported under several versions: {', '.join(versions)}")
    script = folder / f"{double.stem}.map"
    script.write_text(
        f"{versions[0]} {{\nglobal:\n"
        + "".join(f"    {name};\n" for name in exported)
        + "local: *;\n};\n"
    )
    run_compiler(
        [
            *cc.split(),
            *("-std=gnu17", "-O2", "-fPIC", "-w", "-shared"),
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script,{script}",
            str(stubs),
            str(written_out),
            *("-o", str(folder / soname), "-ldl", "-lpthread"),
        ]
    )


def lacking(own: dict[str, set[str]], path: Path, symbols: Symbols) -> Iterator[str]:
    """What a framework's file imports and the simulated GPU's library lacks."""
    for soname, defined in own.items():
        for entry in symbols.imports:
            of_this = entry.library == soname or (
                not entry.library and soname in symbols.needed and re.match(OWN[soname], entry.name)
            )
            if of_this and entry.name not in defined:
                yield f"{entry.name} ({soname}, for {path.name})"


def link_all(libraries: Libraries, simgpu: Path, cc: str, folder: Path) -> None:
    own = {name: read_symbols(simgpu / name).defined for name in OWN}
    lacks: set[str] = set()
    imports: set[Import] = set()
    needed = {path.name for path in libraries.looked_in}
    for path in libraries.importing:
        try:
            symbols = read_symbols(path)
        except ElfError:
            continue
        imports.update(symbols.imports)
        lacks.update(lacking(own, path, symbols))
        needed.update(symbols.needed)
    names = [name for name in sorted(needed) if re.match(r"libcudart\.so\.\d+$", name)]
    for double in DOUBLES:
        soname = soname_of(double, needed)
        if soname is None or (double.looked_up and not libraries.looking):
            continue
        wanted = imported(double, soname, imports)
        symbol_version = next(iter(wanted.values()), "")
        for path in libraries.looked_in:
            if path.name == soname:
                wanted = dict.fromkeys(exported(path), symbol_version) | wanted
        link_double(double, soname, wanted, library_version(double), cc, folder)
        names.append(soname)
    (folder / "preload").write_text("\n".join(names) + "\n")
    (folder / "lacks").write_text(", ".join(sorted(lacks)))


def build(simgpu: Path, cache: Path, libraries: Libraries) -> list[Path]:
    """Makes the doubles if they are not there yet; returns what to preload."""
    cc = compiler()
    if not (simgpu / "libcuda.so.1").exists():
        raise BuildError(f"{simgpu} has no libcuda.so.1: build memshim first (cmake --build)")
    files = [*libraries.all(), *(simgpu / name for name in OWN)]
    result = cache / f"torch-{fingerprint(files, cc)}"
    if not result.exists():
        with (cache / "torch.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in cache.glob("torch.????????"):  # whoever made it was killed
                shutil.rmtree(left, ignore_errors=True)
            if not result.exists():
                folder = Path(tempfile.mkdtemp(prefix="torch.", dir=cache))
                try:
                    link_all(libraries, simgpu, cc, folder)
                    folder.rename(result)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
    if lacks := (result / "lacks").read_text():
        print(
            f"simgpu: the simulated GPU lacks functions that are imported: {lacks}", file=sys.stderr
        )
    names = (result / "preload").read_text().split()
    return [simgpu / name if name.startswith("libcudart") else result / name for name in names]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: build.py SIMGPU_DIR CACHE_DIR", file=sys.stderr)
        return 2
    libraries = find_libraries()
    if libraries is None:
        return 0
    try:
        for path in build(Path(arguments[0]).resolve(), Path(arguments[1]).resolve(), libraries):
            print(path)
    except (BuildError, OSError) as error:
        print(f"simgpu: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, end.take)
    sys.exit(main(sys.argv[1:]))
