// The segment map: addresses against time, and who keeps free memory from being used.

const MAP_STATES = [
  { key: "nothing", title: "no memory", note: "Not reserved then" },
  { key: "live", title: "live", note: "In use, in the colour of its kind; fainter where only a part of it is" },
  { key: "hole", title: "backed hole", note: "Device memory stands behind it, and nothing in it is live" },
  { key: "taken", title: "hole taken back", note: "A hole whose device memory was taken for use elsewhere" },
  { key: "spilled", title: "spilled", note: "Live, moved to host memory; its address is the same" },
  { key: "onhost", title: "hole on the host", note: "Free, and backed by host memory" },
];
const [MAP_NOTHING, MAP_LIVE, , , MAP_SPILLED, MAP_HOLE_ON_HOST] = MAP_STATES.keys();
const SHARES = 8; // of a cell, as format_survey.c tells it
const MAP_WIDE = 84; // pixels to the left of the cells, as in the timeline
const CELL_HIGH = 3;
const FAINTEST = 0.35;

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
    this.duration = Math.max(view.report.process.duration_ns, 1);
    // What came and went between two columns has nothing to show.
    this.segments = view.survey.segments.map((segment) => ({ ...segment, cells: segment.rows.map(cellsOf) }))
      .filter(({ cells }) => cells.some((row) => row.some(({ state }) => state !== MAP_NOTHING)));
    this.columns = d3.max(this.segments, ({ cells }) => d3.max(cells, (row) => row.length)) ?? 0;
    this.readout = element("div", { class: "readout", role: "status", id: "map-readout" });
    this.node = element("div", { class: "chart", id: "map-chart" });
    this.cursor = null;
  }

  show() {
    const there = (state) => this.segments.some(({ cells }) => cells.some((row) => row.some((cell) => cell.state === state)));
    const kinds = KINDS.filter((kind) => this.segments.some(({ cells }) => cells.some((row) =>
      row.some((cell) => cell.state === MAP_LIVE && this.view.sites.get(cell.site).kind === kind))));
    replace("map",
      heading("Where it lay: addresses over time",
        "Each block below is one range of addresses, the lowest at the bottom; across is the whole run. A cell shows what most of " +
        "its bytes were at the end of its time. Holes between live memory are what fragmentation is. Point at a cell, or move with " +
        "the arrow keys, to see whose it is."),
      element("div", { class: "controls" },
        kinds.map((kind) => element("span", { class: "key" }, element("span", { class: `swatch layer ${kindClass(kind)}` }), ` ${kind}`)),
        MAP_STATES.filter((_, state) => state !== MAP_LIVE && there(state)).map(({ key, title, note }) => element("span", { class: "key", title: note },
          element("span", { class: `swatch map-${key}` }), ` ${title}`))),
      this.readout, this.node);
    this.view.onTheme.push(() => this.draw());
    this.draw();
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

  draw() {
    const width = Math.max(480, this.node.clientWidth || 960);
    this.x = d3.scaleLinear([0, this.duration], [MAP_WIDE - 8, width - 16]);
    const colours = this.colours();
    this.node.replaceChildren(...this.segments.map((segment, i) => this.segment(segment, i, colours)), this.axis(width));
    this.readout.textContent = "Point at the map.";
  }

  // One pixel a cell, which the browser enlarges.
  segment(segment, number, colours) {
    const canvas = element("canvas", { width: this.columns, height: segment.cells.length });
    const context = canvas.getContext("2d");
    const image = context.createImageData(this.columns, segment.cells.length);
    segment.cells.forEach((row, i) => row.forEach((cell, column) => {
      const { r, g, b } = this.colourOf(cell, colours);
      image.data.set([r, g, b, 255], 4 * ((segment.cells.length - 1 - i) * this.columns + column));
    }));
    context.putImageData(image, 0, 0);
    const [left, right] = this.x.range();
    Object.assign(canvas.style, { marginLeft: `${left}px`, width: `${right - left}px`, height: `${CELL_HIGH * segment.cells.length}px` });
    const name = `${segment.framework ? "Range of the framework's own" : "Segment"}, ${number + 1}`;
    const node = element("div", {
      class: "segment", tabindex: 0, role: "group",
      "aria-label": `${name}, ${bytesText(segment.bytes)} of addresses from ${segment.address}`,
      onmousemove: (event) => {
        const box = canvas.getBoundingClientRect();
        this.tell(segment, Math.floor(((event.clientX - box.left) / box.width) * this.columns),
          segment.cells.length - 1 - Math.floor(((event.clientY - box.top) / box.height) * segment.cells.length));
      },
      onkeydown: (event) => this.key(event, segment),
    }, element("p", { class: "segment-name" }, element("b", {}, name), ` from ${segment.address}, `,
      element("b", {}, bytesText(segment.bytes)), " of addresses"), canvas);
    return node;
  }

  axis(width) {
    const svg = d3.create("svg").attr("width", width).attr("height", 24).attr("aria-hidden", "true");
    const { step, ticks } = timeTicks(0, this.duration, Math.max(3, width / 110));
    const along = svg.append("g").attr("class", "axis time");
    for (const at of ticks) {
      along.append("line").attr("x1", this.x(at)).attr("x2", this.x(at)).attr("y1", 0).attr("y2", 5);
      along.append("text").attr("x", this.x(at)).attr("y", 18).attr("text-anchor", "middle").text(tickText(at, step));
    }
    return svg.node();
  }

  key(event, segment) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const from = this.cursor ?? { column: Math.floor(this.columns / 2), row: 0 };
    this.tell(segment, from.column + move[0], from.row + move[1]);
  }

  tell(segment, column, row) {
    this.cursor = {
      column: Math.max(0, Math.min(this.columns - 1, column)),
      row: Math.max(0, Math.min(segment.cells.length - 1, row)),
    };
    const cell = segment.cells[this.cursor.row][this.cursor.column] ?? { state: MAP_NOTHING, share: 0, site: 0 };
    const high = segment.bytes / segment.cells.length;
    const site = cell.state === MAP_LIVE || cell.state === MAP_SPILLED || cell.site ? this.view.sites.get(cell.site) : null;
    const time = ((this.cursor.column + 1) * this.duration) / this.columns;
    this.readout.replaceChildren(...[
      element("span", {}, "at ", element("b", {}, momentText(time, this.duration))),
      element("span", {}, `${bytesText(high * this.cursor.row)} to ${bytesText(high * (this.cursor.row + 1))} from the bottom`),
      element("span", {}, element("b", {}, MAP_STATES[cell.state]?.title ?? "not known"),
        cell.share > 0 && cell.share < SHARES ? `, ${percentText(cell.share, SHARES)} of it live` : ""),
      site && cell.share > 0 ? element("span", {}, "most of it by ", element("b", {}, site.place), ` (${site.kind})`) : null,
      site && cell.share > 0 && site.tag ? element("span", { class: "quiet" }, site.tag) : null,
    ].filter(Boolean));
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
