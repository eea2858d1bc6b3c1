// Where it goes: what grows from step to step, and what a larger batch would need.

const MOST_OF_CAP = 1.6; // as far as the bars of the headroom reach; longer ones are cut there

function stepName(growth) {
  return growth.by_time ? "part of the run" : "step";
}

function slopeText(bytes, growth) {
  return `${signedBytesText(bytes)} a ${stepName(growth)}`;
}

function capText(row, growth) {
  if (!row.cap_at_step || growth.by_time) return "-";
  return `step ${countText(row.cap_at_step)}`;
}

function growthSentence(growth) {
  if (!growth.known) return `Whether anything grows is not known: ${growth.why}.`;
  const whole = `Live bytes at the beginning of a ${stepName(growth)} changed by ${signedBytesText(growth.whole.bytes_per_step)} ` +
    `(\u00b1 ${bytesText(growth.whole.error)}) a ${stepName(growth)}`;
  if (growth.sites.length === 0) return `Nothing grows. ${whole}.`;
  const cap = growth.cap_at_step && !growth.by_time ? `; at that rate the cap is hit at step ${countText(growth.cap_at_step)}` : "";
  return `${growth.sites.length === 1 ? "One call site keeps" : `${growth.sites.length} call sites keep`} more memory after every ` +
    `${stepName(growth)}${cap}. ${whole}.`;
}

function showGrowth(view) {
  const growth = view.survey?.growth;
  if (!growth) {
    replace("growth");
    return;
  }
  const rows = growth.sites.map((row) => ({ ...view.sites.get(row.site), ...row, kind: row.kind }));
  replace("growth",
    heading("What grows", "Memory that a call site holds at the same point of every step, more each time, until the end. " +
      "What falls again is not growth."),
    element("p", { class: rows.length > 0 ? "told bad" : "told", id: "growth-sentence" }, growthSentence(growth)),
    rows.length > 0 ? groupedTable(view, "growing", "", rows, [
      { key: "bytes_per_step", title: `A ${stepName(growth)}`, number: signedBytesText, sum: true },
      { key: "error", title: "\u00b1", number: bytesText },
      { key: "bytes_per_hour", title: "An hour", number: signedBytesText, sum: true },
      { key: "since_step", title: `Since ${stepName(growth)}`, number: countText },
      { key: "since_ns", title: "After", number: durationText },
      { key: "grown_bytes", title: "Grown since", number: bytesText, sum: true },
      { key: "cap_at_step", title: "Alone at the cap", number: (_, row) => capText(row, growth) },
    ], { sortBy: "bytes_per_step" }) : null);
}

function factorText(factor) {
  return `\u00d7 ${factor}`;
}

function headroomSentence(headroom) {
  if (!headroom.known) return `What a larger batch would need is not known: ${headroom.why}.`;
  const samples = headroom.largest_batch ? `, which is ${countText(headroom.largest_batch)} samples` : "";
  const today = headroom.batch ? ` (${countText(headroom.batch)} samples)` : "";
  if (headroom.unbounded) return `By estimate even ${headroom.factors.at(-1).factor} times this batch${today} fits.`;
  if (headroom.largest_factor === 0) return `By estimate no batch fits beside what stays.`;
  return `By estimate ${headroom.largest_factor.toFixed(2)} times this batch${today} fits${samples}: ` +
    `${bytesText(headroom.persistent_bytes)} stay whatever the batch, ${bytesText(headroom.per_step_bytes)} follow it.`;
}

class HeadroomChart {
  constructor(headroom) {
    this.headroom = headroom;
    this.most = MOST_OF_CAP * headroom.cap_bytes;
    // Of those that do not fit the first is enough.
    const least = headroom.factors.findIndex(({ peak_bytes }) => peak_bytes + headroom.beside_bytes > headroom.cap_bytes);
    this.rows = headroom.factors.filter((row, i) => row.factor >= 1 || row.peak_bytes + headroom.beside_bytes <= headroom.cap_bytes)
      .filter((row) => least < 0 || row.factor <= Math.max(2, headroom.factors[least].factor));
    this.node = element("div", { class: "chart", id: "headroom-chart" });
  }

  draw() {
    const { headroom, rows } = this;
    const width = Math.max(480, this.node.clientWidth || 960);
    const [left, right, top, high] = [150, width - 190, 22, 26];
    const x = d3.scaleLinear([0, this.most], [left, right]).clamp(true);
    const svg = d3.create("svg").attr("width", width).attr("height", top + rows.length * high + 6).attr("role", "img")
      .attr("aria-label", headroomSentence(headroom));
    rows.forEach((row, i) => {
      const y = top + i * high;
      const parts = [
        ["stays", headroom.persistent_bytes, "stays whatever the batch"],
        ["follows", row.peak_bytes - headroom.persistent_bytes, "follows the batch"],
        ["beside", headroom.beside_bytes, "beside live memory: context, what the driver serves"],
      ];
      const samples = headroom.batch ? `  ${countText(Math.floor(headroom.batch * row.factor))} samples` : "";
      svg.append("text").attr("class", "row-label").attr("x", left - 8).attr("y", y + 15).attr("text-anchor", "end")
        .text(`${row.factor === 1 ? "this batch" : factorText(row.factor)}${samples}`);
      let from = 0;
      for (const [kind, bytes, note] of parts) {
        svg.append("rect").attr("class", `headroom ${kind}`).attr("x", x(from)).attr("y", y).attr("height", high - 8)
          .attr("width", Math.max(0, x(from + bytes) - x(from))).append("title").text(`${bytesText(Math.max(0, bytes))} ${note}`);
        from += Math.max(0, bytes);
      }
      const spare = headroom.cap_bytes - from;
      svg.append("text").attr("class", spare < 0 ? "short" : "fits").attr("x", right + 10).attr("y", y + 15)
        .text(spare < 0 ? `${bytesText(from)}: ${bytesText(-spare)} short` : `${bytesText(from)}: ${bytesText(spare)} to spare`);
    });
    const cap = svg.append("g").attr("class", "cap-mark");
    cap.append("line").attr("x1", x(headroom.cap_bytes)).attr("x2", x(headroom.cap_bytes)).attr("y1", top - 6).attr("y2", top + rows.length * high);
    cap.append("text").attr("x", x(headroom.cap_bytes)).attr("y", top - 9).attr("text-anchor", "middle").text(`cap ${bytesText(headroom.cap_bytes)}`);
    this.node.replaceChildren(svg.node());
  }
}

function showHeadroom(view) {
  const headroom = view.survey?.headroom;
  if (!headroom) {
    replace("headroom");
    return;
  }
  const chart = headroom.known && typeof d3 !== "undefined" ? new HeadroomChart(headroom) : null;
  const parts = { stays: "stays: parameters, gradients, optimizer state, what is kept", follows: "follows the batch", beside: "context, driver" };
  replace("headroom",
    heading("Room for a larger batch", "Estimated from this run's peak: what stays whatever the batch is, and what follows it."),
    element("p", { class: "told", id: "headroom-sentence" }, headroomSentence(headroom)),
    chart ? element("div", { class: "controls" }, Object.entries(parts).map(([key, text]) =>
      element("span", { class: "key" }, element("span", { class: `swatch headroom ${key}` }), ` ${text}`))) : null,
    chart ? chart.node : null);
  chart?.draw();
}
