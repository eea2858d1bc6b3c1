# SPDX-License-Identifier: Apache-2.0
"""Part 3: PyTorch computes the same with memshim and without, at ample and at scarce memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs import FULL, NATIVE, TENSOR, Server, Trained, servers, train
from world import GIB, MIB, Fail, Part, Skip, expect, main, reports

# Shapes that leave PyTorch holes. On the simulated GPU a step is all CPU time.
JOB = ("--vary", "--deterministic", "--checkpoint", "--each")
REAL = ("--steps", 24, "--warm-up", 1, "--batch", 16, "--length", 512, "--width", 768)
SMALL = ("--steps", 5, "--warm-up", 1, "--batch", 4, "--length", 256, "--width", 256)
TIGHT = 1.02
SLACK_BYTES = 16 * MIB  # chunks that hold a live byte each, and no more
FEATURE_S = 60.0
RECOVERY_LIMIT = 3 * GIB
# Of features.py, in the order in which time is spent on them.
FEATURES = (
    "graph",
    "graphed-callables",
    "side-streams",
    "loader",
    "mem-pool",
    "snapshot",
    "one-rank",
    "multiprocessing",
    "reduce-overhead",
    "compile",
)
# Those that PyTorch's cudaMallocAsync backend, on which tensor mode stands, lacks.
NOT_IN_TENSOR_MODE = (
    "graphed-callables",
    "snapshot",
    "mem-pool",
    "multiprocessing",
    "reduce-overhead",
)
# On the simulated GPU they want compilers or kernels.
NEED_KERNELS = ("compile", "reduce-overhead")
WAY_OUT = "MEMSHIM_POOL=off"
# PyTorch's own, in a tree of its source; packages leave them out.
OWN_TESTS = "test/test_cuda.py"
OWN_TESTS_S = 60.0


def same(reference: Trained, other: Trained) -> None:
    for step, (one, two) in enumerate(zip(reference.losses, other.losses, strict=True), 1):
        if one != two:
            raise Fail(
                f"step {step}: {float.fromhex(one):.17g} without memshim, "
                f"{float.fromhex(two):.17g} with it"
            )


def losses(part: Part, made: dict[str, Server]) -> None:
    job = (*JOB, *(SMALL if part.world.simulated else REAL))
    found: list[Trained] = []
    with part.case("the job is deterministic without memshim"):
        part.world.need(10)
        found += [train(made[NATIVE.name], *job), train(made[NATIVE.name], *job)]
        # What no kernel writes is what lay there before.
        if not part.world.simulated:
            same(*found[:2])
    if len(found) < 2:
        return
    part.figure("torch/peak live", found[0].live_bytes, "bytes")
    for configuration in (FULL, TENSOR):
        server = made[configuration.name]
        ample: list[Trained] = []
        with part.case(f"losses: {configuration.name}, ample memory"):
            part.world.need(5)
            ample.append(train(server, *job))
            part.needs_kernels()
            same(found[0], ample[0])
        if not ample:
            continue
        with part.case(f"losses: {configuration.name}, a limit just above live"):
            part.world.need(5)
            limit = int(ample[0].live_bytes * TIGHT) + ample[0].others_bytes + SLACK_BYTES
            tight = train(server, *job, MEMSHIM_LIMIT=limit)
            calls = tight.device["driver_calls"]
            part.figure(
                f"torch/{configuration.name}, chunks moved at {TIGHT} x live",
                max(0, calls["map"] - calls["create"]),
            )
            part.needs_kernels()
            same(found[0], tight)


def digest(server: Server, name: str) -> str:
    settings: dict[str, object] = {}
    if server.configuration.shim:
        settings["MEMSHIM_OUTPUT"] = server.world.output(name)
    result = server.run("features", (name,), FEATURE_S, **settings)
    if result.status != 0 and name == "multiprocessing" and WAY_OUT in result.stderr:
        raise Skip(f"memory of the pool is not shared, and the way out is named: {WAY_OUT}")
    result.check()
    return str(result.lines("feature")[0]["digest"])


def recovered(part: Part, server: Server) -> None:
    """Under a limit: refused, said, and gone on."""
    with part.case("out of memory and recovery, in the report, too"):
        part.world.need(5)
        output = part.world.output("recovery")
        result = server.run(
            "features",
            ("recovery",),
            FEATURE_S,
            MEMSHIM_LIMIT=RECOVERY_LIMIT,
            MEMSHIM_OUTPUT=output,
        ).check()
        expect(bool(result.lines("feature")), result.last_words())
        (report,) = reports(output)
        events = report["oom_events"]
        expect(bool(events), "the report knows of no refusal")
        expect(all(event["recovered"] for event in events), "one is told as not recovered")
        device = report["devices"][0]
        expect(device["peak_charged_bytes"] <= device["cap_bytes"], "more was charged than the cap")


def feature(part: Part, made: dict[str, Server], name: str) -> None:
    """The three worlds at once: what is compared are results, not times."""
    wanted = [NATIVE, FULL] + ([] if name in NOT_IN_TENSOR_MODE else [TENSOR])
    found: dict[str, str] = {}
    problems: dict[str, Exception] = {}

    def one(who: str) -> None:
        try:
            found[who] = digest(made[who], name)
        except (Fail, Skip, ValueError, OSError) as problem:
            problems[who] = problem

    with ThreadPoolExecutor(len(wanted)) as threads:
        list(threads.map(one, [configuration.name for configuration in wanted]))
    for configuration in wanted[1:]:
        with part.case(f"{name}: {configuration.name}"):
            if NATIVE.name in problems:
                raise Skip(f"nor does it run without memshim: {problems[NATIVE.name]}")
            if configuration.name in problems:
                raise problems[configuration.name]
            expect(found[NATIVE.name] == found[configuration.name], "other results than without")
            part.needs_kernels()


def own_tests(part: Part) -> None:
    world = part.world
    with part.case("PyTorch's own tests of memory"):
        probe = "import importlib.util as u; print(u.find_spec('torch').origin)"
        found = world.run([world.python, "-c", probe]).check()
        tests = Path(found.stdout.strip()).parent.parent / OWN_TESTS
        if not tests.exists():
            raise Skip("they are not installed")
        world.need(OWN_TESTS_S)
        command: list[str | Path] = [world.python, tests, "-k", "caching", "-k", "memory"]
        world.run(command, shim=True, torch=True, timeout_s=world.left_s()).check()


def run(part: Part) -> None:
    world = part.world
    if not world.python:
        with part.case("PyTorch"):
            raise Skip("no python3 with PyTorch here")
        return
    with servers(world, NATIVE, FULL, TENSOR, contents="full") as made:
        losses(part, made)
        recovered(part, made[FULL.name])
        for name in FEATURES:
            if world.simulated and name in NEED_KERNELS:
                with part.case(name):
                    raise Skip("it wants kernels and a compiler for them")
            elif world.left_s() < 6:
                with part.case(name):
                    raise Skip("no time left")
            else:
                feature(part, made, name)
    own_tests(part)


if __name__ == "__main__":
    main(run)
