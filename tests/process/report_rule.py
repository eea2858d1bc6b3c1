# SPDX-License-Identifier: Apache-2.0
"""The rule of the verdict, written again from docs/report.md ("The rule") and not from the code
that decides: two that agree are hardly wrong in the same way."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def bounds_of(rule: Json) -> dict[str, int]:
    """By the verdict that names each; of equal ones the first is the nearest."""
    bounds = {
        "demand": rule["device_bytes"],
        "cap": rule["cap_bytes"],
        "driver_limit": rule["driver_leaves_bytes"],
        "other_process": rule["others_leave_bytes"],
    }
    return {verdict: bound for verdict, bound in bounds.items() if bound is not None}


def need_of(rule: Json) -> int:
    need = rule["fixed_bytes"] + rule["live_bytes"] + rule["request_bytes"]
    return int(max(0, need - rule["spillable_bytes"]))


def verdict_by_rule(rule: Json) -> str:
    bounds = bounds_of(rule)
    nearest = min(bounds, key=lambda verdict: bounds[verdict])
    room, need = bounds[nearest], need_of(rule)
    with_piece = rule["fixed_bytes"] + rule["live_bytes"] + rule["piece_bytes"]
    beside_host = with_piece - rule["spillable_bytes"]
    without_limit = with_piece - rule["spillable_without_limit_bytes"]
    lacking = rule["piece_bytes"] - rule["free_bytes"]
    nothing_left = need > room - room // 100
    below_cap = {verdict for verdict, bound in bounds.items() if bound < bounds["cap"]}
    limited = rule["spillable_without_limit_bytes"] > rule["spillable_bytes"]
    rows = (
        (rule["of_host"], "not_device"),
        (
            (beside_host > room or (nothing_left and lacking > 0))
            and limited
            and without_limit <= room,
            "spill_limit",
        ),
        (need > bounds["demand"], "demand"),
        ("other_process" in below_cap and need > bounds["other_process"], "other_process"),
        ("driver_limit" in below_cap and need > bounds["driver_limit"], "driver_limit"),
        (need > bounds["cap"] or rule["torch_refused"], "cap"),
        (lacking <= 0 or rule["driver_error"] is not None, "not_device"),
        (nothing_left and rule["waiting_bytes"] < lacking, nearest),
        (rule["waiting_bytes"] + rule["hole_bytes"] >= lacking, "fragmentation"),
        (beside_host > room, nearest),
    )
    return next((verdict for applies, verdict in rows if applies), "not_device")
