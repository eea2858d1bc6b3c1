// SPDX-License-Identifier: Apache-2.0
// What grew: by whom all of it was called, the lines of source there, a flame graph and a table.

const MOST_EXCERPTS = 6; // at first

// The innermost frame of the program's own that all stacks share; null where there is none.
function commonFrame(sites, frames, isOwn) {
  const stacks = sites.map((site) => site.frames.toReversed()).filter((stack) => stack.length > 0);
  if (stacks.length === 0) return null;
  const [first] = stacks;
  const shared = first.findIndex((number, i) => stacks.some((stack) => stack[i] !== number));
  const together = first.slice(0, shared < 0 ? first.length : shared).map((number) => frames[number]);
  return together.findLast(isOwn) ?? null;
}

function isAt(source, frame) {
  return frame !== null && source.file === frame.file && source.line === frame.line;
}

// One place of source: what it is, and its lines or why there are none.
function excerpt(source, role) {
  const lines = source.lines?.map((text, i) => {
    const number = source.first + i;
    return element("div", { class: number === source.line ? "code-line here" : "code-line" },
      element("span", { class: "code-number", "aria-hidden": "true" }, String(number)), text || " ");
  });
  return element("div", { class: "excerpt" },
    element("p", {}, element("b", {}, `${source.file.split("/").at(-1)}:${source.line}`), ` in ${source.function}`,
      element("span", { class: "quiet" }, `  ${role}`)),
    source.why === null ? element("div", { class: "code", tabindex: 0, role: "group", "aria-label": source.file }, lines)
      : element("p", { class: "quiet" }, `${source.file}: no source here, ${source.why}.`));
}

// The caller that all have in common first, then what it reached, the steepest first.
function excerpts({ process }, rows, common) {
  if (process.sources_why !== null) return [element("p", { class: "explanation" }, `No source here: ${process.sources_why}.`)];
  const bytesAt = (source) => d3.sum(rows.filter((row) => row.frames.some((number) => isAt(source, process.frames[number]))), (row) => row.bytes);
  const asks = (source) => rows.some((row) => row.place.startsWith(`${source.file.split("/").at(-1)}:${source.line} `));
  const roleOf = (source, bytes) => (isAt(source, common) ? `${asks(source) ? "asked for" : "calls"} all of it: ${bytesText(bytes)}`
    : `asked for ${bytesText(bytes)} of what grew`);
  return process.sources.map((source) => ({ source, bytes: bytesAt(source), first: isAt(source, common), asks: asks(source) }))
    .filter(({ bytes, first, asks: own }) => bytes > 0 && (first || own))
    .sort((a, b) => b.first - a.first || b.bytes - a.bytes).slice(0, MOST_EXCERPTS)
    .map(({ source, bytes }) => excerpt(source, roleOf(source, bytes)));
}

function growthTable(view, rows) {
  return groupedTable(view, "growing", "", rows, [
    ...(view.device.slope.by === "step" ? [
      { key: "bytes_per_step", title: "A step", number: signedBytesText, sum: true },
      { key: "error_bytes_per_step", title: "\u00b1", number: bytesText },
    ] : []),
    { key: "bytes_per_hour", title: "An hour", number: signedBytesText, sum: true },
    { key: "since_step", title: "Since step", number: countText },
    { key: "since_ns", title: "After", number: durationText },
    { key: "grown_bytes", title: "Grown since", number: bytesText, sum: true },
    { key: "cap_at_step", title: "Alone meets the cap in step", number: countText },
  ], { sortBy: "bytes_per_hour" });
}

function showLeaks(view) {
  const { device, sites, process } = view;
  if (!device.slope) {
    replace("leaks");
    return;
  }
  const rows = device.growth.map((row) => ({ ...sites.get(row.site), ...row, bytes: row.grown_bytes }));
  const isOwn = (frame) => process.sources.some((source) => isAt(source, frame));
  const common = commonFrame(rows, process.frames, isOwn);
  const flame = rows.length > 0 ? new Flame("leaks", process.frames, rows, common) : null;
  replace("leaks",
    heading("Leaks", "Memory that a call site holds at the same point of every step, more each time, until the end. " +
      "What falls again is not growth."),
    element("p", { class: rows.length > 0 ? "told bad" : "told", id: "growth-sentence" }, growthSentence(device)),
    rows.length > 0 ? element("div", { class: "excerpts" }, excerpts(view, rows, common)) : null,
    flame ? flame.parts() : null,
    rows.length > 0 ? growthTable(view, rows) : null);
  flame?.draw();
}
