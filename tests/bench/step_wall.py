# SPDX-License-Identifier: Apache-2.0
"""What moving memory costs a step: its wall time at 1.02 x the peak of live bytes beside ample
memory, in native mode, where calls of the simulated driver take as long as on a real card
(SIMGPU_LATENCY=1). A modelled figure: kernels take no time, and a real step is longer.

    .venv/bin/python tests/bench/step_wall.py [--rounds N] [WORKLOAD...]

Both settings take turns. Of each step the least of all rounds counts, for whatever else the machine
does only adds to it; the first two steps, which fill the pool, do not count."""

from __future__ import annotations

import argparse
import math

from overhead import CAP_RATIO, GRANULE, WORKLOADS, BenchError, Configuration, Run, Worker, Workload

SETTLED = 2  # steps
CONFIGURATION = Configuration(
    "memshim native", {"MEMSHIM_TORCH": "native", "SIMGPU_LATENCY": "1"}, True, 1.01
)


def settled(runs: list[Run]) -> float:
    """Seconds of all steps after the first ones."""
    steps = zip(*(run.step_wall_s[SETTLED - 1 :] for run in runs), strict=True)
    return math.fsum(min(step) for step in steps)


def measure(worker: Worker, workload: Workload, rounds: int) -> str:
    first = worker.run(workload)
    limit = int(first.live_bytes * CAP_RATIO) // GRANULE * GRANULE
    ample: list[Run] = []
    tight: list[Run] = []
    for _ in range(rounds):
        ample.append(worker.run(workload))
        tight.append(worker.run(workload, limit, first.others_bytes))
    for run in [first, *ample, *tight]:
        if not run.completed or run.on_host:
            raise BenchError(f"{workload.name}: {run.error or 'a tensor lay on the host'}")
    steps = len(ample[0].step_wall_s) - SETTLED + 1
    before, after = settled(ample) / steps, settled(tight) / steps
    times = f"{before * 1000:8.1f} ms  {after * 1000:8.1f} ms  {after / before:.3f} x"
    return f"{workload.name:16} {times}"


def main() -> None:
    single = {workload.name: workload for workload in WORKLOADS if workload.ranks == 1}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("workloads", nargs="*", choices=[*single, []], metavar="WORKLOAD")
    options = parser.parse_args()
    print(f"{'':16} {'ample':>11}  {CAP_RATIO:>8} x")
    with Worker(CONFIGURATION) as worker:
        for name in options.workloads or single:
            print(measure(worker, single[name], options.rounds), flush=True)


if __name__ == "__main__":
    main()
