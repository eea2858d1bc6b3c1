// SPDX-License-Identifier: Apache-2.0
// The segment map: addresses against time, and who keeps free memory from being used.

const MAP_STATES = [
  { key: "nothing", title: "no memory", note: "Not reserved then" },
  { key: "live", title: "live", note: "In use, in the colour of its kind; fainter where only a part of it is" },
  { key: "hole", title: "backed hole", note: "Backed by device memory, and nothing in it is live" },
  { key: "taken", title: "hole taken back", note: "A hole whose device memory was taken for use elsewhere" },
  { key: "spilled", title: "spilled", note: "Live, moved to host memory; its address is the same" },
  { key: "onhost", title: "hole on the host", note: "Free, and backed by host memory" },
];
const [MAP_NOTHING, MAP_LIVE, , , MAP_SPILLED, MAP_HOLE_ON_HOST] = MAP_STATES.keys();
const SHARES = 8; // of a cell, as format_survey.c tells it
const CELL_HIGH = 3; // pixels
const FAINTEST = 0.35;
const IN_MEMORY = { willReadFrequently: true }; // so small that a graphics card is no help
const MAP_POINT = "Point at the map, or move there with the arrow keys.";

// From runs of equal cells to one cell a column.
function cellsOf(row) {
  const cells = [];
  for (let i = 0; i < row.length; i += 4) {
    const state = row[i] === MAP_SPILLED && row[i + 1] === 0 ? MAP_HOLE_ON_HOST : row[i];
    for (let n = 0; n < row[i + 3]; n++) cells.push({ state, share: row[i + 1], site: row[i + 2] });
  }
  return cells;
}

class SegmentMap {
  constructor(view) {
    this.view = view;
    // What came and went between two columns has nothing to show.
    this.segments = view.survey.segments.map((segment) => ({ ...segment, cells: segment.rows.map(cellsOf) }))
      .filter(({ cells }) => cells.some((row) => row.some(({ state }) => state !== MAP_NOTHING)));
    this.columns = d3.max(this.segments, ({ cells }) => d3.max(cells, (row) => row.length)) ?? 1;
    this.columnNs = view.duration / this.columns;
    this.readout = element("div", { class: "readout", role: "status", id: "map-readout" }, MAP_POINT);
    this.node = element("div", { class: "chart", id: "map-chart" });
    this.axis = element("div");
    this.cursor = null;
  }

  show() {
    const there = (state) => this.segments.some(({ cells }) => cells.some((row) => row.some((cell) => cell.state === state)));
    const kinds = KINDS.filter((kind) => this.segments.some(({ cells }) => cells.some((row) =>
      row.some((cell) => cell.state === MAP_LIVE && this.view.sites.get(cell.site).kind === kind))));
    replace("map",
      heading("Where memory lay: addresses over time",
        "Each picture is one range of addresses, the lowest at the bottom; across is time, the same part of the run as in the timeline. " +
        `A cell, ${durationText(this.columnNs)} wide, shows what most of its bytes were at the end of its time, fainter where only a part ` +
        "of them was live. Holes between live memory are what fragmentation is. Drag to enlarge, double-click shows all, a click chooses " +
        "a moment; with the keyboard: arrows move cell by cell, Enter is the click, + and - enlarge, 0 shows all."),
      element("div", { class: "controls" },
        kinds.map((kind) => element("span", { class: "key" }, element("span", { class: `swatch layer ${kindClass(kind)}` }), ` ${kind}`)),
        MAP_STATES.filter((_, state) => state !== MAP_LIVE && there(state)).map(({ key, title, note }) => element("span", { class: "key", title: note },
          element("span", { class: `swatch map-${key}` }), ` ${title}`)),
        element("span", { class: "key" }, element("span", { class: "sign moment" }, "\u2502"), " the moment chosen above")),
      this.readout, this.node);
    this.parts = this.segments.map((segment, i) => this.part(segment, i));
    this.node.replaceChildren(...this.parts.map(({ node }) => node), this.axis);
    this.view.onTheme.push(() => { this.paint(); this.draw(); });
    this.view.onZoom.push(() => this.draw());
    this.view.onMoment.push(() => this.markMoment());
    this.paint();
    this.draw();
  }

