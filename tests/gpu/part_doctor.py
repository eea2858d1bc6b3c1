# SPDX-License-Identifier: Apache-2.0
"""Part 1: what memshim's doctor finds on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from world import Part, expect, main


def run(part: Part) -> None:
    world = part.world
    asked = ("--python", world.python or "python3")
    command: list[str | Path] = [world.cli, "doctor", "--json", *asked]
    with part.case("doctor: memshim can serve here"):
        result = world.run(command).check()
        doctor = json.loads(result.stdout)
        (world.out / "doctor.json").write_text(json.dumps(doctor, indent=1) + "\n")
        expect(bool(doctor["devices"]), "no device")
        device = doctor["devices"][0]
        part.figure("doctor/granule", device["granule_bytes"], "bytes")
        for way in ("down", "up"):
            speed = device[f"{way}_bytes_per_s"]
            part.figure(f"doctor/spill {way}", speed / 1e9 if speed else None, "GB/s")
    with part.case("doctor: spilling to mapped host memory is proven"):
        device = json.loads(world.run(command).stdout)["devices"][0]
        expect(
            bool(device["spill_proved"]), "no; what does not fit would lie on the host from birth"
        )
    with part.case("doctor: the text says the same"):
        text = world.run([world.cli, "doctor", *asked]).check().stdout
        (world.out / "doctor.txt").write_text(text)
        expect(len(text.splitlines()) > 3, "it says nothing")


if __name__ == "__main__":
    main(run)
