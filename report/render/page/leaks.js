// SPDX-License-Identifier: Apache-2.0
// What grew: by whom all of it was called, the lines of source there, a flame graph and a table.

const MOST_EXCERPTS = 6; // at first

function isAt(source, frame) {
  return frame !== null && source.file === frame.file && source.line === frame.line;
}

// "+64.0 MiB a step", by what the leak was found.
function paceText({ by, bytes_per_round, bytes_per_hour }) {
  const rounds = { step: "a step", backward_pass: "a backward pass", call: "a call of the model" };
  return by in rounds ? `${signedBytesText(bytes_per_round)} ${rounds[by]}` : `${signedBytesText(bytes_per_hour)} an hour`;
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

// The lines that keep, then those that asked for it, the largest first.
function excerpts({ process, device }, rows) {
  if (process.sources_why !== null) return [element("p", { class: "explanation" }, `No source here: ${process.sources_why}.`)];
  const bytesAt = (source) => d3.sum(rows.filter((row) => row.frames.some((number) => isAt(source, process.frames[number]))), (row) => row.bytes);
  const asks = (source) => rows.some((row) => row.place.startsWith(`${source.file.split("/").at(-1)}:${source.line} `));
  const told = process.sources.map((source) => {
    const leak = device.leaks.find(({ common_frame }) => isAt(source, common_frame));
    const bytes = leak ? leak.grown_bytes : bytesAt(source);
    const role = leak ? `keeps ${bytesText(bytes)}, ${paceText(leak)}${leak.degree === "likely" ? ", likely" : ""}` : `asked for ${bytesText(bytes)} of what grew`;
    return { source, role, bytes, first: leak !== undefined, shown: bytes > 0 && (leak !== undefined || asks(source)) };
  });
  return told.filter(({ shown }) => shown).sort((a, b) => b.first - a.first || b.bytes - a.bytes).slice(0, MOST_EXCERPTS)
    .map(({ source, role }) => excerpt(source, role));
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
  const commons = device.leaks.map(({ common_frame }) => common_frame).filter(Boolean);
  const flame = rows.length > 0 ? new Flame("leaks", process.frames, rows, commons) : null;
  const bad = device.leaks.some(({ negligible }) => !negligible);
  replace("leaks",
    heading("Leaks", "Memory that a call site holds at the same point of every step, and that is more each time until the end. " +
      "What falls again is not growth."),
    element("p", { class: bad ? "told bad" : "told", id: "growth-sentence" }, growthSentence(device)),
    rows.length > 0 ? element("div", { class: "excerpts" }, excerpts(view, rows)) : null,
    flame ? flame.parts() : null,
    rows.length > 0 ? growthTable(view, rows) : null);
  flame?.draw();
}
