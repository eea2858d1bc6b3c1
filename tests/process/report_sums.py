# SPDX-License-Identifier: Apache-2.0
"""What is wrong in any report.json, whatever the program did: sums that do not add up, figures that
are not possible, a verdict against the numbers beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from report_rule import need_of, verdict_by_rule

Json = dict[str, Any]

MAY_BE_NEGATIVE = {"live_forwarded", "on_host", "unexplained"}
LIVE = {
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "inputs",
    "temporary",
    "workspace",
    "communication",
    "CUDA-graph pools",
    "other persistent",
    "unknown",
    "tensors",
    "blocks",
}


UNITS = (
    ("KiB", 10, 10),
    ("MiB", 20, 10),
    ("GiB", 30, 100),
    ("TiB", 40, 100),
    ("PiB", 50, 100),
    ("EiB", 60, 100),
)
MOST_BESIDE = 100_000


def scaled_to(value: int, shift: int, scale: int) -> int:
    return (value * scale + (1 << (shift - 1))) >> shift


def bytes_text(value: int, other: int | None = None) -> str:
    """As report.txt writes it (units.c); beside another figure, in the unit of the lesser, or
    in the next smaller one if both read alike, or in its own if it is much larger."""
    other = value if other is None else other
    least = min(value, other)
    for place, (unit, shift, scale) in enumerate(UNITS if least >= 1 << 10 else ()):
        if scaled_to(least, shift, scale) < 1024 * scale:
            alike = scaled_to(value, shift, scale) == scaled_to(other, shift, scale)
            if alike and value != other and place > 0:
                unit, shift, scale = UNITS[place - 1]
            scaled = scaled_to(value, shift, scale)
            if scaled >= MOST_BESIDE * scale and not alike:
                return bytes_text(value)
            return f"{scaled // scale}.{scaled % scale:0{len(str(scale)) - 1}} {unit}"
    return f"{value} B" if value < MOST_BESIDE else bytes_text(value)


def judged_event(report: Json) -> Json | None:
    return next((event for event in report["oom_events"] if event["judged"]), None)


def ran_out(report: Json) -> bool:
    return not all(event["recovered"] for event in report["oom_events"])


def of_ledger(rows: list[Json], device: Json, where: str) -> Iterator[str]:
    names = [row["name"] for row in rows]
    if not rows:
        return
    yield from (f"{where}: {name} twice" for name, times in Counter(names).items() if times > 1)
    whole = device["total_bytes"] if "unexplained" in names else device["cap_bytes"]
    for row in rows:
        if row["bytes"] < 0 and row["name"] not in MAY_BE_NEGATIVE:
            yield f"{where}: {row['name']} is {row['bytes']} bytes"
    total = sum(row["bytes"] for row in rows)
    if "unexplained" in names and total != whole:
        yield f"{where}: the rows are {total} bytes, the device has {whole}"
    elsewhere = -sum(row["bytes"] for row in rows if row["name"] in ("live_forwarded", "on_host"))
    live = sum(row["bytes"] for row in rows if row["name"] in LIVE)
    if elsewhere > live:
        yield f"{where}: {elsewhere} bytes of {live} live ones are elsewhere"


def live_of(rows: list[Json]) -> int:
    return sum(row["bytes"] for row in rows if row["name"] in LIVE)


def of_device(report: Json, device: Json) -> Iterator[str]:
    name = f"device {device['index']}"
    peak = device["peak"]
    yield from of_ledger(peak["ledger"], device, f"{name}, ledger at the peak")
    if live_of(peak["ledger"]) != peak["live_bytes"]:
        yield (
            f"{name}: {live_of(peak['ledger'])} live bytes in the ledger, "
            f"{peak['live_bytes']} at the peak"
        )
    if peak["live_bytes"] != device["peak_live_bytes"]:
        yield f"{name}: its peak is {peak['live_bytes']} live bytes and {device['peak_live_bytes']}"
    for what in ("reserved", "charged"):
        most = device[f"peak_{what}_bytes"]
        if peak[f"{what}_bytes"] > most:
            yield f"{name}: {peak[f'{what}_bytes']} bytes {what} at once, {most} at most"
    if device["cap_bytes"] > device["total_bytes"] > 0:
        yield f"{name}: the cap is above the device"
    emptied = device["emptied_cache"]
    for what in ("calls", "bytes") if emptied else ():
        if sum(site[what] for site in emptied["sites"]) != emptied[what]:
            yield f"{name}: caches were emptied, but the {what} of the sites do not add up"
    part = device["fragmentation_at_peak"]
    if part is not None and not 0 <= part <= 1:
        yield f"{name}: fragmentation {part}"
    yield from of_measured(device, name)
    yield from of_growth(report, device, name)
    yield from of_headroom(report, device, name)


def of_measured(device: Json, name: str) -> Iterator[str]:
    overhead = device["overhead"] or {}
    for ratio in ("ratio", "torch_ratio"):
        # The replay's accounts are to 2 MiB, a report's ratios to millionths.
        if (overhead.get(ratio) or 1) < 0.9999:
            yield f"{name}: {ratio} {overhead[ratio]}: less than what was live"
    peak = device["peak_live_bytes"]
    for when in ("before", "in"):
        most = device[f"peak_{when}_steps_bytes"] or 0
        if most > peak:
            yield f"{name}: {most} bytes live {when} steps, {peak} at most"
    temporary = device["temporary"]
    if temporary and sum(s["bytes"] for s in temporary["sites"]) > temporary["bytes"]:
        yield f"{name}: lines of what is temporary have more than all of it"


def of_growth(report: Json, device: Json, name: str) -> Iterator[str]:
    rows = device["growth"] or []
    steps = report["steps"]["count"]
    lived = report["process"]["state"] == "ended" and not ran_out(report)
    for row in rows:
        if row["grown_bytes"] > device["peak_live_bytes"]:
            yield f"{name}: {row['line']} has grown by more than was ever live"
        if lived and steps and row["cap_at_step"] and row["cap_at_step"] <= steps:
            yield (
                f"{name}: {row['line']} meets the cap at step {row['cap_at_step']}, "
                f"but step {steps} ended well"
            )
        if steps and (row["since_step"] or 0) > steps + 1:
            yield f"{name}: {row['line']} grows since step {row['since_step']} of {steps}"
    for site, times in Counter(row["site"] for row in rows).items():
        if times > 1:
            yield f"{name}: call site {site} grows {times} times"


def of_headroom(report: Json, device: Json, name: str) -> Iterator[str]:
    room = device["headroom"]
    if not room or not room["factors"]:
        return
    factors = room["factors"]
    for row in factors:
        fits = row["estimated_peak_charged_bytes"] <= device["cap_bytes"]
        if fits != row["fits"]:
            yield f"{name}: {row['factor']} times the batch fits: {row['fits']}, not {fits}"
    judged = judged_event(report)
    died = judged and judged["device"] == device["index"] and judged["short_bytes"] > 0
    batch = judged and judged["verdict"] in ("demand", "cap") and not judged["evaluating"]
    if died and batch and any(row["fits"] for row in factors if row["factor"] >= 1):
        yield f"{name}: this batch fits, and the run died of it"
    for smaller, larger in zip(factors, factors[1:], strict=False):
        if smaller["estimated_peak_live_bytes"] > larger["estimated_peak_live_bytes"]:
            yield f"{name}: {larger['factor']} times the batch needs less than {smaller['factor']}"
    largest = room["estimated_largest_factor"]
    if largest is None:
        return
    for row in factors:
        if row["fits"] != (row["factor"] <= largest):
            yield f"{name}: the largest factor is {largest}, {row['factor']} fits: {row['fits']}"
    if room["batch"] and room["estimated_largest_batch"] is not None:
        foretold = room["estimated_largest_batch"] / room["batch"]
        if not room["unbounded"] and abs(foretold - largest) > 1 / room["batch"] + 1e-6:
            yield f"{name}: {foretold:.4f} and {largest} times the batch are the most"


def is_late_segments(site: Json) -> bool:
    """Of segments alone, which counted as blocks: another thread's block came before their first
    tensors."""
    return bool(site["allocations"] == 0 and site["peak_bytes"] > 0)


def has_late_segments(report: Json) -> bool:
    return any(is_late_segments(site) for site in report["call_sites"])


def of_sites(report: Json, device: Json) -> Iterator[str]:
    name = f"device {device['index']}"
    sites = [site for site in report["call_sites"] if site["device"] == device["index"]]
    kinds = [kind for kind in report["kinds"] if kind["device"] == device["index"]]
    peak = device["peak_live_bytes"]
    for what, rows in (("call sites", sites), ("kinds", kinds)):
        total = sum(row["at_peak_bytes"] for row in rows)
        if rows and total != peak:
            yield f"{name}: {what} had {total} bytes at the peak, which is {peak}"
    if sites and kinds:
        by_site, by_kind = (sum(row["live_bytes"] for row in rows) for rows in (sites, kinds))
        if by_site != by_kind:
            yield f"{name}: {by_site} bytes are live at the end by call sites, {by_kind} by kinds"
    for site in sites:
        line = f"{name}, {site['line']} ({site['id']})"
        if site["frees"] > site["allocations"]:
            yield f"{line}: {site['frees']} frees of {site['allocations']} allocations"
        if site["id"] is None:  # many sites' together: their peaks were not all at once
            continue
        if is_late_segments(site):
            continue
        if not max(site["live_bytes"], site["at_peak_bytes"]) <= site["peak_bytes"]:
            yield f"{line}: live beyond its peak"
        most = min(site["bytes"], peak)
        if site["peak_bytes"] > most:
            yield f"{line}: {site['peak_bytes']} bytes at once, of {most}"
    for row in report["attribution"]:
        if row["device"] == device["index"]:
            parts = row["with_site_bytes"], row["with_python_bytes"] + row["backward_bytes"]
            if max(parts) > row["at_peak_bytes"] or row["at_peak_bytes"] != peak:
                yield f"{name}: {max(parts)} bytes of {row['at_peak_bytes']} have a stack"


def of_events(report: Json) -> Iterator[str]:
    devices = {device["index"]: device for device in report["devices"]}
    if report["process"]["exit"] == 0 and ran_out(report):
        yield "the process ended well, but did not recover from an out-of-memory"
    judged = [event for event in report["oom_events"] if event["judged"]]
    if len(judged) > 1 or any(event["recovered"] for event in judged):
        yield f"{len(judged)} out-of-memories are judged, or one that was recovered from"
    for number, event in enumerate(report["oom_events"]):
        name = f"out-of-memory {number}"
        device = devices[event["device"]]
        yield from of_ledger(event["ledger"], device, f"{name}, ledger")
        yield from of_rule(event, device, name)
        kinds = event["kinds"]
        live = live_of(event["ledger"])
        by_kinds = kinds is not None and not has_late_segments(report)
        if by_kinds and sum(kind["bytes"] for kind in kinds) != live:
            yield f"{name}: {sum(k['bytes'] for k in kinds)} bytes live by kinds, {live} in all"
        if live > device["peak_live_bytes"]:
            yield f"{name}: {live} live bytes, {device['peak_live_bytes']} at most in the run"
        factor = event["estimated_factor_that_fits"]
        if factor is not None and not event["recovered"] and factor >= 1:
            yield f"{name}: {factor} of the batch that failed fits"
        most = event["factor_at_most"]
        if most is not None and (factor is not None or most >= 1):
            yield f"{name}: {factor} of the batch fits, {most} at most"
        least = event["estimated_factor_at_least"]
        if least is not None and not 0 < least <= (most or 0):
            yield f"{name}: {least} of the batch fits, {most} at most"
        steps = report["steps"]["count"]
        if steps is not None and (event["step"] or 0) > steps + 1:
            yield f"{name}: in step {event['step']} of {steps}"


def of_rule(event: Json, device: Json, name: str) -> Iterator[str]:
    """The verdict against the figures that stand beside it, one by one."""
    verdict, sentence = event["verdict"], event["sentence"]
    if f" {verdict}: " not in sentence:
        yield f"{name}: {verdict}, but the sentence says: {sentence}"
    if bytes_text(event["requested_bytes"]) not in sentence:
        yield f"{name}: {event['requested_bytes']} bytes were asked for, not as in: {sentence}"
    short = event["short_bytes"]
    if short > 0 and f"{bytes_text(short)} short" not in sentence:
        yield f"{name}: {short} bytes short, not as in: {sentence}"
    factor = event["estimated_factor_that_fits"]
    if factor is not None and verdict not in ("demand", "cap"):
        yield f"{name}: {factor} of the batch fits, where the verdict is {verdict}"
    rule = event["rule"]
    decided = verdict_by_rule(rule)
    if rule["verdict"] != decided or verdict not in (decided, "growth"):
        yield f"{name}: {verdict}, by the rule {decided}: {rule}"
    if rule["need_bytes"] != need_of(rule):
        yield f"{name}: {rule['need_bytes']} bytes were needed, by the rule {need_of(rule)}"
    if not rule["request_bytes"] == event["requested_bytes"] <= rule["piece_bytes"]:
        yield f"{name}: {event['requested_bytes']} bytes were asked for, not as in {rule}"
    if rule["device_bytes"] != device["total_bytes"] or rule["cap_bytes"] > rule["device_bytes"]:
        yield f"{name}: the bounds are not the device's: {rule}"
    if verdict == "growth":
        grown = sum(row["grown_bytes"] for row in device["growth"] or [])
        if grown < (short or event["requested_bytes"]):
            yield f"{name}: growth, of {grown} bytes where {short} were short"
    if verdict == "demand" and short == 0:
        yield f"{name}: demand, and nothing short"
    if verdict == "cap" and short > 0 and device["cap_bytes"] == device["total_bytes"] > 0:
        yield f"{name}: cap, and it is all of the device"


def of_what_if(report: Json) -> Iterator[str]:
    found = report["what_if"]
    if not found or found["why"]:
        return
    if found["oom"] >= len(report["oom_events"]):
        yield f"what_if is of out-of-memory {found['oom']} of {len(report['oom_events'])}"
        return
    for name in ("without_spill", "with_spill"):
        cap = found[name]
        if cap and cap["cap_bytes"] <= cap["too_small_bytes"]:
            yield f"{name}: {cap['cap_bytes']} does, {cap['too_small_bytes']} is too small"
    event = report["oom_events"][found["oom"]]
    device = next(d for d in report["devices"] if d["index"] == event["device"])
    plain = found["without_spill"]
    if plain and plain["peak_host_bytes"] > 0:
        yield "without spilling, live memory lay on the host"
    # Where the bytes lay wrongly, another order of the same may do.
    if event["verdict"] in ("demand", "cap", "growth") and event["short_bytes"] > 0:
        room = min(device["cap_bytes"], event["rule"]["others_leave_bytes"])
        if plain and plain["cap_bytes"] <= room:
            yield f"a cap of {plain['cap_bytes']} does, under {room} it died"
        if found["own_cap_with_spill"] and found["own_cap_host_bytes"] == 0:
            yield "this cap does with spilling, and spills nothing; without it the run died"


def of_process(report: Json) -> Iterator[str]:
    for device in report["devices"]:
        yield from of_device(report, device)
        if report["trace"]["sums_exact"] and report["trace"]["sites_exact"]:
            yield from of_sites(report, device)
    yield from of_events(report)
    yield from of_what_if(report)
