// SPDX-License-Identifier: Apache-2.0
// The timeline: what one device held over the run, with a cursor and a part of it enlarged. Live
// bytes are stacked by kind where the trace tells kinds; a click chooses a recorded moment.

const LINES = [
  { key: "live", title: "live", note: "In use by the program" },
  { key: "reserved", title: "reserved", note: "Device memory that the pool held" },
  { key: "charged", title: "charged", note: "All that counts against the cap: reserved, what the driver took, the context" },
  { key: "cap", title: "cap", note: "What may be charged" },
];
const ROW = 16;
const TICK_WIDE = 110; // pixels
const MARGIN = { left: 84, right: 16, top: 18 }; // pixels around the plot; the map stands below it
const STRIP = 36; // pixels: the whole run in small
const BELOW = 26; // for the time's axis
const PLOT_HIGH = [170, 320]; // pixels: as much as the window has left below the answer
const MOST_TAG_ROWS = 8;
const TAG_LABEL = "tags, NVTX";
const LEAST_MARK = 5; // pixels: a move to the host is short beside the run, and has to be seen

// What stands between live and charged, above the kinds.
const BESIDE = [
  { key: "holes", title: "holes", note: "Reserved and not live: free, or freed and waiting for work of its stream" },
  { key: "application", title: "program's own chunks", note: "Physical memory that the program made itself, without known tensors" },
  { key: "forwarded", title: "driver's allocations", note: "Served by the driver: arrays, managed memory, NCCL" },
  { key: "context", title: "context", note: "What the driver took by itself: context, modules, graphs" },
];

// A line of its own beside them: it is known a bucket of the survey, not of the series.
const WAITING = { key: "waiting", title: "freed, but waits", note: "Freed by the program while work of a stream that may use it is still queued: a part of the holes" };

// The layers of the stack from the ground up; together they are what is charged.
function layersOf(survey) {
  if (!survey) return [];
  return [...KINDS.map((kind) => ({ key: kindClass(kind), title: kind, values: survey.lines[kind], note: "Live memory of this kind" })),
    ...BESIDE.map((each) => ({ ...each, values: survey.lines[each.key] }))].filter(({ values }) => values);
}

// A point a bucket: what each line was at its lowest, its highest and in the end; and one for the
// time until the next bucket in which something happened.
function pointsOf(series, durationNs) {
  const points = [];
  series.at.forEach((bucket, i) => {
    const point = { from: bucket * series.bucket_ns };
    const after = { from: (bucket + 1) * series.bucket_ns };
    for (const { key } of LINES) {
      const values = series[key];
      const last = values.last[i];
      point[key] = { min: values.min ? values.min[i] : last, max: values.max ? values.max[i] : last, last };
      after[key] = { min: last, max: last, last };
    }
    points.push(point);
    if (series.at[i + 1] !== bucket + 1 && after.from < durationNs) points.push(after);
  });
  points.forEach((point, i) => { point.to = points[i + 1]?.from ?? Math.max(durationNs, point.from); });
  return points;
}

// Tags on a thread that overlap go below each other, the outer one above.
function tagRows(ranges) {
  const rows = [];
  for (const range of ranges) {
    let row = rows.find((each) => each.thread === range.thread && each.end <= range.begin_ns);
    if (!row) {
      row = { thread: range.thread, ranges: [], end: 0 };
      rows.push(row);
    }
    row.ranges.push(range);
    row.end = range.end_ns;
  }
  return rows;
}

