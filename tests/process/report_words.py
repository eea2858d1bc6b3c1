# SPDX-License-Identifier: Apache-2.0
"""Whether report.txt and report.html say what report.json says, and give no advice against it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from report_sums import Json, bytes_text, judged_event, ran_out

FIRST = r"(?:try .* first \(a start, not a measurement\): )?"
AT_MOST = re.compile(FIRST + r"at most (?:batch [\d,]+ instead of [\d,]+|[01]\.\d+ of this )")
FITS = re.compile(r"batch ([\d,]+) instead of ([\d,]+)")
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
# By which words `next` may begin, verdict by verdict.
LOADED = "load the checkpoint onto the host"
ADVICE = {
    "demand": (
        "a smaller batch",
        "a smaller model",
        "evaluate with a smaller",
        "evaluate under torch.no_grad()",
        "hold less",
        "run without MEMSHIM_TORCH=off",
        LOADED,
    ),
    "cap": (
        "a larger MEMSHIM_FRACTION",
        "a larger MEMSHIM_LIMIT",
        "raise or remove per_process_memory_fraction",
        "evaluate with a smaller",
        "evaluate under torch.no_grad()",
        LOADED,
    ),
    "fragmentation": (
        "run without",
        "capture fewer",
        "synchronize before",
        "make the allocator",
        "give the process host memory",
        "free what lies beside",
        "a smaller batch or shape; or free what lies beside",
    ),
    "other_process": ("end the other processes",),
    "spill_limit": ("a larger MEMSHIM_SPILL_LIMIT",),
    "driver_limit": ("raise that limit",),
    "not_device": ("look at the host",),
    "growth": ("look for what keeps", "capture fewer"),
}


def count_of(text: str) -> int:
    return int(text.replace(",", ""))


def answer_of(text: str) -> str:
    """The lines up to the first empty one, which are the answer."""
    return text.split("\n\n", 1)[0]


def word(text: str, label: str) -> str:
    """What follows that word at the beginning of a line of the answer; empty: no such line."""
    found = re.search(rf"^  {label} +(.*)$", answer_of(text), re.MULTILINE)
    return found[1] if found else ""


def of_shares(text: str) -> Iterator[str]:
    for share in re.findall(r"(\d+\.\d) %", text):
        if float(share) > 100:
            yield f"report.txt: {share} %"


def of_text(report: Json, text: str) -> Iterator[str]:
    yield from of_shares(text)
    yield from of_answer(report, text)
    yield from of_said(report)
    if judged_event(report) or not ran_out(report):
        yield from of_text_ledger(report, text)
    for line in re.findall(r"^ +[=~] +-.*$", text, re.MULTILINE):
        if not re.search(r"on host|unexplained|driver served|in none|host memory", line):
            yield f"report.txt, a negative row: {line.strip()}"
    for device in report["devices"]:
        live, reserved, charged = (
            bytes_text(device[f"peak_{what}_bytes"]) for what in ("live", "reserved", "charged")
        )
        said = f"  peak   live {live}   reserved {reserved}   charged {charged}\n"
        if said not in text:
            yield f"report.txt does not say: {said.strip()}"
    if ran_out(report):
        yield from of_dead_text(report, text)
    else:
        yield from of_living_text(report, text)
    grows = re.findall(r"^  GROWS.*$", text, re.MULTILINE)
    yield from (f"report.txt, twice: {line}" for line, n in Counter(grows).items() if n > 1)


def of_answer(report: Json, text: str) -> Iterator[str]:
    """The lines that the page begins with are those that the text begins with."""
    said = " ".join(answer_of(text).split())
    lines = [part for line in report["answer"]["lines"] for part in line["text"]]
    for line in [report["answer"]["headline"], *lines]:
        if " ".join(line.split()) not in said:
            yield f"report.json, answer: {line!r}, which report.txt does not begin with"


def of_said(report: Json) -> Iterator[str]:
    """What stood on stderr is as certain as what is known at that moment: growth is not."""
    for note in report["notes"]:
        said = re.search(r"OUT OF MEMORY: (asked for .*?)\. (\w+): ", note)
        same = [e for e in report["oom_events"] if said and f" {said[1]}. " in e["sentence"]]
        if said and same and all(event["rule"]["verdict"] != said[2] for event in same):
            yield f"said during the run: {said[2]}, in the report: {same[0]['rule']['verdict']}"


def of_text_ledger(report: Json, text: str) -> Iterator[str]:
    """The ledger of report.txt: each row of one of report.json's, and no other."""
    found = re.search(
        r"\nWhere the \S+ \S+ of (?:the device|the cap) were.*\n((?:  [=~] .*\n)*)", text
    )
    if not found:
        return
    said = Counter(re.findall(r"^  [=~] +-?([\d.]+ \w+)", found[1], re.MULTILINE))
    judged = judged_event(report)
    ledgers = (
        [judged["ledger"]] if judged else [device["peak"]["ledger"] for device in report["devices"]]
    )
    for rows in ledgers:
        if Counter(bytes_text(abs(row["bytes"])) for row in rows if row["bytes"]) == said:
            return
    yield f"report.txt has another ledger than report.json: {sorted(said)}"


