# SPDX-License-Identifier: Apache-2.0
"""Every allocation's call site, from each road that hands memory out, into the trace."""

from __future__ import annotations

import unittest
from pathlib import Path

import sites
from machine import BUILD, MIB, PROGRAMS, ProcessTest, process_folders, program, remove_output, run
from sites import BLOCK, CHARGE, CHUNK, HOST, Trace

JOB = program("sites_job")
KIB = 1024
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
LOADER = next((path for path in LOADERS if Path(path).exists()), None)


class SitesTest(ProcessTest):
    """Runs of the program with known places, and what their traces say."""

    def trace(self) -> Trace:
        (folder,) = process_folders(self.output)
        return sites.read_trace(program("trace_sites"), folder / "trace.mshm")

    def run_job(self, *arguments: object, **settings: object) -> Trace:
        self.said = self.run_under_shim(JOB, *map(str, arguments), **settings).check()
        return self.trace()

    def by_chain(self, trace: Trace, *kinds: str) -> dict[tuple[str, ...], tuple[int, int]]:
        """Sums of allocations and bytes by the program's own functions, innermost first."""
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        own = str(JOB)
        for number, (count, size) in trace.sums(*kinds).items():
            site = trace.sites[number]
            chain = tuple(
                name
                for name, (_, module) in zip(site.functions, site.native, strict=True)
                if module == own and not name.startswith("_")
            )
            before = found.get(chain, (0, 0))
            found[chain] = (before[0] + count, before[1] + size)
        return found


class Places(SitesTest):
    """A stack for each place, and right sums for each stack."""

    KNOWN = {
        ("allocate", "alpha", "known", "main"): (3, 3 * 64 * KIB),
        ("allocate", "beta", "known", "main"): (5, 5 * 128 * KIB),
        ("allocate", "gamma_", "known", "main"): (7, 7 * 256 * KIB),
        ("allocate", "alpha", "worker"): (6, 6 * 64 * KIB),
    }

    def test_known_places(self) -> None:
        trace = self.run_job("known")
        self.assertEqual(self.by_chain(trace, BLOCK), self.KNOWN)
        self.assertEqual(len(trace.sums(BLOCK)), 4)
        self.assertTrue(all(site.flags == 0 for site in trace.sites.values()))

    @unittest.skipUnless(LOADER, "where the dynamic loader lies is not known")
    def test_program_that_is_an_argument_of_the_loader(self) -> None:
        """Its places are its own: the file that the kernel started is the loader."""
        self.run_under_shim(str(LOADER), JOB, "known").check()
        self.assertEqual(self.by_chain(self.trace(), BLOCK), self.KNOWN)

    def test_nothing_of_memshim_itself(self) -> None:
        trace = self.run_job("known")
        for site in trace.sites.values():
            self.assertNotIn(str(BUILD / "libmemshim.so"), [module for _, module in site.native])

    def test_without_the_pool(self) -> None:
        self.assertEqual(
            self.by_chain(self.run_job("known", MEMSHIM_POOL="off"), BLOCK), self.KNOWN
        )

    def test_every_kind_of_memory(self) -> None:
        for pool in ("on", "off"):
            with self.subTest(pool=pool):
                remove_output(self.output)
                trace = self.run_job("kinds", MEMSHIM_POOL=pool)
                chains = self.by_chain(trace, BLOCK, HOST)
                for place in ("pitch", "managed", "pinned", "ordered", "from_pool"):
                    self.assertIn((place, "kinds", "main"), chains)
                charged = {
                    number: sums for number, sums in trace.sums(CHARGE, CHUNK).items() if number
                }
                innermost = {trace.sites[number].functions[0] for number in charged}
                self.assertLessEqual({"array", "chunk", "managed"}, innermost)
                ((requested, number),) = trace.ooms
                self.assertEqual(requested, 1000 << 30)
                self.assertEqual(trace.sites[number].functions[:2], ["refused", "kinds"])

    def test_through_the_runtime(self) -> None:
        for job in ("runtime_dynamic_job", "runtime_static_job"):
            with self.subTest(job=job):
                remove_output(self.output)
                self.run_under_shim(program(job)).check()
                trace = self.trace()
                sums = trace.sums(BLOCK, HOST)
                self.assertTrue(sums)
                for number in sums:
                    modules = {module for _, module in trace.sites[number].native}
                    self.assertIn(str(program(job)), modules)