class Timeline {
  constructor(view) {
    const { process, device, report, survey } = view;
    this.view = view;
    this.survey = survey;
    this.layers = layersOf(survey);
    this.host = d3.max(survey?.host_bytes ?? [0]);
    this.moves = process.moves.filter((move) => move.device === device.index);
    this.series = process.series.find((each) => each.device === device.index);
    this.duration = view.duration;
    this.points = pointsOf(this.series, this.duration);
    this.ooms = report.oom_events.filter((oom) => oom.device === device.index);
    this.thresholds = report.thresholds.filter((each) => each.device === device.index);
    this.steps = report.steps;
    const rows = tagRows(process.tag_ranges);
    this.tags = rows.slice(0, MOST_TAG_ROWS);
    this.tagsLeftOut = process.tag_ranges_left_out + d3.sum(rows.slice(MOST_TAG_ROWS), ({ ranges }) => ranges.length);
    this.waiting = d3.max(survey?.waiting_bytes ?? [0]) > 0 ? survey.waiting_bytes : null;
    this.device = device;
    this.cursor = device.peak.time_ns;
    this.hidden = new Set();
    // A cap far above everything else would press the lines to the ground.
    this.toCap = device.peak_charged_bytes > 0.4 * device.cap_bytes;
    this.node = element("div", { class: "chart" });
    this.readout = element("div", { class: "readout", role: "status" });
    this.kindReadout = element("div", { class: "readout kinds" });
  }

  show() {
    replace("timeline",
      element("h2", {}, `Memory of device ${this.device.index} over time`),
      element("div", { class: "controls" }, this.legend(),
        element("label", {}, element("input", {
          type: "checkbox", checked: this.toCap,
          onchange: (event) => { this.toCap = event.target.checked; this.draw(); },
        }), " up to the cap"),
        button("Show all", "The whole run (0)", () => this.view.zoom(0, this.duration))),
      element("div", { class: "controls" }, this.layerLegend(), this.markLegend()),
      this.node, this.readout, this.kindReadout,
      element("p", { class: "explanation" },
        "Across: time since the run began. Up: bytes; the coloured layers are live memory, by what it was to the program. " +
        "A click shows below who was live then. Drag over a part to enlarge it; the strip at the bottom shows where it lies " +
        "in the whole run. With the keyboard: arrows move the cursor, Enter is the click, + and - enlarge, 0 shows all."),
      this.notes());
    this.view.onMoment.push(() => this.showMoment());
    this.view.onZoom.push(() => this.draw());
    this.draw();
  }

  // What the picture cannot say of itself.
  notes() {
    return [
      this.host > 0 && this.layers.length > 0 ? "Live memory that lies on the host is in the coloured layers too, and not in what is charged: " +
        "the layers may then reach above that line." : "",
      this.tagsLeftOut > 0 ? `${countOf(this.tagsLeftOut, "more range")} of tags ${this.tagsLeftOut === 1 ? "is" : "are"} not drawn; the table of tags counts ${this.tagsLeftOut === 1 ? "it" : "them"} too.` : "",
    ].filter(Boolean).map((text) => element("p", { class: "explanation" }, text));
  }

  toggle({ key, title, note }, swatch) {
    return element("label", { class: "key", title: note },
      element("input", {
        type: "checkbox", checked: !this.hidden.has(key),
        onchange: (event) => {
          if (event.target.checked) this.hidden.delete(key);
          else this.hidden.add(key);
          this.draw();
        },
      }), element("span", { class: `swatch ${swatch}` }), ` ${title}`);
  }

  legend() {
    return [...LINES.map((line) => this.toggle(line, line.key)), this.waiting ? this.toggle(WAITING, WAITING.key) : null];
  }

  layerLegend() {
    return this.layers.map((layer) => this.toggle(layer, `layer ${layer.key}`));
  }

  // Only of what is there.
  markLegend() {
    const marks = [
      this.ooms.length > 0 && ["bad", "\u25bc", "out of memory"],
      ...["warning", "critical", "emergency"].filter((name) => this.thresholds.some(({ state }) => state === name))
        .map((name) => [name, "\u25c6", `memory ${name}`]),
      this.moves.some(({ down }) => down) && ["bad", "\u25a0", "moved to the host"],
      this.moves.some(({ down }) => !down) && ["live", "\u25a0", "moved back"],
      this.survey && ["quiet", "\u2502", "a recorded moment"],
    ];
    return marks.filter(Boolean).map(([kind, sign, text]) =>
      element("span", { class: "key" }, element("span", { class: `sign ${kind}` }, sign), ` ${text}`));
  }

  visible() {
    return LINES.filter(({ key }) => !this.hidden.has(key));
  }

  get window() {
    return this.view.window;
  }

