// SPDX-License-Identifier: Apache-2.0
// Flame graphs: bytes by the stacks that asked for them. One of what was live at a recorded moment,
// and one of what grew.

const FLAME_ROW = 19;
const FLAME_FONT = "12px system-ui, \"DejaVu Sans\", sans-serif"; // as the style sheet has it
const LEAST_WIDTH = 3; // narrower ones are not drawn; their parents' widths tell of them

// torch.nn.modules: every call of a module goes through it, and it is nobody's own code.
function isOfModules(frame) {
  return frame.file !== null && frame.file.includes("/torch/nn/modules/");
}

// Outermost frame first.
function stackOf(site, frames, { pythonOnly, withoutModules }) {
  const all = site.frames.map((number) => frames[number]).reverse();
  const python = all.filter((frame) => frame.language === "python");
  const chosen = pythonOnly && python.length > 0 ? python : all;
  const others = chosen.filter((frame) => !isOfModules(frame));
  const shown = withoutModules && others.length > 0 ? others : chosen;
  if (shown.length > 0) return shown.map((frame) => ({ name: frameName(frame), frame }));
  return [{ name: site.place, frame: null }];
}

function treeOf(sites, frames, options) {
  const root = { name: "all", frame: null, bytes: 0, own: 0, children: new Map() };
  for (const site of sites) {
    const { bytes } = site;
    const stack = stackOf(site, frames, options);
    if (options.inverted) stack.reverse();
    let node = root;
    node.bytes += bytes;
    for (const { name, frame } of stack) {
      if (!node.children.has(name)) node.children.set(name, { name, frame, bytes: 0, own: 0, children: new Map() });
      node = node.children.get(name);
      node.bytes += bytes;
    }
    node.own += bytes;
  }
  return root;
}

// id: of its elements. sites: with their bytes. commons: frames that are marked.
class Flame {
  constructor(id, frames, sites, commons = []) {
    this.id = id;
    this.frames = frames;
    this.sites = sites;
    this.commons = commons;
    this.hasPython = frames.some((frame) => frame.language === "python");
    this.hasModules = frames.some(isOfModules);
    this.options = { pythonOnly: this.hasPython, withoutModules: true, inverted: false };
    this.query = "";
    this.ruler = document.createElement("canvas").getContext("2d");
    this.ruler.font = FLAME_FONT;
    this.node = element("div", { class: "chart" });
    this.readout = element("div", { class: "readout", role: "status" });
    this.build();
  }

  // Others: the same options, all of it in sight.
  take(sites) {
    this.sites = sites;
    this.build();
    this.draw();
  }

  build() {
    const tree = treeOf(this.sites, this.frames, this.options);
    this.root = d3.hierarchy(tree, (node) => [...node.children.values()]).sum((node) => node.own)
      .sort((a, b) => b.value - a.value);
    d3.partition()(this.root);
    this.focus = this.root;
  }

  // Its controls, its readout and itself.
  parts() {
    const option = (key, text, title) => element("label", { title }, element("input", {
      type: "checkbox", checked: this.options[key],
      onchange: (event) => { this.options[key] = event.target.checked; this.build(); this.draw(); },
    }), ` ${text}`);
    return [
      element("div", { class: "controls" },
        element("label", {}, "Search ", element("input", {
          type: "search", id: `${this.id}-search`, placeholder: "function or file",
          oninput: (event) => { this.query = event.target.value.toLowerCase(); this.draw(); },
        })),
        this.hasPython ? option("pythonOnly", "Python only", "Leave native functions out where a stack has Python ones") : null,
        this.hasModules ? option("withoutModules", "without torch.nn.modules", "Leave out the frames by which PyTorch calls a module") : null,
        option("inverted", "innermost first", "Who asked for memory above, their callers below"),
        ["python", "native"].map((language) => element("span", { class: "key" },
          element("span", { class: `swatch ${language}` }), ` ${language}`)),
        element("span", { class: "key" }, element("span", { class: "swatch found" }), " found by the search"),
        this.commons.length > 0 ? element("span", { class: "key" }, element("span", { class: "swatch common" }), " the line that keeps it") : null),
      this.readout, this.node];
  }

  matches(node) {
    if (!this.query) return false;
    return `${node.data.name} ${node.data.frame?.file ?? ""}`.toLowerCase().includes(this.query);
  }