def of_dead_text(report: Json, text: str) -> Iterator[str]:
    judged = judged_event(report)
    if judged is None:  # it is not among those that report.json lists
        return
    first, verdict = answer_of(text).split("\n")[1], word(text, "why").partition(":")[0]
    verdict = verdict.removeprefix("likely ")
    if verdict != judged["verdict"]:
        yield f"report.txt says {verdict!r}, report.json {judged['verdict']!r}"
        return
    if f"asked for {bytes_text(judged['requested_bytes'])}" not in first:
        yield f"report.json: {judged['requested_bytes']} bytes were asked for, not as in: {first}"
    if judged["step"] and f"in step {judged['step']:,}" not in first:
        yield f"report.json: in step {judged['step']}, not as in: {first}"
    # Behind a line of autograd's threads stands who called autograd.
    if judged["line"] and word(text, "asked").split(" called by ")[0] not in ("", judged["line"]):
        yield f"report.txt: {word(text, 'asked')} asked, report.json: {judged['line']}"
    if not word(text, "next").startswith(ADVICE[verdict]):
        yield f"report.txt, next: {word(text, 'next')!r} where the verdict is {verdict}"
    if "\n  holds  " not in answer_of(text) and judged["source"] != "host":
        yield "report.txt does not say who holds what"
    if text.count("\nOut-of-memories: ") != 1:
        yield "report.txt does not count its out-of-memories once"
    yield from of_amounts(report, text, judged)
    device = next(d for d in report["devices"] if d["index"] == judged["device"])
    batch, factor = (device["headroom"] or {}).get("batch"), judged["estimated_factor_that_fits"]
    fits = FITS.match(word(text, "fits"))
    most = AT_MOST.match(word(text, "fits"))
    if bool(most) != (judged["factor_at_most"] is not None):
        yield f"report.txt, fits: {word(text, 'fits')!r}, report.json: {judged['factor_at_most']}"
    if not fits:
        return
    if count_of(fits[1]) >= count_of(fits[2]):
        yield f"report.txt: batch {fits[2]} died, but {fits[1]} fits"
    if batch and abs((factor or 0) * batch - count_of(fits[1])) > 1:
        yield f"report.txt: batch {fits[1]} fits, report.json: {factor} of {batch}"


def of_amounts(report: Json, text: str, judged: Json) -> Iterator[str]:
    """Each amount of the answer is that of report.json which answers the same question."""
    rule = judged["rule"]
    need = re.search(r"in use and the request come to (\S+ \S+?)[,;. ]", word(text, "why"))
    rooms = {rule[f"{what}_bytes"] for what in ("device", "cap", "others_leave", "driver_leaves")}
    needs = {bytes_text(rule["need_bytes"], room) for room in rooms if room is not None}
    if need and need[1] not in needs:
        yield f"report.txt needs {need[1]}, report.json {' or '.join(sorted(needs))}"
    lacked = re.search(r"this one request was (\S+ \S+) short(?:$|, and )", word(text, "next"))
    if lacked and lacked[1] != bytes_text(judged["short_bytes"]):
        yield f"report.txt: {lacked[1]} short, report.json: {judged['short_bytes']} bytes short"
    short = judged["short_bytes"]
    total = word(text, "short").rpartition(" = ")[2]
    if total != (bytes_text(short, max(short, 1 << 20)) if short else ""):
        yield f"report.txt adds up to {total!r} short, report.json: {short} bytes"
    if word(text, "torch"):
        yield "report.txt: what PyTorch counts stands in the answer of a run that died"
    tried, found = word(text, "tried"), report["what_if"]
    if tried and judged["verdict"] == "growth":
        yield f"report.txt, tried: {tried!r}, where memory grows"
    if not tried or not found or found["why"]:
        return
    plain, host = found["without_spill"], found["own_cap_host_bytes"]
    if plain and f" {bytes_text(plain['cap_bytes'])}" not in tried:
        yield f"report.txt, tried: {tried!r}, report.json: {plain}"
    if found["own_cap_with_spill"] and f" {bytes_text(host)}" not in tried:
        yield f"report.txt, tried: {tried!r}, report.json: {host} bytes on the host"


def of_living_text(report: Json, text: str) -> Iterator[str]:
    if re.search(r"^  why ", answer_of(text), re.MULTILINE):
        yield "report.txt says why it died, report.json does not know that it did"
    ooms = re.match(r"([\d,]+); the run recovered", word(text, "ooms"))
    sources = [event["source"] for event in report["oom_events"]]
    # The driver's refusals may be behind PyTorch's own.
    least = len(sources) - ("torch" in sources) * sources.count("driver")
    if ooms and not least <= count_of(ooms[1]) <= len(sources):
        yield f"report.txt: {ooms[1]} out-of-memories, report.json: {sources}"
    fits = FITS.match(word(text, "fits"))
    if fits and count_of(fits[1]) < count_of(fits[2]) and report["process"]["exit"] == 0:
        spilled = any(device["spill"]["spills"] for device in report["devices"])
        if not spilled and not report["oom_events"]:
            yield f"report.txt: batch {fits[2]} ran, but at most {fits[1]} fits"


# ---- report.html ----


def of_page(report: Json, page: str, folder: str) -> Iterator[str]:
    found = DATA.search(page)
    if not found:
        yield "report.html has no data"
        return
    data = json.loads(found[1])
    own = [one["report"] for one in data["processes"] if one["folder"] == folder]
    if len(own) != 1:
        yield f"report.html has {len(own)} processes of this folder"
        return
    for member, value in report.items():
        there = own[0].get(member)
        if member == "call_sites":  # the page has as many as there is room for
            continue
        if member in ("oom_events", "thresholds") and there:  # the newest of them
            value = value[-len(there) :]
        if there != value:
            yield f"report.html: {member} is another than in report.json"
