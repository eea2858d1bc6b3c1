# SPDX-License-Identifier: Apache-2.0
"""Whose line of a test's script held what."""

from __future__ import annotations

from typing import Any


def owners(report: dict[str, Any]) -> dict[str, int]:
    """Live bytes at the peak by the line of the script that asked for them."""
    found: dict[str, int] = {}
    for site in report["call_sites"]:
        lines = [f for f in site["frames"] if str(f.get("file", "")).endswith("script.py")]
        where = f"{lines[0]['function']}:{lines[0]['line']}" if lines else "?"
        found[where] = found.get(where, 0) + site["at_peak_bytes"]
    return {where: live for where, live in found.items() if live}