  part(segment, number) {
    const { cells } = segment;
    const high = CELL_HIGH * cells.length;
    const name = `${segment.framework ? "The framework's arena" : "Segment"} ${number + 1}`;
    const part = { segment, picture: element("canvas", { width: this.columns, height: cells.length }), canvas: element("canvas"),
      svg: d3.create("svg").attr("height", high).attr("aria-hidden", "true") };
    part.cells = element("div", { class: "cells" }, part.canvas, part.svg.node());
    part.cells.style.height = `${high}px`;
    part.node = element("div", {
      class: "segment", tabindex: 0, role: "group",
      "aria-label": `${name}, ${bytesText(segment.bytes)} of addresses from ${segment.address}`,
      onkeydown: (event) => this.key(event, segment),
    }, element("p", { class: "segment-name" }, element("b", {}, name), ` from ${segment.address}: `,
      element("b", {}, bytesText(segment.bytes)), ` of addresses, ${bytesText(segment.bytes / cells.length)} a row`),
    element("span", { class: "scale top" }, bytesText(segment.bytes)), part.cells, element("span", { class: "scale bottom" }, "0"));
    return part;
  }

  // Colours as the style sheet has them in this theme.
  colours() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      kinds: Object.fromEntries(KINDS.map((kind) => [kind, d3.rgb(value(`--${kindClass(kind)}`))])),
      states: MAP_STATES.map(({ key }) => d3.rgb(value(`--map-${key}`) || value("--ground"))),
      ground: d3.rgb(value("--map-hole")),
    };
  }

  colourOf(cell, { kinds, states, ground }) {
    if (cell.state !== MAP_LIVE) return states[cell.state] ?? states[MAP_NOTHING];
    const colour = kinds[this.view.sites.get(cell.site).kind] ?? kinds.unknown;
    return d3.rgb(d3.interpolateRgb(ground, colour)(FAINTEST + ((1 - FAINTEST) * cell.share) / SHARES));
  }

  // One pixel a cell, which the browser enlarges.
  paint() {
    const colours = this.colours();
    for (const { segment: { cells }, picture } of this.parts) {
      const context = picture.getContext("2d", IN_MEMORY);
      const image = context.createImageData(this.columns, cells.length);
      cells.forEach((row, i) => row.forEach((cell, column) => {
        const { r, g, b } = this.colourOf(cell, colours);
        image.data.set([r, g, b, 255], 4 * ((cells.length - 1 - i) * this.columns + column));
      }));
      context.putImageData(image, 0, 0);
    }
  }

  // The columns in the window that is shown.
  draw() {
    const width = Math.max(320, this.node.clientWidth || 960);
    const [left, right] = [MARGIN.left, width - MARGIN.right];
    const [from, to] = this.view.window;
    this.x = d3.scaleLinear([from, to], [0, right - left]);
    const first = Math.floor(from / this.columnNs);
    const count = Math.max(1, Math.min(this.columns, Math.ceil(to / this.columnNs)) - first);
    for (const { segment, picture, canvas, cells, svg } of this.parts) {
      canvas.width = count;
      canvas.height = segment.cells.length;
      canvas.getContext("2d", IN_MEMORY).drawImage(picture, -first, 0);
      Object.assign(cells.style, { marginLeft: `${left}px`, width: `${right - left}px` });
      Object.assign(canvas.style, { left: `${this.x(first * this.columnNs)}px`, width: `${this.x(from + count * this.columnNs)}px`,
        height: `${CELL_HIGH * segment.cells.length}px` });
      this.drawBrush(segment, svg, right - left);
    }
    this.axis.replaceChildren(this.axisOf(width));
    this.markMoment();
  }

  drawBrush(segment, svg, width) {
    const high = CELL_HIGH * segment.cells.length;
    svg.attr("width", width).selectAll("*").remove();
    const time = () => this.x.invert(d3.mouse(svg.node())[0]);
    const brush = d3.brushX().extent([[0, 0], [width, high]]).on("end", () => {
      const chosen = d3.event.selection;
      if (chosen) this.view.zoom(this.x.invert(chosen[0]), this.x.invert(chosen[1]));
      else if (d3.event.sourceEvent) this.view.chooseTime(time());
    });
    svg.append("g").attr("class", "brush").call(brush)
      .on("mousemove", () => this.tell(segment, Math.floor(time() / this.columnNs),
        segment.cells.length - 1 - Math.floor(d3.mouse(svg.node())[1] / CELL_HIGH)))
      .on("dblclick", () => this.view.zoom(0, this.view.duration));
    svg.append("line").attr("class", "moment-line").attr("y1", 0).attr("y2", high);
  }

  markMoment() {
    const { moment, window: [from, to] } = this.view;
    for (const { svg } of this.parts) {
      svg.select(".moment-line").attr("x1", this.x(moment.time_ns)).attr("x2", this.x(moment.time_ns))
        .attr("visibility", moment.time_ns < from || moment.time_ns > to ? "hidden" : "visible");
    }
  }

  axisOf(width) {
    const svg = d3.create("svg").attr("width", width).attr("height", 24).attr("aria-hidden", "true");
    const { step, ticks } = timeTicks(...this.view.window, Math.max(3, (width - MARGIN.left - MARGIN.right) / TICK_WIDE));
    const along = svg.append("g").attr("class", "axis time");
    for (const at of ticks) {
      const x = MARGIN.left + this.x(at);
      along.append("line").attr("x1", x).attr("x2", x).attr("y1", 0).attr("y2", 5);
      along.append("text").attr("x", x).attr("y", 18).attr("text-anchor", "middle").text(tickText(at, step));
    }
    return svg.node();
  }

  key(event, segment) {
    const from = this.cursor ?? { column: Math.floor(this.columns / 2), row: 0 };
    const time = (from.column + 1) * this.columnNs;
    const step = (column, row) => () => this.tell(segment, from.column + column, from.row + row);
    const keys = {
      ArrowLeft: step(-1, 0), ArrowRight: step(1, 0), ArrowUp: step(0, 1), ArrowDown: step(0, -1),
      Enter: () => this.view.chooseTime(time), ...this.view.zoomKeys(time),
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  tell(segment, column, row) {
    this.cursor = {
      column: Math.max(0, Math.min(this.columns - 1, column)),
      row: Math.max(0, Math.min(segment.cells.length - 1, row)),
    };
    const cell = segment.cells[this.cursor.row][this.cursor.column] ?? { state: MAP_NOTHING, share: 0, site: 0 };
    const high = segment.bytes / segment.cells.length;
    const site = cell.state === MAP_LIVE || cell.state === MAP_SPILLED || cell.site ? this.view.sites.get(cell.site) : null;
    const time = (this.cursor.column + 1) * this.columnNs;
    tellIn(this.readout,
      element("span", {}, "at ", element("b", {}, momentText(time, this.view.window[1] - this.view.window[0]))),
      element("span", {}, `${bytesText(high * this.cursor.row)} to ${bytesText(high * (this.cursor.row + 1))} from the bottom`),
      element("span", {}, element("b", {}, MAP_STATES[cell.state]?.title ?? "not known"),
        cell.share > 0 && cell.share < SHARES ? `, ${percentText(cell.share, SHARES)} of it live` : ""),
      site && cell.share > 0 ? element("span", {}, "most of it by ", element("b", {}, site.place), ` (${site.kind})`) : null,
      site && cell.share > 0 && site.tag ? element("span", { class: "quiet" }, site.tag) : null);
  }
}

function showMap(view) {
  if (!view.survey || view.survey.segments.length === 0) {
    replace("map");
    return;
  }
  new SegmentMap(view).show();
}

// Whose live tensors keep free bytes beside them from being given back.
function pinTable(view) {
  const pins = view.survey?.pins;
  if (!pins || pins.sites.length === 0) return null;
  const rows = pins.sites.map((pin) => ({ ...view.sites.get(pin.site), ...pin }));
  return groupedTable(view, "pins", "Who pins free memory", rows, [
    { key: "pinned_bytes", title: "Free bytes pinned", number: bytesText, share: pins.backed_hole_bytes, sum: true },
    { key: "live_bytes", title: "Live there", number: bytesText, sum: true },
    { key: "tensors", title: "Tensors", number: countText, sum: true },
  ], {
    sortBy: "pinned_bytes",
    explanation: `At ${momentText(pins.time_ns, view.report.process.duration_ns)}, ${bytesText(pins.backed_hole_bytes)} of device memory lay ` +
      "free in arenas that a framework could not give back as long as one tensor in them lived. Of each arena's free bytes " +
      "every tensor that was live in it counts an equal part.",
  });
}

function arenaTable(view) {
  const pins = view.survey?.pins;
  if (!pins || pins.arenas.length === 0) return null;
  const rows = pins.arenas.map((arena) => ({ ...arena, holders: arena.sites.map((id) => view.sites.get(id).place).join(", ") }));
  return table("arenas", "The arenas with most free memory, at that moment", rows, [
    { key: "address", title: "From" },
    { key: "bytes", title: "Size", number: bytesText },
    { key: "live_bytes", title: "Live", number: bytesText },
    { key: "backed_hole_bytes", title: "Backed holes", number: bytesText, share: pins.backed_hole_bytes },
    { key: "taken_hole_bytes", title: "Holes taken back", number: bytesText },
    { key: "largest_hole_bytes", title: "Largest hole", number: bytesText },
    { key: "tensors", title: "Tensors", number: countText },
    { key: "holders", title: "Most of it live by", wide: true },
  ], { sortBy: "backed_hole_bytes", rowsAtFirst: 10, short: "Arenas" });
}
