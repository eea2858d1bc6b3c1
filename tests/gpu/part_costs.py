# SPDX-License-Identifier: Apache-2.0
"""Part 7: what the driver's calls cost here, as a table that `memshim replay --costs` takes."""

from __future__ import annotations

from typing import Any

from world import MIB, ROOT, Fail, Part, expect, main

TRACE = ROOT / "tests" / "traces" / "gan.csv.gz"
ROUNDS, SIMULATED_ROUNDS = 100, 5
BATCH_MIB, SIMULATED_BATCH_MIB = 256, 16
# Copies of a batch, as targets.py knows them.
COPIES = {
    "pinned_down": "spill/pinned copy down",
    "pinned_up": "spill/pinned copy up",
    "copy_down": "spill/copy down",
    "copy_up": "spill/copy up",
}
HEADER = "call,bytes,median_ns,p99_ns"


def table(rows: list[dict[str, Any]]) -> str:
    """What replay has no name for (the host's side, but for its creation; calls for neighbours, and
    beside a copy) are comments."""
    lines = ["# Measured by scripts/gpu_check.sh; host-located chunks after '# host:'.", HEADER]
    for row in rows:
        call = row["call"]
        if call.startswith("pinned"):
            continue
        numbers = f"{row['bytes']},{row['median_ns']},{row['p99_ns']}"
        if ":" in call:
            lines.append(f"# {row['where']}, {call},{numbers}")
        elif row["where"] == "device":
            lines.append(f"{call},{numbers}")
        elif call == "create":
            lines.append(f"create_host,{numbers}")
        else:
            lines.append(f"# host: {call},{numbers}")
    return "\n".join(lines) + "\n"


def run(part: Part) -> None:
    world = part.world
    rounds = SIMULATED_ROUNDS if world.simulated else ROUNDS
    batch = SIMULATED_BATCH_MIB if world.simulated else BATCH_MIB
    rows: list[dict[str, Any]] = []
    with part.case("costs: the driver's calls"):
        result = world.run([world.program("gpu_costs"), str(rounds), str(batch)], timeout_s=120)
        rows = result.lines("cost")
        for row in rows:
            size = f" {row['bytes'] // MIB} MiB" if row["bytes"] >= MIB else ""
            name = f"costs/{row['call']}{size}, {row['where']}"
            if row["call"] in COPIES:
                part.figure(COPIES[row["call"]], MIB / row["median_ns"], "GB/s")
            else:
                part.figure(name, row["median_ns"] / 1000, "us (median)")
                part.figure(f"{name}, p99", row["p99_ns"] / 1000, "us")
        result.check()
    file = world.out / "costs.csv"
    with part.case("costs: memshim replay takes the table"):
        part.world.need(3)
        expect(bool(rows), "nothing was measured")
        file.write_text(table(rows))
        command = [str(world.cli), "replay", str(TRACE), "--cap", "64GiB", "--costs", str(file)]
        result = world.run(command)
        if result.status != 0:
            raise Fail(result.last_words())


if __name__ == "__main__":
    main(run)
