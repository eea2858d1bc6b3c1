# SPDX-License-Identifier: Apache-2.0
"""Part 2: the test programs on the real driver, contents looked at by kernels, and everything that
the simulated GPU assumes of the real one."""

from __future__ import annotations

import re
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from world import (
    MIB,
    ROOT,
    Fail,
    Part,
    Skip,
    World,
    context_bytes,
    expect,
    main,
    only_device,
    package_folders,
)

sys.path.append(str(ROOT / "tests" / "process"))  # it has files of the same names
import attributes  # noqa: E402
import parity  # noqa: E402

# Programs whose account has to be the same with memshim and without.
SAME = (
    ("driver linked", "driver_linked_job", ()),
    ("driver resolved", "driver_resolved_job", ()),
    ("streams, linked", "streams_linked_job", ("1", "100")),
    ("streams, resolved", "streams_resolved_job", ("2", "100")),
    ("life: plain", "life_job", ("plain",)),
    ("life: fork afterwards", "life_job", ("fork-after",)),
    ("life: fork before", "life_job", ("fork-before",)),
    ("life: fork while threads allocate", "life_job", ("fork-busy",)),
    ("life: exec", "life_job", ("exec",)),
    ("life: libraries opened and closed", "life_job", ("libraries",)),
    ("life: freed in an exit handler", "life_job", ("exit-handler",)),
    *(
        (f"registered as by {library}", "registration_job", (library,))
        for library in ("ucx", "nixl", "gdrcopy", "peermem", "nvshmem", "mooncake")
    ),
)
POINTER = re.compile(r"0x[0-9a-f]+")
REUSE_LIVE_MIB = 192
OLDER = "cuCtxRecordEvent"  # of CUDA 12.5; memshim serves drivers before that, too
# So long a call may take, beside contexts that are made and destroyed.
SILENT_S = 2.0
ANSWERS_LEFT_S = 4.0
REUSE_S, SIMULATED_REUSE_S = 5.0, 1.0


def account(text: str) -> str:
    return POINTER.sub("POINTER", text)


def compare(world: World, program: Path, *arguments: str, **settings: Any) -> None:
    alone = world.run([program, *arguments], **settings)
    alone.check()
    under = world.run([program, *arguments], shim=True, **settings)
    under.check()
    if account(alone.stdout) == account(under.stdout):
        return
    for one, other in zip(alone.stdout.splitlines(), under.stdout.splitlines(), strict=False):
        if account(one) != account(other):
            raise Fail(f"without memshim '{one[:120]}', with it '{other[:120]}'")
    raise Fail("one of the accounts is shorter")


def same(world: World, name: str, arguments: Sequence[str]) -> None:
    compare(world, world.program(name), *arguments)


def dynamic_runtime(world: World, version: int) -> None:
    program = world.program(f"runtime_dynamic{'12' if version == 12 else ''}_job")
    if world.simulated:
        compare(world, program)
        return
    name = f"libcudart.so.{version}"
    for folder in package_folders(world):
        if (Path(folder) / name).exists():
            compare(world, program, LD_LIBRARY_PATH=f"{world.libraries}:{folder}".strip(":"))
            return
    raise Skip(f"no {name} here")


def static_runtime(world: World) -> None:
    """nvcc's default. Built here, with the toolkit's own."""
    if world.simulated:
        compare(world, world.program("runtime_static_job"))
        return
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        raise Skip("no nvcc here")
    target = world.work / "runtime_static_job"
    source = ROOT / "tests" / "process" / "pool" / "runtime_job.c"
    world.run([nvcc, "-cudart", "static", "-o", target, source], timeout_s=60).check()
    compare(world, target)


def reuse(
    part: Part,
    name: str,
    seconds: float,
    shim: bool,
    needs_spill: bool = False,
    without: str = "",
    **settings: Any,
) -> None:
    """`without`: a function that the driver is taken not to have."""
    with part.case(name):
        part.world.need(seconds + 5)
        world = part.world
        output = world.output("reuse")
        result = world.run(
            [
                world.program("gpu_reuse"),
                "7",
                f"{seconds:g}",
                str(REUSE_LIVE_MIB),
                *([without] if without else []),
            ],
            shim=shim,
            timeout_s=seconds + 30,
            MEMSHIM_OUTPUT=output,
            SIMGPU_DELAY_US="0-100",
            **settings,
        )
        found = result.lines("reuse")
        if found and found[0]["wrong_bytes"]:
            raise Fail(f"{found[0]['wrong_bytes']} bytes were not as written")
        result.check()
        expect(found[0]["blocks"] > 0, f"no block in {seconds:g} s")
        if shim:
            device = only_device(output)
            cap = device["cap_bytes"]
            charged = device["peak_charged_bytes"]
            expect(charged <= cap, f"{charged} bytes were charged under a cap of {cap}")
            if needs_spill:
                expect(device["spill"]["spilled_bytes"] > 0, "nothing was spilled")
        part.figure(f"semantics/{name}", found[0]["blocks"], "blocks")


def assumptions(part: Part) -> None:
    """What the driver does otherwise than the simulated one fails here, by its name."""
    world = part.world
    with part.case("assumptions: all were tried"):
        # Some of them are about handles that are gone, where the simulated GPU would stop.
        result = world.run([world.program("gpu_assumptions")], timeout_s=60, SIMGPU_STRICT=0)
        rows = [row for row in result.lines() if "assumption" in row]
        for row in result.lines():
            if "answer" in row:
                part.answer(row["answer"], row["saw"], row["value"], row["unit"])
        for row in rows:
            with part.case(f"assumption: {row['assumption']}"):
                if row["holds"] is None:
                    raise Skip(row["saw"])
                expect(row["holds"], row["saw"])
        result.check()
        part.figure("semantics/assumptions", len(rows))


