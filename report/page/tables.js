// Tables that can be sorted, filtered and copied.

const ROWS_AT_FIRST = 25;

// columns: key, title; `number` formats numbers (aligned right, largest first); `share` of a whole
// is drawn as a bar behind the number.
// details: of a row, the lines that a click on it shows below. beside: more controls.
function table(id, title, rows, columns, { explanation = "", sortBy = null, details = null, beside = null } = {}) {
  const state = { column: columns.find(({ key }) => key === sortBy) ?? null, down: true, filter: "", all: false };
  const body = element("tbody");
  const count = element("span", { class: "quiet" });
  const more = button("Show all", "All rows", () => { state.all = true; draw(); });
  const cell = (row, { key, number }) => (number ? number(row[key] ?? 0, row) : String(row[key] ?? ""));
  const chosen = () => {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => {
      const text = columns.map((column) => cell(row, column)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (!state.column) return found;
    const { key, number } = state.column;
    const order = (a, b) => (number ? (a[key] ?? -1) - (b[key] ?? -1) : String(a[key] ?? "").localeCompare(String(b[key] ?? "")));
    return found.sort((a, b) => (state.down ? order(b, a) : order(a, b)));
  };
  const rowOf = (row) => {
    const cells = columns.map((column) => {
      const share = column.share ? Math.max(0, Math.min(1, (row[column.key] ?? 0) / column.share)) : 0;
      return element("td", {
        class: column.number ? "number" : column.wide ? "wide" : null,
        title: column.title_of ? column.title_of(row) : null,
        style: share > 0 ? `--share: ${(100 * share).toFixed(2)}%` : null,
      }, cell(row, column));
    });
    const text = details ? details(row) : "";
    if (!text) return element("tr", {}, cells);
    const node = element("tr", { class: "more", tabindex: 0, "aria-expanded": "false" }, cells);
    const toggle = () => {
      const open = node.getAttribute("aria-expanded") === "true";
      if (open) node.nextSibling.remove();
      else node.after(element("tr", { class: "stack" }, element("td", { colspan: columns.length }, text)));
      node.setAttribute("aria-expanded", String(!open));
    };
    node.addEventListener("click", toggle);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
    return node;
  };
  const draw = () => {
    const found = chosen();
    const shown = state.all ? found : found.slice(0, ROWS_AT_FIRST);
    body.replaceChildren(...shown.map(rowOf));
    count.textContent = found.length === rows.length ? `${countText(rows.length)} rows` : `${countText(found.length)} of ${countText(rows.length)} rows`;
    more.hidden = shown.length === found.length;
    heads.forEach((head, i) => head.setAttribute("aria-sort",
      columns[i] !== state.column ? "none" : state.down ? "descending" : "ascending"));
  };
  const heads = columns.map((column) => element("th", { scope: "col", class: column.number ? "number" : null },
    button(column.title, `Sort by ${column.title}`, () => {
      state.down = state.column === column ? !state.down : Boolean(column.number);
      state.column = column;
      draw();
    })));
  const copy = button("Copy", "The rows shown by the filter, as tab-separated text", () => {
    const raw = (row, { key, number }) => (number ? String(row[key] ?? "") : cell(row, { key }));
    const lines = [columns.map((column) => column.key), ...chosen().map((row) => columns.map((column) => raw(row, column)))];
    copyText(lines.map((line) => line.map((text) => text.replace(/[\t\r\n]/g, " ")).join("\t")).join("\n"),
      () => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); });
  });
  const filter = rows.length > 8 ? element("label", {}, "Filter ", element("input", {
    type: "search", oninput: (event) => { state.filter = event.target.value; draw(); },
  })) : null;
  draw();
  return element("section", { class: "table", id },
    heading(title, explanation),
    element("div", { class: "controls" }, beside, filter, copy, count),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads)), body)),
    more);
}

// The same memory by something coarser than the stack: sums of the sites that have it in common.
const GROUPS = [
  { name: "call stack", by: null },
  { name: "line", by: (site) => site.place },
  { name: "kind", by: (site) => site.kind },
  { name: "tags", by: (site) => site.tag || "(no tag)" },
];
const SUMMED = ["peak", "live_bytes", "bytes", "allocations", "frees", "lifetime_ns"];

function grouped(sites, by) {
  if (!by) return sites;
  const groups = new Map();
  for (const site of sites) {
    const name = by(site);
    const group = groups.get(name) ?? { place: name, kinds: new Set(), tags: new Set(), sites: 0 };
    groups.set(name, group);
    for (const key of SUMMED) group[key] = (group[key] ?? 0) + site[key];
    group.kinds.add(site.kind);
    group.tags.add(site.tag);
    group.sites += 1;
  }
  return [...groups.values()].map((group) => ({
    ...group,
    kind: [...group.kinds].join(", "),
    tag: [...group.tags].filter(Boolean).join(", "),
    mean_lifetime_ns: group.frees > 0 ? group.lifetime_ns / group.frees : null,
  }));
}