class Libraries(SitesTest):
    """Code that comes and goes."""

    def test_libraries_in_one_place(self) -> None:
        first, second = PROGRAMS / "sites_plugin.so", PROGRAMS / "sites_plugin_again.so"
        trace = self.run_job("libraries", first, second, first)
        places = self.said.stdout.split()
        self.assertEqual(len(set(places)), 1, "the loader did not reuse the place")
        found = {
            size: (trace.sites[number].functions[0], trace.sites[number].native[0][1])
            for number, (_, size) in trace.sums(BLOCK).items()
        }
        self.assertEqual(
            found,
            {
                1 * MIB: ("plugin_allocate", str(first)),
                2 * MIB: ("plugin_allocate", str(second)),
                3 * MIB: ("plugin_allocate", str(first)),
            },
        )


    def test_a_relative_name(self) -> None:
        """The program leaves the folder from which it loaded the library."""
        plugin = PROGRAMS / "sites_plugin.so"
        trace = self.run_job("moved", f"./{plugin.name}", cwd=PROGRAMS)
        (number,) = trace.sums(BLOCK)
        site = trace.sites[number]
        self.assertEqual((site.functions[0], site.native[0][1]), ("plugin_allocate", str(plugin)))


class Settings(SitesTest):
    """What is recorded, and how deep."""

    def test_off_records_nothing(self) -> None:
        trace = self.run_job("known", MEMSHIM_STACKS="off")
        self.assertEqual(trace.sites, {})
        self.assertEqual(set(trace.sums(BLOCK)), {0})

    def test_native_and_python(self) -> None:
        self.assertEqual(
            self.by_chain(self.run_job("known", MEMSHIM_STACKS="native"), BLOCK), Places.KNOWN
        )
        remove_output(self.output)
        self.assertEqual(self.run_job("known", MEMSHIM_STACKS="python").sites, {})

    def test_depth(self) -> None:
        trace = self.run_job("known", MEMSHIM_STACK_DEPTH="2")
        self.assertEqual(
            self.by_chain(trace, BLOCK),
            {
                ("allocate", "alpha"): (9, 9 * 64 * KIB),
                ("allocate", "beta"): (5, 5 * 128 * KIB),
                ("allocate", "gamma_"): (7, 7 * 256 * KIB),
            },
        )
        for site in trace.sites.values():
            self.assertEqual((site.flags, len(site.native)), (sites.NATIVE_CUT, 2))

    def test_no_trace(self) -> None:
        self.run_under_shim(JOB, "known", MEMSHIM_TRACE="off").check()
        self.assertEqual(process_folders(self.output), [])


class Sampling(SitesTest):
    """One allocation in so many bytes."""

    COUNT = 20000

    def test_estimate_of_all_bytes(self) -> None:
        trace = self.run_job("sizes", self.COUNT, MEMSHIM_SAMPLE_BYTES="1MiB")
        truth = int(self.said.stdout)
        self.assertEqual(trace.sampling, MIB)
        self.assertEqual(sum(size for kind, size, _ in trace.allocations if kind == BLOCK), truth)
        estimate, error = sites.estimate(trace, BLOCK)
        self.assertLess(error, 0.1 * truth)
        self.assertLess(abs(estimate - truth), 5 * error, f"{estimate} of {truth}, {error}")
        (passed_over,) = (
            number for number, site in trace.sites.items() if site.flags & sites.SAMPLED_OUT
        )
        sums = trace.sums(BLOCK)
        self.assertGreater(sums[passed_over][0], self.COUNT // 2)
        self.assertGreater(len(sums), 1)


class Bounds(SitesTest):
    """What sites cost."""

    STACKS = 100_000

    def grown_kib(self, stacks: str) -> int:
        self.said = run(
            [JOB, "distinct", str(self.STACKS), "20"],
            shim=True,
            MEMSHIM_OUTPUT=self.output / stacks,
            MEMSHIM_STACKS=stacks,
        ).check()
        return int(self.said.stdout)

    def test_a_hundred_thousand_stacks(self) -> None:
        taken = self.grown_kib("full") - self.grown_kib("off")
        self.assertLess(taken, 64 * KIB)
        (folder,) = process_folders(self.output / "full")
        trace = sites.read_trace(program("trace_sites"), folder / "trace.mshm")
        self.assertGreaterEqual(len(trace.sites), self.STACKS)
        self.assertNotIn(0, trace.sums(BLOCK))


if __name__ == "__main__":
    unittest.main()
