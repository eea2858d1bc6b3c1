// SPDX-License-Identifier: Apache-2.0
// The answer, as report.txt has it, and the numbers that matter.

function figure(label, value, note) {
  return element("div", { class: "figure" },
    element("dt", {}, label), element("dd", {}, value),
    note ? element("dd", { class: "note" }, note) : null);
}

// The lines of report.txt as they are: a word, what it says, and what goes on below it.
function answerOf({ answer, oom_events }, run) {
  const bad = oom_events.some((oom) => oom.judged);
  return element("div", { class: bad ? "verdict bad" : "verdict" },
    run.ranks.length > 1 ? element("p", { class: "headline-of-run" }, run.headline) : null,
    element("p", { class: "sentence" }, answer.headline),
    element("dl", { class: "told-lines" }, answer.lines.flatMap(({ label, text }) => [
      element("dt", {}, label),
      element("dd", { class: `of-${label.toLowerCase()}` }, text.map((line) => element("div", {}, line))),
    ])));
}

// What it would come to: the slope, and the batch that would fit.
function trendFigures({ slope, growth, headroom }) {
  const together = (key) => growth.reduce((sum, row) => sum + row[key], 0);
  const grows = () => slopeText({
    bytes_per_step: slope.by === "step" ? together("bytes_per_step") : null, bytes_per_hour: together("bytes_per_hour"),
  });
  const cap = slope?.cap_at_step ? `; the cap in step ${countText(slope.cap_at_step)}` : "";
  const largest = headroom?.estimated_largest_factor;
  return [
    slope ? figure("Growth", slope.why !== null ? "-" : growth.length > 0 ? grows() : "none",
      slope.why ?? (growth.length > 0 ? `of ${countOf(growth.length, "call site")}${cap}` : "no call site keeps growing")) : null,
    headroom ? figure("Largest batch", headroom.why !== null || largest === 0 ? "-"
      : headroom.estimated_largest_batch !== null ? `${headroom.unbounded ? "over " : ""}${countOf(headroom.estimated_largest_batch, "sample")}`
      : headroom.unbounded ? `over ${largest}\u00a0\u00d7` : `${factorText(largest)}\u00a0\u00d7`,
    headroom.why ?? (largest === 0 ? "none fits beside what stays, what grew with it" : `that fits the cap, by estimate; ${headroom.batch === null ? "this run's is 1\u00a0\u00d7" : `now ${countText(headroom.batch)}`}`)) : null,
  ];
}

// Of a run whose trace was replayed.
function overheadFigure({ overhead }) {
  if (!overhead || overhead.ratio === null) return null;
  return figure("Overhead ratio", overhead.ratio.toFixed(3), "the least device memory that the run needs, divided by its peak of live bytes" +
    (overhead.part_events === null ? "" : `; replayed: only the first ${countOf(overhead.part_events, "event")}`) +
    (overhead.torch_ratio === null ? "" : `; PyTorch alone: at most ${overhead.torch_ratio.toFixed(3)}`));
}

function figuresOf(device) {
  const fragmentation = device.fragmentation_at_peak;
  const spill = device.spill;
  const onHost = -(device.peak.ledger.find(({ name }) => name === "on_host")?.bytes ?? 0);
  return element("dl", { class: "figures" },
    figure("Peak live", bytesText(device.peak_live_bytes),
      onHost > 0 ? `in use by the program, ${bytesText(onHost)} of it in host memory` : "in use by the program"),
    figure("Peak reserved", bytesText(device.peak_reserved_bytes), "device memory the pool held"),
    figure("Peak charged", bytesText(device.peak_charged_bytes), "all that counts against the cap"),
    figure("Cap", bytesText(device.cap_bytes), `of ${bytesText(device.total_bytes)} on the device`),
    figure("Fragmentation", fragmentation === null ? "-" : percentText(fragmentation, 1),
      "the share of reserved memory that was not live, at its peak"),
    figure("Spilled", bytesText(spill.spilled_bytes),
      spill.spilled_bytes > 0 ? `${countOf(spill.spills, "move")} to host memory` : spill.peak_host_bytes > 0
        ? `nothing moved; up to ${bytesText(spill.peak_host_bytes)} of host memory stood by or in use` : "nothing moved to host memory"),
    trendFigures(device), overheadFigure(device));
}