function siteTable({ report, device, process }, group = 0) {
  const sites = report.call_sites.filter((site) => site.device === device.index).map((site) => ({
    ...site,
    place: site.line ?? (site.id === null ? "[sites that are not listed]" : "[no call site]"),
    tag: site.tags.join(" / "),
    peak: atPeakBytes(site),
    lifetime_ns: (site.mean_lifetime_ns ?? 0) * site.frees,
    stack: site.frames.map((number) => frameName(process.frames[number])).join("\n"),
  }));
  const tagged = sites.some((site) => site.tag);
  const by = choice("By", GROUPS.map(({ name }, i) => [i, name]), group, (i) =>
    document.getElementById("sites").replaceWith(siteTable({ report, device, process }, i)));
  return table("sites", "Call sites", grouped(sites, GROUPS[group].by), [
    { key: "place", title: "Where", wide: true },
    ...(group > 0 ? [{ key: "sites", title: "Stacks", number: countText }] : []),
    { key: "kind", title: "Kind", title_of: (row) => row.kind_reason },
    ...(tagged ? [{ key: "tag", title: "Tags" }] : []),
    { key: "peak", title: "At peak", number: bytesText, share: device.peak.live_bytes },
    { key: "live_bytes", title: "Live at the end", number: bytesText },
    ...(group > 0 ? [] : [{ key: "peak_bytes", title: "Most at once", number: bytesText }]),
    { key: "bytes", title: "Bytes in all", number: bytesText },
    { key: "allocations", title: "Allocations", number: countText },
    { key: "frees", title: "Frees", number: countText },
    { key: "mean_lifetime_ns", title: "Mean lifetime", number: (ns, row) => (row.mean_lifetime_ns === null ? "-" : durationText(ns)) },
  ], {
    sortBy: "peak",
    beside: by,
    details: group > 0 ? null : (row) => row.stack,
    explanation: "Who asked for memory, by the line a person knows it by; a click on a row shows its whole stack, innermost first. " +
      "At peak: live when the device's live bytes peaked.",
  });
}

function kindTable({ report, device }) {
  const kinds = report.kinds.filter((kind) => kind.device === device.index);
  if (kinds.length === 0) return null;
  return table("kinds", "What the memory was to the program", kinds, [
    { key: "kind", title: "Kind" },
    { key: "at_peak_bytes", title: "At peak", number: bytesText, share: device.peak.live_bytes },
    { key: "live_bytes", title: "Live at the end", number: bytesText },
    { key: "bytes", title: "Bytes in all", number: bytesText },
    { key: "driver_at_peak_bytes", title: "Driver's, then", number: bytesText },
    { key: "sites", title: "Sites", number: countText },
    { key: "largest_line", title: "Largest at", wide: true },
  ], { sortBy: "at_peak_bytes", explanation: "Told from each call site's stack and from how long its memory lived. " +
    "Driver's, then: what the driver held beside live bytes when those peaked, by its reason." });
}

function ledgerTable({ device }) {
  const rows = device.peak.ledger.map((row) => ({ ...row, how: row.exact ? "exact" : "estimated" }));
  return table("ledger", "Where the bytes of the device were when live bytes peaked", rows, [
    { key: "name", title: "What" },
    { key: "bytes", title: "Bytes", number: bytesText, share: device.cap_bytes },
    { key: "how", title: "Known" },
  ], { explanation: "The rows add up to the cap. Holes are reserved and not live; free is below the cap and not charged." });
}

function oomTable({ report, process }) {
  if (report.oom_events.length === 0) return null;
  const rows = report.oom_events.map((oom) => ({ ...oom, end: oom.recovered ? "recovered" : "not recovered" }));
  return table("ooms", "Out-of-memories", rows, [
    { key: "time_ns", title: "After", number: durationText },
    { key: "device", title: "Device", number: String },
    { key: "source", title: "Told by" },
    { key: "requested_bytes", title: "Asked for", number: bytesText },
    { key: "short_bytes", title: "Short by", number: bytesText },
    { key: "verdict", title: "Verdict" },
    { key: "end", title: "End" },
    { key: "line", title: "Where", wide: true },
    { key: "sentence", title: "In words", wide: true },
  ], { explanation: process.ooms_left_out > 0 ? `The last ones; ${countText(process.ooms_left_out)} earlier ones are in report.json.` : "" });
}

function tagTable({ report, device }) {
  const tags = report.tags.filter((tag) => tag.device === device.index).map((tag) => ({ ...tag, name: tag.path.join(" / ") }));
  if (tags.length === 0) return null;
  return table("tags", "Tags", tags, [
    { key: "name", title: "Tag", wide: true },
    { key: "at_peak_bytes", title: "At peak", number: bytesText, share: device.peak.live_bytes },
    { key: "live_bytes", title: "Live at the end", number: bytesText },
    { key: "bytes", title: "Bytes in all", number: bytesText },
  ], { sortBy: "at_peak_bytes", explanation: "Memory asked for while the tag was set; an inner tag's is not counted to the outer one again." });
}

function callTable({ device }) {
  const meaning = {
    create: "physical memory taken from the driver", map: "put behind addresses", set_access: "made accessible",
    unmap: "taken from behind addresses", release: "given back to the driver",
  };
  const rows = [
    ...Object.entries(device.driver_calls).map(([call, count]) => ({ call, count, meaning: meaning[call] ?? "" })),
    { call: "allocations", count: device.allocations, meaning: "asked of the driver by the program or its framework" },
    { call: "frees", count: device.frees, meaning: "asked of the driver by the program or its framework" },
    { call: "refused", count: device.failed_allocations, meaning: "of those allocations" },
    ...(device.tensors ? [
      { call: "tensors born", count: device.tensors.births, meaning: "inside memory that the framework held" },
      { call: "tensors died", count: device.tensors.deaths, meaning: "inside memory that the framework held" },
    ] : []),
  ];
  return table("calls", "Calls", rows, [
    { key: "call", title: "Call" },
    { key: "count", title: "Times", number: countText },
    { key: "meaning", title: "Which is" },
  ], { explanation: "The first five: what memshim's pool asked of the driver. Below: what was asked of memshim." });
}

function showTables(view) {
  replace("tables", [kindTable, siteTable, ledgerTable, oomTable, tagTable, callTable]
    .map((make) => (view.device || make === oomTable ? make(view) : null)));
}