def few(lines: list[str]) -> str:
    return f"{len(lines)}: " + "; ".join(lines[:4])


def answers(part: Part) -> None:
    """Each function in every state of context and capture. `parity.csv` is left with the results:
    what a card answers there is what the simulated GPU has to. Some calls with wrong arguments end
    the program, and some never come back, which is told like an end."""
    world = part.world
    cut: set[bool] = set()  # the sides that time did not allow to be asked everything
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def run_job(shim: bool) -> parity.Run:
        def job(arguments: tuple[str, ...]) -> tuple[int, str]:
            if world.left_s() < ANSWERS_LEFT_S:
                cut.add(shim)
                return 0, ""
            result = world.run_until_silent(
                [world.program("parity_job"), *arguments],
                SILENT_S,
                shim=shim,
                SIMGPU_DEVICES=2,
                MEMSHIM_TRACE="off",
            )
            return result.status, result.stdout

        return job

    with ThreadPoolExecutor(2 if world.at_once > 1 else 1) as threads:
        alone, under = (
            threads.submit(parity.ask, run_job(shim), max(1, world.at_once // 2))
            for shim in (False, True)
        )
    with part.case("answers in every state: the driver's"):
        driver = alone.result()
        parity.write_table(driver, world.out / "parity.csv")
        known = {case: answer for case, answer in parity.read_table().items() if case in driver}
        others = parity.differences(known, driver)
        part.figure("semantics/answers", len(driver))
        part.figure("semantics/answers that the simulated GPU gives otherwise", len(others))
        wrong = parity.disproven(driver)
        expect(not wrong, few(wrong))
        if False in cut:
            raise Skip(f"no time left, after {len(driver)} answers, of which none is disproven")
    with part.case("answers in every state: with memshim the driver's"):
        driver, shim = alone.result(), under.result()
        if cut:
            driver = {case: answer for case, answer in driver.items() if case in shim}
            shim = {case: answer for case, answer in shim.items() if case in driver}
        lines = parity.differences(parity.with_memshim(driver), shim)
        expect(not lines, few(lines))
        if cut:
            raise Skip(f"no time left, after {len(shim)} answers, all of them the driver's")


def questions(part: Part) -> None:
    """Memory of every road, asked about itself. `attributes.csv` is left with the results, what the
    card's driver answers of its own, and `attributes-memshim.csv`, what memshim does."""
    world = part.world
    said = {}
    for shim, name in ((False, "attributes.csv"), (True, "attributes-memshim.csv")):
        with part.case(f"questions about memory: {'with memshim' if shim else 'the driver'}"):
            text = "".join(
                world.run([world.program("attributes_job"), *about], shim=shim).check().stdout
                for about in attributes.ABOUT
            )
            (world.out / name).write_text(text)
            said[shim] = attributes.read(text)
    with part.case("questions about memory: answered as by the driver"):
        if len(said) < 2:
            raise Skip("not all answers are known")
        lines = attributes.differences(said[False], said[True])
        expect(not lines, "; ".join(lines))


def every_reuse(part: Part) -> None:
    """Side by side: what counts is contents, and the more load the better."""
    world = part.world
    others = 0
    with part.case("room for the context is known"):
        others = context_bytes(world)
    seconds = SIMULATED_REUSE_S if world.simulated else REUSE_S
    tries = [
        lambda: reuse(part, "contents after every reuse, the driver alone", seconds, False),
        lambda: reuse(part, "contents after every reuse", seconds, True),
        lambda: reuse(
            part, f"contents after every reuse, without {OLDER}", seconds, True, without=OLDER
        ),
    ]
    if others:
        enough = others + (REUSE_LIVE_MIB + 112) * MIB
        short = others + int(0.8 * REUSE_LIVE_MIB) * MIB
        tries += [
            lambda: reuse(
                part,
                "contents after every reuse, memory short",
                seconds,
                True,
                MEMSHIM_LIMIT=enough,
            ),
            lambda: reuse(
                part,
                "contents after every reuse, at 0.8 x need, spilling",
                seconds,
                True,
                needs_spill=True,
                MEMSHIM_LIMIT=short,
                MEMSHIM_SPILL="auto",
            ),
        ]
    part.side_by_side(tries)


def same_accounts(part: Part) -> None:
    world = part.world

    def case(name: str, job: Callable[[], None]) -> Callable[[], None]:
        def tried() -> None:
            with part.case(f"same account: {name}"):
                job()

        return tried

    # These look at what all of the device has free.
    case("runtime, static", partial(static_runtime, world))()
    for version in (13, 12):
        case(f"runtime {version}, dynamic", partial(dynamic_runtime, world, version))()
    part.side_by_side(
        [case(name, partial(same, world, program, arguments)) for name, program, arguments in SAME]
    )


def run(part: Part) -> None:
    """What is cheap and tells most comes first. Assumptions about free memory want the device for
    themselves."""
    every_reuse(part)
    assumptions(part)
    same_accounts(part)
    questions(part)
    answers(part)


if __name__ == "__main__":
    main(run)