function standsOut({ outlier_site: site }) {
  return site ? `stands out: ${site.line} ${bytesText(site.bytes)}, median ${bytesText(site.median_bytes)}` : "stands out";
}

function rankTable(view) {
  const { run } = view.data;
  if (run.ranks.length < 2) return null;
  const rows = run.ranks.map((rank) => ({
    ...rank,
    ended: (rank.exit === null ? rank.state : `exit ${rank.exit}`) + (rank.died_of_oom ? ", out of memory" : ""),
    remark: [rank.folder === run.first_dead ? "died first" : "", rank.folder === run.outlier ? standsOut(run) : ""]
      .filter(Boolean).join(", "),
  }));
  return table("ranks", "Processes of this run", rows, [
    { key: "folder", title: "Process" },
    { key: "rank", title: "Rank", number: (value) => (value === null ? "-" : String(value)) },
    { key: "host", title: "Host" },
    { key: "peak_live_bytes", title: "Peak live", number: bytesText },
    { key: "peak_reserved_bytes", title: "Peak reserved", number: bytesText },
    { key: "peak_charged_bytes", title: "Peak charged", number: bytesText },
    { key: "cap_bytes", title: "Cap", number: bytesText },
    { key: "oom_events", title: "OOMs", number: countText },
    { key: "ended", title: "Ended" },
    { key: "remark", title: "Remark" },
  ]);
}

// As the answer of a dry run has them.
function cardsOf({ cards }) {
  try {
    return JSON.parse(cards)?.cards ?? [];
  } catch {
    return [];
  }
}

function underMemshim({ fits, fraction, spilled_bytes: spilled, spilling_ns_per_step: ns }) {
  if (fits.memshim) return `fits from ${fraction}`;
  return spilled ? `spills ${bytesText(spilled)}, ${durationText(ns)} or more a step` : "no";
}

function onCard({ fits, slower }, ground) {
  if (slower?.[ground]) return "fits, slower";
  return fits[ground] ? "fits" : "no";
}

// Of a dry run: on which cards it fits, and how large its batch may be there.
function cardTable({ data }) {
  const rows = cardsOf(data).filter(({ fits }) => fits).map((card) => ({
    ...card,
    torch: onCard(card, "torch"),
    expandable: onCard(card, "expandable"),
    memshim: underMemshim(card),
    largest: card.batch_factor.memshim || null,
  }));
  if (rows.length === 0) return null;
  return table("card-rows", "Cards", rows, [
    { key: "name", title: "Card" },
    { key: "total_bytes", title: "Memory", number: bytesText },
    { key: "torch", title: "PyTorch alone" },
    { key: "expandable", title: "Expandable segments" },
    { key: "memshim", title: "Under memshim" },
    { key: "largest", title: "Largest batch", number: (factor) => `${factorText(factor)}\u00a0\u00d7` },
  ], { explanation: "Of the dry run: with each card's memory, the smallest MEMSHIM_FRACTION that serves, and the largest batch under memshim, in parts of this run's. Slower: convolutions take algorithms without work space." });
}

function showAnswer(view) {
  const { report, device } = view;
  const process = report.process;
  const ended = process.exit !== null ? `exit ${process.exit}` : process.state === "running" ? "still running" : process.state;
  const rank = process.rank === null ? "" : `  rank ${process.rank}${process.world_size ? ` of ${process.world_size}` : ""}`;
  document.title = `memshim: ${process.program || "process"}`;
  replace("run", element("strong", {}, process.program || "process"), rank,
    element("span", { class: "quiet" },
      ` on ${process.host}, pid ${process.pid}, ${process.start_time.slice(0, 16).replace("T", " ")} UTC, ` +
      `ran ${durationText(process.duration_ns)}, ${ended}`));
  replace("answer", answerOf(report, view.data.run));
}
