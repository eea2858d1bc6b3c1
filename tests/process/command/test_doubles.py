# SPDX-License-Identifier: Apache-2.0
"""Doubles of a framework's libraries: what the simulated GPU lacks for one is said all at once; and
what they must answer is called, as a framework that looks functions up at run time would."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

from machine import SIMGPU, ProcessTest, Result, run

BUILD = SIMGPU / "doubles" / "build.py"


# How many nodes a captured call leaves in a graph. XLA takes none for an error.
NODES = """
def nodes(call):
    stream, graph, count = c_void_p(), c_void_p(), c_size_t()
    assert cuda.cuStreamCreate(byref(stream), 1) == 0
    call(stream)  # where nothing captures, nothing is left
    assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
    call(stream)
    assert cuda.cuStreamEndCapture(stream, byref(graph)) == 0
    assert cuda.cuGraphGetNodes(graph, None, byref(count)) == 0
    return count.value
"""


class Lacking(ProcessTest):
    """A framework that imports what a newer driver has."""

    def make(self, *functions: str) -> None:
        libraries = self.folder / "torch" / "lib"
        libraries.mkdir(parents=True, exist_ok=True)
        (self.folder / "torch" / "__init__.py").touch()
        source = self.folder / "framework.c"
        source.write_text(
            "".join(
                f"void {name}(void); void u_{name}(void) {{ {name}(); }}\n" for name in functions
            )
        )
        made: list[str | Path] = ["-o", libraries / "libc10_cuda.so", source, "-Wl,--no-as-needed"]
        beside = [SIMGPU / "libcuda.so.1", SIMGPU / "libnvidia-ml.so.1"]
        subprocess.run(["cc", "-shared", "-fPIC", *made, *beside], check=True)

    def extend(self, *functions: str) -> None:
        """cuBLAS, from which PyTorch imports the first one, and vLLM the others by name alone."""
        cublas = self.folder / "libcublas.so.13"
        source = self.folder / "library.c"
        script = self.folder / "library.map"
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in functions))
        script.write_text("libcublas.so.13 { global: *; };\n")
        made: list[str | Path] = ["cc", "-shared", "-fPIC", source, "-o"]
        names = ["-Wl,-soname,libcublas.so.13", f"-Wl,--version-script,{script}"]
        subprocess.run([*made, cublas, *names], check=True)
        (self.folder / "vllm").mkdir()
        (self.folder / "vllm" / "__init__.py").touch()
        calls = [f"void {name}(void); void u_{name}(void) {{ {name}(); }}\n" for name in functions]
        source.write_text(calls[0])
        subprocess.run([*made, self.folder / "torch" / "lib" / "libtorch.so", cublas], check=True)
        source.write_text("".join(calls[1:]))
        subprocess.run([*made, self.folder / "vllm" / "_C.abi3.so"], check=True)

    def build(self) -> Result:
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        return run([sys.executable, BUILD, SIMGPU, cache], PYTHONPATH=self.folder).check()

    def test_all_are_named_in_one_line(self) -> None:
        self.make("cuMemAlloc_v2", "cuNewThing", "cuOtherThing_v3", "nvmlNewThing", "own_function")
        for _ in ("made", "kept"):
            (said,) = self.build().stderr.splitlines()
            for name in ("cuNewThing", "cuOtherThing_v3", "nvmlNewThing"):
                self.assertIn(f"{name} (", said)
            self.assertNotIn("cuMemAlloc_v2", said)
            self.assertNotIn("own_function", said)

    def test_nothing_is_said_where_nothing_lacks(self) -> None:
        self.make("cuMemAlloc_v2", "nvmlInit_v2")
        self.assertEqual(self.build().stderr, "")

    def test_what_vllms_extensions_import(self) -> None:
        self.make("cuMemAlloc_v2")
        self.extend("cublasCreate_v2", "cublasHgemm")
        doubles = [path for path in self.build().stdout.split() if "libcublas.so" in path]
        self.assertEqual(len(doubles), 1)
        has = run(["nm", "-D", "--defined-only", doubles[0]]).check().stdout
        self.assertIn(" T cublasHgemm@@libcublas.so.13\n", has)


class LookedUp(ProcessTest):
    """JAX's plugin imports nothing: a double has what the library beside it exports."""

    PLUGIN = "jax_plugins/xla_cuda12/xla_cuda_plugin.so"

    def setUp(self) -> None:
        super().setUp()
        (self.folder / self.PLUGIN).parent.mkdir(parents=True)
        (self.folder / self.PLUGIN).touch()

    def beside(self, name: str, *functions: str) -> None:
        """A library of NVIDIA's, as its wheel brings it."""
        path = self.folder / "nvidia" / name.split(".")[0][3:] / "lib" / name
        path.parent.mkdir(parents=True)
        source = self.folder / "library.c"
        source.write_text("".join(f"void {function}(void) {{}}\n" for function in functions))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)

    def double(self, name: str) -> Path:
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        made = run([sys.executable, BUILD, SIMGPU, cache], PYTHONPATH=self.folder).check()
        (path,) = (line for line in made.stdout.split() if Path(line).name == name)
        return Path(path)

    def call(self, name: str, source: str) -> None:
        """Runs Python that calls the double as `library`, beside the simulated driver."""
        before = f"""
            from ctypes import *
            cuda = CDLL("libcuda.so.1", RTLD_GLOBAL)
            device, context = c_int(), c_void_p()
            assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(byref(device), 0) == 0
            assert cuda.cuDevicePrimaryCtxRetain(byref(context), device) == 0
            assert cuda.cuCtxSetCurrent(context) == 0
            library, handle = CDLL({str(self.double(name))!r}), c_void_p()
            """
        text = textwrap.dedent(before) + textwrap.dedent(source)
        run([sys.executable, "-c", text]).check()

    def test_batched_and_double_precision_cublas(self) -> None:
        solvers = ("getrs", "geqrf", "gels")
        functions = [f"cublas{t}{name}Batched" for t in "SDCZ" for name in (*solvers, "gemm")]
        dots = ("cublasSdot_v2", "cublasDdot_v2", "cublasZdotc_v2")
        self.beside("libcublas.so.12", "cublasCreate_v2", "cublasDgemm_v2", *dots, *functions)
        self.call(
            "libcublas.so.12",
            """
            assert library.cublasCreate_v2(byref(handle)) == 0 and handle.value
            for letter in "SDCZ":
                # Whether an argument was bad is an int of the host's; -1 would be the first.
                for name, before in (("getrs", 8), ("geqrf", 5), ("gels", 8)):
                    bad = c_int(-1)
                    function = getattr(library, f"cublas{letter}{name}Batched")
                    after = [c_void_p()] if name == "gels" else []
                    assert function(handle, *[c_void_p()] * before, byref(bad), *after, 3) == 0
                    assert bad.value == 0, function
                assert getattr(library, f"cublas{letter}gemmBatched")(handle) == 0
            assert library.cublasDgemm_v2(handle) == 0
            for name, count in (("Sdot", 1), ("Ddot", 2), ("Zdotc", 4)):
                result = (c_float * 5)(*[7] * 5)
                vector = c_void_p(), 1
                dot = getattr(library, f"cublas{name}_v2")
                assert dot(handle, 4, *vector, *vector, result) == 0
                assert list(result) == [0] * count + [7] * (5 - count), name
            """,
        )

    def test_a_product_is_queued(self) -> None:
        """By cuBLAS on its handle's stream, and by cuBLASLt on the one that it is given."""
        products = ("cublasGemmEx", "cublasSgemm_v2", "cublasHgemmStridedBatched_64")
        self.beside("libcublas.so.12", "cublasCreate_v2", "cublasSetStream_v2", *products)
        self.call(
            "libcublas.so.12",
            f"""{NODES}
assert library.cublasCreate_v2(byref(handle)) == 0
def multiply(stream):
    assert library.cublasSetStream_v2(handle, stream) == 0
    for name in {products!r}:
        assert getattr(library, name)(handle) == 0
assert nodes(multiply) == 3
""",
        )
        self.beside("libcublasLt.so.12", "cublasLtMatmul")
        self.call(
            "libcublasLt.so.12",
            f"""{NODES}
nothing = [c_void_p()] * 15
assert nodes(lambda stream: library.cublasLtMatmul(*nothing, stream)) == 1
""",
        )

    def test_cusolver_of_cuda_12(self) -> None:
        sizes = [f"cusolverDn{t}{name}_bufferSize" for t in "SDCZ" for name in ("potrf", "gesvd")]
        self.beside("libcusolver.so.11", "cusolverDnCreate", "cusolverDnDpotrf", *sizes)
        self.call(
            "libcusolver.so.11",
            """
            assert library.cusolverDnCreate(byref(handle)) == 0 and handle.value
            stream = c_void_p()
            assert library.cusolverDnSetStream(handle, c_void_p(64)) == 0
            assert library.cusolverDnGetStream(handle, byref(stream)) == 0 and stream.value == 64
            for letter in "SDCZ":
                wanted = c_int(-1)
                potrf = getattr(library, f"cusolverDn{letter}potrf_bufferSize")
                assert potrf(handle, 0, 100, c_void_p(), 100, byref(wanted)) == 0
                assert wanted.value > 0
                wanted = c_int(-1)
                gesvd = getattr(library, f"cusolverDn{letter}gesvd_bufferSize")
                assert gesvd(handle, 100, 50, byref(wanted)) == 0 and wanted.value > 0
            assert library.cusolverDnDpotrf() == 0
            assert library.cusolverDnDestroy(handle) == 0
            """,
        )

    def test_sizes_of_cusolvers_workspaces(self) -> None:
        self.beside("libcusolver.so.12", "cusolverDnCreate")
        self.call(
            "libcusolver.so.12",
            """
            p, vl = c_void_p(), c_float(0.5)
            def size(name, *arguments):
                wanted = c_int(-1)
                function = getattr(library, f"cusolverDn{name}_bufferSize")
                given = [byref(wanted) if a is None else a for a in arguments]
                assert function(handle, *given) == 0
                return wanted.value
            for letter, other in ("S", "sy"), ("D", "sy"), ("C", "he"), ("Z", "he"):
                for name in (f"{other}evd", f"{other}evj"):
                    assert size(letter + name, 0, 0, 70, p, 70, p, None, p) == 70
                range_of = (0, 0, 0, 70, p, 70, vl, vl, 1, 2, p, p, None)
                assert size(f"{letter}{other}evdx", *range_of) == 70
                assert size(f"{letter}gesvdj", 0, 0, 90, 70, p, 90, p, p, 90, p, 70, None, p) == 70
            assert size("Sorgqr", 90, 70, 50, p, 90, p, None) == 70
            assert size("Cunmqr", 0, 0, 90, 70, 50, p, 90, p, p, 90, None) == 70

            device, host = c_size_t(-1), c_size_t(-1)
            sizes = byref(device), byref(host)
            before = p, 0, 0, c_int64(70), 0, p, c_int64(70), 0, p, 0
            assert library.cusolverDnXsyevBatched_bufferSize(handle, *before, *sizes, 8) == 0
            assert (device.value, host.value) == (70 * 16, 0)
            """,
        )

    def test_version_of_cupti(self) -> None:
        self.beside("libcupti.so.12", "cuptiGetVersion", "cuptiActivityEnable")
        self.call(
            "libcupti.so.12",
            """
            version = c_uint32()
            assert library.cuptiGetVersion(byref(version)) == 0 and version.value > 0
            assert library.cuptiGetVersion(None) == 1
            assert library.cuptiActivityEnable() == 0
            """,
        )

    def test_a_layout_of_cublaslt_remembers(self) -> None:
        functions = ("Create", "SetAttribute", "GetAttribute")
        names = [f"cublasLtMatrixLayout{name}" for name in functions]
        self.beside("libcublasLt.so.12", "cublasLtCreate", *names)
        self.call(
            "libcublasLt.so.12",
            """
            assert library.cublasLtMatrixLayoutCreate(
                byref(handle), 0, c_uint64(640), c_uint64(480), c_int64(641)) == 0
            batches, rows, written = c_int32(12), c_uint64(), c_size_t()
            assert library.cublasLtMatrixLayoutSetAttribute(handle, 5, byref(batches), 4) == 0
            batches.value = 0
            for which, value in (5, batches), (2, rows):
                assert library.cublasLtMatrixLayoutGetAttribute(
                    handle, which, byref(value), sizeof(value), byref(written)) == 0
                assert written.value == sizeof(value)
            assert (batches.value, rows.value) == (12, 640)
            """,
        )


if __name__ == "__main__":
    unittest.main()
