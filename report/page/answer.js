// The answer: what happened, in the order of report.txt, and the numbers that matter.

function figure(label, value, note) {
  return element("div", { class: "figure" },
    element("dt", {}, label), element("dd", {}, value),
    note ? element("dd", { class: "note" }, note) : null);
}

// The one that ended the run: PyTorch's own rather than the driver's refusal behind it.
function fatalOom(report) {
  const fatal = report.oom_events.filter((oom) => !oom.recovered);
  return fatal.findLast((oom) => oom.source === "torch") ?? fatal.at(-1) ?? null;
}

function verdictOf(view) {
  const { report, device } = view;
  const oom = fatalOom(report);
  if (oom) {
    return element("div", { class: "verdict bad" },
      element("p", { class: "sentence" }, oom.sentence),
      element("p", {}, `After ${durationText(oom.time_ns)}, on device ${oom.device}`,
        oom.line ? `, asked for by ${oom.line}` : "", "."));
  }
  if (!device) {
    return element("div", { class: "verdict" },
      element("p", { class: "sentence" }, "No device was used, as far as the trace tells."));
  }
  const recovered = report.oom_events.length + view.process.ooms_left_out;
  const ooms = recovered > 0 ? ` ${countText(recovered)} out-of-memories, all recovered from.`
    : ` No out-of-memory${report.process.state === "running" ? " so far" : ""}.`;
  return element("div", { class: "verdict" },
    element("p", { class: "sentence" },
      `Peak ${bytesText(device.peak_charged_bytes)} of ${bytesText(device.cap_bytes)} ` +
      `(${percentText(device.peak_charged_bytes, device.cap_bytes)}) on device ${device.index}.${ooms}`));
}

// What it would come to: the slope, and the batch that would fit.
function trendFigures({ survey }) {
  if (!survey) return [];
  const { growth, headroom } = survey;
  const steepest = growth.sites[0];
  const cap = growth.cap_at_step && !growth.by_time ? `; the cap at step ${countText(growth.cap_at_step)}` : "";
  return [
    figure("Slope", !growth.known ? "-" : steepest ? slopeText(growth.sites.reduce((sum, row) => sum + row.bytes_per_step, 0), growth) : "none",
      !growth.known ? growth.why : steepest ? `${countText(growth.sites.length)} sites grow${cap}` : "nothing grows from step to step"),
    figure("Largest batch", !headroom.known ? "-" : headroom.largest_batch ? `${countText(headroom.largest_batch)} samples`
      : `${headroom.unbounded ? "over " : ""}${headroom.largest_factor.toFixed(2)} \u00d7`,
    !headroom.known ? headroom.why : `that fits the cap, by estimate${headroom.batch ? `; now ${countText(headroom.batch)}` : ", of this run's"}`),
  ];
}

function figuresOf(view) {
  const { device } = view;
  const fragmentation = device.fragmentation_at_peak;
  const spill = device.spill;
  return element("dl", { class: "figures" },
    figure("Peak live", bytesText(device.peak_live_bytes), "in use by the program"),
    figure("Peak reserved", bytesText(device.peak_reserved_bytes), "device memory the pool held"),
    figure("Peak charged", bytesText(device.peak_charged_bytes), "all that counts against the cap"),
    figure("Cap", bytesText(device.cap_bytes), `of ${bytesText(device.total_bytes)} on the device`),
    figure("Fragmentation", fragmentation === null ? "-" : percentText(fragmentation, 1),
      "of reserved, not live, at its peak"),
    figure("Spilled", bytesText(spill.spilled_bytes),
      spill.spilled_bytes > 0 ? `${countText(spill.spills)} moves to host memory` : "nothing moved to host memory"),
    trendFigures(view));
}

function rankTable(view) {
  const { run } = view.data;
  if (run.ranks.length < 2) return null;
  const rows = run.ranks.map((rank) => ({
    ...rank,
    ended: (rank.exit === null ? rank.state : `exit ${rank.exit}`) + (rank.died_of_oom ? ", out of memory" : ""),
    remark: [rank.folder === run.first_dead ? "died first" : "", rank.folder === run.outlier ? "stands out" : ""]
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
  replace("answer", verdictOf(view), device ? figuresOf(view) : null, rankTable(view));
}