  // From what shows in the window, so that an enlarged part fills the chart.
  highest() {
    const inside = this.points.filter((point) => point.to >= this.window[0] && point.from <= this.window[1]);
    const keys = this.visible().map(({ key }) => key).filter((key) => key !== "cap");
    const held = d3.max(inside, (point) => d3.max(keys, (key) => point[key].max)) ?? 0;
    return 1.06 * Math.max(held, this.toCap ? this.device.cap_bytes : 0, 1024);
  }

  draw() {
    const width = Math.max(480, this.node.clientWidth || 960);
    const rows = (this.survey ? 1 : 0) + (this.moves.length > 0 ? 1 : 0) + (this.host > 0 ? 1 : 0) +
      (this.steps.times_ns.length > 0 ? 1 : 0) + this.tags.length;
    const beside = MARGIN.top + BELOW + rows * ROW + 10 + STRIP + 14;
    const left = window.innerHeight - (this.node.getBoundingClientRect().top + window.scrollY) - beside;
    this.plot = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: MARGIN.top + Math.max(PLOT_HIGH[0], Math.min(PLOT_HIGH[1], left)) };
    const rowsTop = this.plot.bottom + BELOW;
    const stripTop = rowsTop + rows * ROW + 10;
    this.x = d3.scaleLinear(this.window, [this.plot.left, this.plot.right]);
    this.y = d3.scaleLinear([0, this.highest()], [this.plot.bottom, this.plot.top]);
    const svg = d3.create("svg").attr("width", width).attr("height", stripTop + STRIP + 8)
      .attr("tabindex", 0).attr("role", "img").attr("id", "timeline-chart")
      .attr("aria-label", `Memory of device ${this.device.index} over time; the arrow keys move the cursor`);
    svg.append("clipPath").attr("id", "plot-clip").append("rect")
      .attr("x", this.plot.left).attr("y", 0).attr("width", this.plot.right - this.plot.left + 8).attr("height", stripTop);
    this.drawAxes(svg);
    const inside = svg.append("g").attr("clip-path", "url(#plot-clip)");
    this.drawLayers(inside);
    this.drawLines(inside, this.x, this.y);
    this.drawWaiting(inside);
    this.drawMarks(inside);
    this.drawRows(svg, inside, rowsTop);
    this.drawBrush(svg);
    this.drawStrip(svg, stripTop);
    this.drawCursor(svg, rowsTop + rows * ROW);
    svg.on("keydown", () => this.key(d3.event));
    const focused = this.node.contains(document.activeElement);
    this.node.replaceChildren(svg.node());
    if (focused) svg.node().focus();
    this.moveCursor(this.cursor);
    if (this.view.moment) this.showMoment();
  }

  drawAxes(svg) {
    const { left, right, bottom } = this.plot;
    const up = svg.append("g").attr("class", "axis");
    for (const bytes of byteTicks(this.y.domain()[1], 6)) {
      up.append("line").attr("x1", left).attr("x2", right).attr("y1", this.y(bytes)).attr("y2", this.y(bytes));
      up.append("text").attr("x", left - 8).attr("y", this.y(bytes)).attr("dy", "0.32em")
        .attr("text-anchor", "end").text(bytes === 0 ? "0" : bytesText(bytes));
    }
    const along = svg.append("g").attr("class", "axis time");
    const { step, ticks } = timeTicks(...this.window, Math.max(3, (right - left) / TICK_WIDE));
    for (const at of ticks) {
      along.append("line").attr("x1", this.x(at)).attr("x2", this.x(at)).attr("y1", bottom).attr("y2", bottom + 5);
      along.append("text").attr("x", this.x(at)).attr("y", bottom + 18).attr("text-anchor", "middle").text(tickText(at, step));
    }
  }

  // Each layer stands on those below it that are shown.
  drawLayers(parent) {
    const shown = this.layers.filter(({ key }) => !this.hidden.has(key));
    if (shown.length === 0) return;
    const width = this.survey.bucket_ns;
    const buckets = shown[0].values.map((_, i) => ({ from: Math.min(i * width, this.duration), sums: [] }));
    for (const { values } of shown) {
      buckets.forEach(({ sums }, i) => sums.push((sums.at(-1) ?? 0) + values[i]));
    }
    const ends = [...buckets, { ...buckets.at(-1), from: this.duration }];
    shown.forEach(({ key }, layer) => {
      parent.append("path").attr("class", `layer ${key}`).attr("d", d3.area().curve(d3.curveStepAfter)
        .x(({ from }) => this.x(from)).y0(({ sums }) => this.y(sums[layer - 1] ?? 0)).y1(({ sums }) => this.y(sums[layer]))(ends));
    });
  }

  drawLines(parent, x, y) {
    const points = this.points;
    const ends = points.length > 0 ? [...points, { ...points.at(-1), from: points.at(-1).to }] : [];
    for (const { key } of this.visible()) {
      if (key === "live" && this.layers.length === 0) {
        parent.append("path").attr("class", "fill live").attr("d", d3.area().curve(d3.curveStepAfter)
          .x((point) => x(point.from)).y0(y(0)).y1((point) => y(point.live.max))(ends));
      }
      parent.append("path").attr("class", `band ${key}`).attr("d", d3.area().curve(d3.curveStepAfter)
        .x((point) => x(point.from)).y0((point) => y(point[key].min)).y1((point) => y(point[key].max))(ends));
      parent.append("path").attr("class", `line ${key}`).attr("d", d3.line().curve(d3.curveStepAfter)
        .x((point) => x(point.from)).y((point) => y(point[key].max))(ends));
    }
  }

  drawWaiting(parent) {
    if (!this.waiting || this.hidden.has(WAITING.key)) return;
    const points = this.waiting.map((bytes, i) => ({ from: Math.min(i * this.survey.bucket_ns, this.duration), bytes }));
    parent.append("path").attr("class", `line ${WAITING.key}`).attr("d", d3.line().curve(d3.curveStepAfter)
      .x(({ from }) => this.x(from)).y(({ bytes }) => this.y(bytes))([...points, { ...points.at(-1), from: this.duration }]));
  }

  drawMarks(parent) {
    const { top, bottom } = this.plot;
    for (const each of this.thresholds) {
      parent.append("path").attr("class", `threshold ${each.state}`).attr("d", d3.symbol(d3.symbolDiamond, 60)())
        .attr("transform", `translate(${this.x(each.time_ns)},${this.y(each.charged_bytes)})`)
        .append("title").text(`memory ${each.state}: ${bytesText(each.charged_bytes)} charged, ${durationText(each.time_ns)}`);
    }
    const peak = this.device.peak;
    const mark = parent.append("g").attr("class", "peak");
    mark.append("line").attr("x1", this.x(peak.time_ns)).attr("x2", this.x(peak.time_ns)).attr("y1", top).attr("y2", bottom);
    const late = this.x(peak.time_ns) > (this.plot.left + this.plot.right) / 2;
    mark.append("text").attr("x", this.x(peak.time_ns) + (late ? -10 : 10)).attr("y", top - 5).text("peak of live")
      .attr("text-anchor", late ? "end" : "start");
    for (const oom of this.ooms) {
      const at = parent.append("g").attr("class", oom.recovered ? "oom recovered" : "oom")
        .attr("transform", `translate(${this.x(oom.time_ns)},0)`);
      at.append("line").attr("y1", top).attr("y2", bottom);
      at.append("path").attr("d", `M-6,${top - 10}H6L0,${top}Z`);
      at.append("title").text(`${oom.recovered ? "recovered: " : ""}${oom.sentence}`);
    }
  }

  drawRows(svg, inside, top) {
    let y = top;
    const label = (text) => svg.append("text").attr("class", "row-label").attr("x", this.plot.left - 8)
      .attr("y", y + ROW - 5).attr("text-anchor", "end").text(text);
    if (this.survey) {
      label("moments");
      for (const moment of this.survey.moments) {
        const title = `recorded: ${momentName(moment)}, ${momentText(moment.time_ns, this.duration)}, ${bytesText(moment.live_bytes)} live`;
        const mark = inside.append("g").attr("class", "moment").datum(moment)
          .on("click", () => this.view.chooseMoment(moment, moment.time_ns));
        mark.append("rect").attr("x", this.x(moment.time_ns) - 2).attr("y", y).attr("width", 4).attr("height", ROW - 3);
        mark.append("title").text(title);
      }
      y += ROW;
    }
    if (this.moves.length > 0) {
      label("spill moves");
      for (const move of this.moves) {
        // Told when it was done.
        const least = (LEAST_MARK * (this.window[1] - this.window[0])) / (this.plot.right - this.plot.left);
        const from = Math.max(0, move.time_ns - move.held_ns);
        const what = move.down ? "moved to host memory" : "moved back to the device";
        this.span(inside, move.down ? "move down" : "move up", y, from, Math.max(move.time_ns, from + least), "",
          `${bytesText(move.bytes)} ${what}, work held for ${durationText(move.held_ns)}`);
      }
      y += ROW;
    }
    if (this.host > 0) {
      label("on the host");
      const height = d3.scaleLinear([0, this.host], [y + ROW - 3, y]);
      const buckets = this.survey.host_bytes.map((bytes, i) => ({ from: Math.min(i * this.survey.bucket_ns, this.duration), bytes }));
      inside.append("path").attr("class", "host").attr("d", d3.area().curve(d3.curveStepAfter).x(({ from }) => this.x(from))
        .y0(height(0)).y1(({ bytes }) => height(bytes))([...buckets, { ...buckets.at(-1), from: this.duration }]))
        .append("title").text(`Host memory behind the device's addresses: at most ${bytesText(this.host)}`);
      y += ROW;
    }
    const times = this.steps.times_ns;
    if (times.length > 0) {
      label("steps");
      times.forEach((at, i) => {
        const name = countText(i * this.steps.every + 1);
        this.span(inside, `step ${i % 2 ? "odd" : "even"}`, y, at, times[i + 1] ?? this.duration, name, `step ${name}`);
      });
      y += ROW;
    }
    this.tags.forEach((row, i) => {
      if (i === 0) label(TAG_LABEL);
      for (const range of row.ranges) this.span(inside, "tag", y, range.begin_ns, range.end_ns, range.name, range.name);
      y += ROW;
    });
  }

  span(parent, kind, y, from, to, name, title) {
    const left = Math.max(this.plot.left, this.x(from));
    const width = Math.min(this.plot.right, this.x(to)) - left;
    if (width <= 0) return;
    const group = parent.append("g").attr("class", kind);
    group.append("rect").attr("x", left).attr("y", y).attr("width", Math.max(1, width - 1)).attr("height", ROW - 3);
    group.append("title").text(`${title}: ${momentText(from, this.duration)} to ${momentText(to, this.duration)}, ${durationText(to - from)}`);
    if (width > 7 * name.length + 6) group.append("text").attr("x", left + 4).attr("y", y + ROW - 6).text(name);
  }

  drawBrush(svg) {
    const { left, right, top, bottom } = this.plot;
    const brush = d3.brushX().extent([[left, top], [right, bottom]]).on("end", () => {
      const chosen = d3.event.selection;
      if (chosen) this.view.zoom(this.x.invert(chosen[0]), this.x.invert(chosen[1]));
      else if (d3.event.sourceEvent) this.choose(this.x.invert(d3.mouse(svg.node())[0]));
    });
    svg.append("g").attr("class", "brush").call(brush)
      .on("mousemove", () => this.moveCursor(this.x.invert(d3.mouse(svg.node())[0])))
      .on("dblclick", () => this.view.zoom(0, this.duration));
  }

  choose(time) {
    this.moveCursor(time);
    this.view.chooseTime(this.cursor);
  }

  showMoment() {
    const chosen = this.view.moment;
    d3.select(this.node).selectAll(".moment").classed("chosen", (moment) => moment === chosen);
    this.momentLine?.attr("x1", this.x(chosen.time_ns)).attr("x2", this.x(chosen.time_ns))
      .attr("visibility", chosen.time_ns < this.window[0] || chosen.time_ns > this.window[1] ? "hidden" : "visible");
  }

  drawStrip(svg, top) {
    const { left, right } = this.plot;
    const x = d3.scaleLinear([0, this.duration], [left, right]);
    const most = d3.max(this.points, (point) => point.charged.max) ?? 1;
    const y = d3.scaleLinear([0, most], [top + STRIP, top]);
    const strip = svg.append("g").attr("class", "strip");
    strip.append("rect").attr("class", "ground").attr("x", left).attr("y", top).attr("width", right - left).attr("height", STRIP);
    const hidden = this.hidden;
    this.hidden = new Set(["cap", "reserved"]);
    this.drawLines(strip, x, y);
    this.hidden = hidden;
    svg.append("text").attr("class", "row-label").attr("x", left - 8).attr("y", top + 22).attr("text-anchor", "end").text("whole run");
    const brush = d3.brushX().extent([[left, top], [right, top + STRIP]]);
    const group = strip.append("g").attr("class", "window").call(brush);
    const whole = this.window[0] === 0 && this.window[1] === this.duration;
    if (!whole) group.call(brush.move, this.window.map(x));
    brush.on("end", () => {
      const chosen = d3.event.selection;
      if (chosen) this.view.zoom(x.invert(chosen[0]), x.invert(chosen[1]));
      else if (d3.event.sourceEvent) this.view.zoom(0, this.duration);
    });
  }

  drawCursor(svg, bottom) {
    if (this.view.moment) {
      this.momentLine = svg.append("line").attr("class", "moment-line").attr("y1", this.plot.top).attr("y2", bottom);
    }
    this.cursorLine = svg.append("line").attr("class", "cursor").attr("y1", this.plot.top).attr("y2", bottom);
  }

  moveCursor(time) {
    this.cursor = Math.max(0, Math.min(this.duration, time));
    const at = this.x(this.cursor);
    this.cursorLine.attr("x1", at).attr("x2", at)
      .attr("visibility", at < this.plot.left - 1 || at > this.plot.right + 1 ? "hidden" : "visible");
    const index = d3.bisector((point) => point.from).right(this.points, this.cursor) - 1;
    const point = this.points[Math.max(0, index)];
    if (!point) return;
    this.readout.replaceChildren(
      element("span", {}, "at ", element("b", {}, momentText(this.cursor, this.window[1] - this.window[0]))),
      ...LINES.map(({ key, title }) => {
        const { min, max, last } = point[key];
        const range = min === max ? bytesText(last) : `${bytesText(min)} to ${bytesText(max)}`;
        return element("span", {}, element("span", { class: `swatch ${key}` }), ` ${title} `, element("b", {}, range));
      }));
    const bucket = this.survey ? Math.floor(this.cursor / this.survey.bucket_ns) : 0;
    // Those that are 0 too: the chart must not move under the pointer.
    const told = ({ key, title, values }, swatch) => element("span", {}, element("span", { class: `swatch ${swatch}` }), ` ${title} `,
      element("b", {}, bytesText(values[Math.min(bucket, values.length - 1)])));
    this.kindReadout.replaceChildren(...this.layers.map((layer) => told(layer, `layer ${layer.key}`)),
      ...(this.waiting ? [told({ ...WAITING, values: this.waiting }, WAITING.key)] : []));
  }

  key(event) {
    const span = this.window[1] - this.window[0];
    const move = (to) => {
      if (to < this.window[0] || to > this.window[1]) this.view.zoom(to - span / 2, to + span / 2);
      this.moveCursor(to);
    };
    const keys = {
      ArrowLeft: () => move(Math.max(0, this.cursor - span / 200)),
      ArrowRight: () => move(Math.min(this.duration, this.cursor + span / 200)),
      Enter: () => this.choose(this.cursor),
      Home: () => move(0),
      End: () => move(this.duration),
      ...this.view.zoomKeys(this.cursor),
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      keys[event.key]();
    }
  }
}

// Returns what draws it again, once what stands above it has its place.
function showTimeline(view) {
  const timeline = new Timeline(view);
  timeline.show();
  return () => timeline.draw();
}
