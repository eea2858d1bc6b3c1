// SPDX-License-Identifier: Apache-2.0
// Where it goes: how fast it grows, in words, and what a larger batch would need.

const MOST_OF_CAP = 1.6; // as far as the bars of the headroom reach; longer ones are cut there
const BESIDE_BARS = 1.15; // of the longest bar: the width where all are far from the cap

// By steps where they are known, else by time.
function slopeText({ bytes_per_step, bytes_per_hour }) {
  return bytes_per_step === null ? `${signedBytesText(bytes_per_hour)} an hour` : `${signedBytesText(bytes_per_step)} a step`;
}

function growthSentence({ slope, growth }) {
  if (slope.why !== null) return `Whether anything grows is not known: ${slope.why}.`;
  // By time a run's own beginning and end would make a slope of nothing.
  const whole = slope.by === "time" ? "Steps are not known: looked at in parts of equal time."
    : `Live bytes where steps begin, after the first quarter of the run, changed by ${slopeText(slope)} (\u00b1 ${bytesText(slope.error_bytes_per_step)}).`;
  if (growth.length === 0) return `Nothing grows. ${whole}`;
  const cap = slope.cap_at_step === null ? "" : `; at that rate the cap is met in step ${countText(slope.cap_at_step)}`;
  return `${growth.length === 1 ? "One call site keeps" : `${countText(growth.length)} call sites keep`} more and more memory${cap}. ${whole}`;
}

// Never more than it is.
function factorText(factor) {
  return (Math.floor(factor * 100) / 100).toFixed(2);
}

function headroomSentence(headroom) {
  if (headroom.why !== null) return `What a larger batch would need is not known: ${headroom.why}.`;
  const samples = headroom.estimated_largest_batch === null ? "" : `, which is ${countOf(headroom.estimated_largest_batch, "sample")}`;
  const today = headroom.batch === null ? "" : ` (${countOf(headroom.batch, "sample")})`;
  if (headroom.unbounded) return `By estimate even ${headroom.factors.at(-1).factor} times this batch${today} fits.`;
  if (headroom.estimated_largest_factor === 0) return "By estimate no batch fits beside what stays.";
  const host = headroom.estimated_largest_factor < 1 ? " without memory on the host" : "";
  return `By estimate ${factorText(headroom.estimated_largest_factor)} times this batch${today} fits${host}${samples}: ` +
    `${bytesText(headroom.estimated_persistent_bytes)} do not depend on the batch, ${bytesText(headroom.estimated_per_step_bytes)} grow with it.`;
}

class HeadroomChart {
  constructor({ headroom, cap_bytes }) {
    this.headroom = headroom;
    this.cap = cap_bytes;
    // Where this batch fits, from it to the first that does not; else from the first that fits.
    const own = headroom.factors.find(({ factor }) => factor === 1);
    const short = headroom.factors.find(({ factor, fits }) => factor >= 1 && !fits);
    const first = own.fits ? 1 : headroom.factors.find(({ fits }) => fits)?.factor ?? 1;
    this.rows = headroom.factors.filter(({ factor }) => factor >= first && factor <= Math.max(2, short?.factor ?? Infinity));
    this.most = Math.min(MOST_OF_CAP * cap_bytes, BESIDE_BARS * d3.max(this.rows, (row) => row.estimated_peak_charged_bytes));
    this.node = element("div", { class: "chart", id: "headroom-chart" });
  }

  draw() {
    const { headroom, rows, cap } = this;
    const width = Math.max(480, this.node.clientWidth || 960);
    const [left, right, top, high] = [150, width - 250, 22, 26];
    const x = d3.scaleLinear([0, this.most], [left, right]).clamp(true);
    const svg = d3.create("svg").attr("width", width).attr("height", top + rows.length * high + 6).attr("role", "img")
      .attr("aria-label", headroomSentence(headroom));
    rows.forEach((row, i) => {
      const y = top + i * high;
      const parts = [
        ["stays", headroom.estimated_persistent_bytes, "stays whatever the batch"],
        ["follows", row.estimated_peak_live_bytes - headroom.estimated_persistent_bytes, "grows with the batch"],
        ["beside", headroom.beside_bytes, "beside live memory: context, what the driver serves"],
      ];
      const samples = row.batch === null ? "" : `, ${countOf(row.batch, "sample")}`;
      svg.append("text").attr("class", "row-label").attr("x", left - 8).attr("y", y + 15).attr("text-anchor", "end")
        .text(`${row.factor === 1 ? "this batch" : `\u00d7 ${row.factor}`}${samples}`);
      let from = 0;
      for (const [kind, bytes, note] of parts) {
        svg.append("rect").attr("class", `headroom ${kind}`).attr("x", x(from)).attr("y", y).attr("height", high - 8)
          .attr("width", Math.max(0, x(from + bytes) - x(from))).append("title").text(`${bytesText(Math.max(0, bytes))} ${note}`);
        from += Math.max(0, bytes);
      }
      const needed = row.estimated_peak_charged_bytes;
      svg.append("text").attr("class", row.fits ? "fits" : "short").attr("x", right + 10).attr("y", y + 15)
        .text(`needs ${bytesText(needed)}: ${row.fits ? `${bytesText(cap - needed)} to spare` : `${bytesText(needed - cap)} short`}`);
    });
    const mark = svg.append("g").attr("class", "cap-mark");
    const inside = cap <= this.most;
    if (inside) mark.append("line").attr("x1", x(cap)).attr("x2", x(cap)).attr("y1", top - 6).attr("y2", top + rows.length * high);
    mark.append("text").attr("x", x(cap)).attr("y", top - 9).attr("text-anchor", inside ? "middle" : "end")
      .text(`cap ${bytesText(cap)}${inside ? "" : ", further to the right \u2192"}`);
    this.node.replaceChildren(svg.node());
  }
}

function showHeadroom(view) {
  const { headroom } = view.device;
  if (!headroom) {
    replace("headroom");
    return;
  }
  const chart = headroom.why === null ? new HeadroomChart(view.device) : null;
  const parts = { stays: "stays: parameters, gradients, optimizer state, what is kept", follows: "grows with the batch", beside: "context, driver" };
  replace("headroom",
    heading("Room for a larger batch", "Estimated from this run's peak: what does not depend on the batch, and what grows with it."),
    element("p", { class: "told", id: "headroom-sentence" }, headroomSentence(headroom)),
    chart ? element("div", { class: "controls" }, Object.entries(parts).map(([key, text]) =>
      element("span", { class: "key" }, element("span", { class: `swatch headroom ${key}` }), ` ${text}`))) : null,
    chart ? chart.node : null);
  chart?.draw();
}
