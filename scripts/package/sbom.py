#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a wheel is made of as CycloneDX JSON, from the notice that the wheel carries."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import zipfile
from pathlib import Path


def component(name: str, version: str, system: str, how: str) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "description": how,
        "purl": f"pkg:deb/{system}/{name}@{version.replace('+', '%2B')}?arch=amd64",
    }


def bill(wheel: Path) -> dict[str, object]:
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        notice = archive.read(f"memshim-{version}.dist-info/licenses/NOTICE.txt").decode()
    system = "ubuntu" if "Ubuntu" in notice else "debian"
    parts: dict[str, dict[str, object]] = {}
    for library, package, found in re.findall(r"^  (\S+) +(\S+) (\d\S+)$", notice, re.MULTILINE):
        parts[package] = component(package, found, system, f"{library}, opened at run time")
    for package, found in re.findall(r"^  (\S+) (\d\S+)$", notice, re.MULTILINE):
        parts[package] = component(package, found, system, "compiled in")
    own = f"memshim@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "memshim",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
                ],
            }
        },
        "components": list(parts.values()),
        "dependencies": [{"ref": own, "dependsOn": [str(p["bom-ref"]) for p in parts.values()]}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    print(json.dumps(bill(parser.parse_args().wheel), indent=2))


if __name__ == "__main__":
    main()
