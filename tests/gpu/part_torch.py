# SPDX-License-Identifier: Apache-2.0
"""Part 3: PyTorch computes the same with memshim and without, at ample and at scarce memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jobs import FULL, NATIVE, TENSOR, Configuration, Server, Trained, servers, train
from world import GIB, MIB, Fail, Part, Skip, expect, main, reports

# Shapes that leave PyTorch holes. On the simulated GPU a step is all CPU time.
JOB = ("--vary", "--deterministic", "--checkpoint", "--each")
REAL = ("--steps", 24, "--warm-up", 1, "--batch", 16, "--length", 512, "--width", 768)
SMALL = ("--steps", 5, "--warm-up", 1, "--batch", 4, "--length", 256, "--width", 256)
TIGHT = 1.02
SLACK_BYTES = 16 * MIB  # chunks that hold a live byte each, and no more
FEATURE_S, FEATURE_LEAST_S = 60.0, 6.0
RECOVERY_LIMIT = 3 * GIB
# Of features.py, in the order in which they begin: the compiler takes longest.
FEATURES = (
    "compile",
    "reduce-overhead",
    "graph",
    "graphed-callables",
    "side-streams",
    "loader",
    "mem-pool",
    "snapshot",
    "one-rank",
    "multiprocessing",
)
FEATURES_AT_ONCE = 4  # each of them in three worlds
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


def same(reference: Trained, other: Trained) -> None:
    for step, (one, two) in enumerate(zip(reference.losses, other.losses, strict=True), 1):
        if one != two:
            raise Fail(
                f"step {step}: {float.fromhex(one):.17g} without memshim, "
                f"{float.fromhex(two):.17g} with it"
            )


def losses(part: Part, made: dict[str, Server]) -> None:
    """Side by side: what is compared are results, not times."""
    world = part.world
    job = (*JOB, *(SMALL if world.simulated else REAL))
    found: dict[str, Trained] = {}

    def twice(name: str) -> None:
        found[name] = train(made[NATIVE.name], *job)

    def alone() -> None:
        with part.case("the job is deterministic without memshim"):
            world.need(10)
            with ThreadPoolExecutor(world.at_once) as threads:
                list(threads.map(twice, ("first", "second")))
            # What no kernel writes is what lay there before.
            if not world.simulated:
                same(found["first"], found["second"])

    def same_as_alone(other: Trained) -> None:
        part.needs_kernels()
        if "first" not in found:
            raise Skip("nor does it run without memshim")
        same(found["first"], other)

    def under(configuration: Configuration) -> None:
        name = configuration.name
        with part.case(f"losses: {name}, ample memory"):
            world.need(5)
            found[name] = train(made[name], *job)
            reference.result()
            same_as_alone(found[name])
        if name not in found:
            return
        with part.case(f"losses: {name}, a limit just above live"):
            world.need(5)
            limit = int(found[name].live_bytes * TIGHT) + found[name].others_bytes + SLACK_BYTES
            tight = train(made[name], *job, MEMSHIM_LIMIT=limit)
            calls = tight.device["driver_calls"]
            part.figure(
                f"torch/{name}, chunks moved at {TIGHT} x live",
                max(0, calls["map"] - calls["create"]),
            )
            same_as_alone(tight)

    with ThreadPoolExecutor(1) as threads:
        reference = threads.submit(alone)
        if world.simulated:
            reference.result()
        part.side_by_side([partial(under, one) for one in (FULL, TENSOR)])
    if "first" in found:
        part.figure("torch/peak live", found["first"].live_bytes, "bytes")


def digest(server: Server, name: str) -> str:
    # What one world has compiled the others need not.
    compiled = server.world.work / "compiled"
    settings: dict[str, object] = {
        "TORCHINDUCTOR_CACHE_DIR": compiled,
        "TRITON_CACHE_DIR": compiled / "triton",
        # Few kernels: processes to compile them would take longer to start.
        "TORCHINDUCTOR_COMPILE_THREADS": 1,
    }
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
    world = part.world
    left_out = ""
    if world.simulated and name in NEED_KERNELS:
        left_out = "it wants kernels and a compiler for them"
    elif world.left_s() < FEATURE_LEAST_S:
        left_out = "no time left"
    if left_out:
        with part.case(name):
            raise Skip(left_out)
        return
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


def run(part: Part) -> None:
    world = part.world
    if not world.python:
        with part.case("PyTorch"):
            raise Skip("no python3 with PyTorch here")
        return
    with servers(world, NATIVE, FULL, TENSOR, contents="full") as made:
        losses(part, made)
        recovered(part, made[FULL.name])
        at_once = min(FEATURES_AT_ONCE, world.at_once)
        part.side_by_side([partial(feature, part, made, name) for name in FEATURES], at_once)


if __name__ == "__main__":
    main(run)