  // Of what matches, the outermost: the inner ones are in it.
  matchedBytes() {
    const sum = (node) => (this.matches(node) ? node.value : d3.sum(node.children ?? [], sum));
    return sum(this.root);
  }

  draw() {
    const width = Math.max(480, this.node.clientWidth || 960);
    const focus = this.focus;
    const x = d3.scaleLinear([focus.x0, focus.x1], [0, width]);
    const within = focus.descendants().filter((node) => x(node.x1) - x(node.x0) >= LEAST_WIDTH);
    const shown = [...focus.ancestors().slice(1), ...within];
    const deepest = d3.max(shown, (node) => node.depth) ?? 0;
    const svg = d3.create("svg").attr("width", width).attr("height", (deepest + 1) * FLAME_ROW)
      .attr("id", `${this.id}-chart`).attr("role", "group");
    for (const node of shown) this.bar(svg, node, x, width);
    this.node.replaceChildren(svg.node());
    this.tell(focus);
  }

  bar(svg, node, x, width) {
    const left = Math.max(0, x(node.x0));
    const wide = Math.min(width, x(node.x1)) - left;
    const kind = node.data.frame ? node.data.frame.language : "none";
    const found = this.matches(node);
    const name = node === this.root ? `all: ${bytesText(node.value)}` : node.data.name;
    const { frame } = node.data;
    const common = frame !== null && this.commons.some((each) => each.file === frame.file && each.line === frame.line);
    const group = svg.append("g").attr("class", `frame ${kind}${common ? " common" : ""}${found ? " found" : ""}${this.query && !found ? " dim" : ""}`)
      .attr("tabindex", 0).attr("role", "button").attr("aria-label", `${name}, ${bytesText(node.value)}`)
      .attr("transform", `translate(${left},${node.depth * FLAME_ROW})`)
      .on("click", () => this.enlarge(node))
      .on("keydown", () => { if (d3.event.key === "Enter") this.enlarge(node); })
      .on("mouseenter", () => this.tell(node)).on("focus", () => this.tell(node));
    group.append("rect").attr("width", Math.max(0.5, wide - 1)).attr("height", FLAME_ROW - 1);
    const text = this.fitted(name, wide - 8);
    // In a picture of its own, which cuts off what its font makes wider than was measured.
    if (text) group.append("svg").attr("width", wide - 2).attr("height", FLAME_ROW).append("text").attr("x", 4).attr("y", FLAME_ROW - 6).text(text);
  }

  // As much of a name as so many pixels hold; nothing where that is too little to read.
  fitted(name, pixels) {
    const needed = this.ruler.measureText(name).width;
    if (needed <= pixels) return name;
    const room = Math.floor((name.length * pixels) / needed) - 1;
    return room >= 3 ? `${name.slice(0, room)}\u2026` : "";
  }

  enlarge(node) {
    this.focus = node;
    this.draw();
  }

  tell(node) {
    const frame = node.data.frame;
    const place = frame ? frame.file ? `${frame.file}${frame.line ? `:${frame.line}` : ""}` : frame.module ?? "" : "";
    tellIn(this.readout,
      element("span", {}, element("b", {}, bytesText(node.value)),
        ` ${percentText(node.value, this.root.value)} of ${bytesText(this.root.value)}`),
      element("span", {}, frame ? frame.function : node.data.name),
      place ? element("span", { class: "quiet" }, place) : null,
      this.query ? element("span", { id: `${this.id}-found` }, "found: ", element("b", {}, bytesText(this.matchedBytes())),
        ` ${percentText(this.matchedBytes(), this.root.value)}`) : null);
  }
}

function showFlame(view) {
  const flame = new Flame("flame", view.process.frames, liveAt(view, view.moment));
  const moment = element("b", { id: "flame-moment" }, momentTitle(view));
  replace("flame",
    heading("Who held that memory",
      "Each bar is a function; its width is the bytes that it and the functions it called had asked for and not freed. Callers stand " +
      "above those they called. Click a bar to enlarge it, the topmost to go back. Shown: the moment chosen above, ", moment),
    flame.parts());
  view.onMoment.push(() => {
    moment.textContent = momentTitle(view);
    flame.take(liveAt(view, view.moment));
  });
  flame.draw();
}
