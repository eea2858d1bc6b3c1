# SPDX-License-Identifier: Apache-2.0
# Spack's recipes are written so:
# ruff: noqa: F403, F405, ANN001
# mypy: ignore-errors
"""A recipe for Spack: packages/memshim/package.py of a repository of packages. `git` is to be given
the address of your clone."""

from spack.package import *


class Memshim(CMakePackage):
    """A memory pool, a hard cap and a post-mortem for training on CUDA devices."""

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")
    depends_on("cuda@12.4:", type="build")
    depends_on("uthash", type="build")
    depends_on("libunwind", type="build")
    depends_on("elfutils", type=("build", "run"))
    depends_on("zlib-api")

    generator("ninja")

    def cmake_args(self) -> list[str]:
        cuda = self.spec["cuda"].prefix.include
        return ["-DMEMSHIM_TESTS=OFF", f"-DMEMSHIM_CUDA_INCLUDE={cuda}"]

    def setup_run_environment(self, env) -> None:
        """LD_PRELOAD=libmemshim.so finds the library by its bare name."""
        env.prepend_path("LD_LIBRARY_PATH", self.prefix.lib)
