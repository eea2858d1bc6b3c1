// SPDX-License-Identifier: Apache-2.0
// Tables that can be sorted, filtered and copied.

const ROWS_AT_FIRST = 25;
const FEWEST_TO_FILTER = 6;

// columns: key, title; `number` formats numbers (aligned right, largest first); `share` of a whole
// is drawn as a bar behind the number; `under`: the row's member that is written below, quietly.
// details: of a row, the lines that a click on it shows below. beside: more controls.
function table(id, title, rows, columns, {
  explanation = "", sortBy = null, details = null, beside = null, up = false, short = title, rowsAtFirst = ROWS_AT_FIRST,
} = {}) {
  const state = { column: columns.find(({ key }) => key === sortBy) ?? null, down: !up, filter: "", all: false };
  const body = element("tbody");
  const count = element("span", { class: "quiet" });
  const more = button("Show all", "All rows", () => { state.all = true; draw(); });
  const cell = (row, { key, number }) => (number ? (row[key] ?? null) === null ? "-" : number(row[key], row) : String(row[key] ?? ""));
  const chosen = () => {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => {
      const text = columns.map((column) => `${cell(row, column)} ${row[column.under] ?? ""}`).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (!state.column) return found;
    const { key, number } = state.column;
    const order = (a, b) => (number ? (a[key] ?? -Infinity) - (b[key] ?? -Infinity) || 0 : String(a[key] ?? "").localeCompare(String(b[key] ?? "")));
    return found.sort((a, b) => (state.down ? order(b, a) : order(a, b)));
  };
  const rowOf = (row) => {
    const cells = columns.map((column) => {
      const share = column.share ? Math.max(0, Math.min(1, (row[column.key] ?? 0) / column.share)) : 0;
      return element("td", {
        class: column.number ? "number" : column.wide ? `wide ${column.key}` : null,
        title: column.title_of ? column.title_of(row) : null,
        style: share > 0 ? `--share: ${(100 * share).toFixed(2)}%` : null,
      }, column.swatch ? element("span", { class: `swatch layer ${column.swatch(row)}` }) : null, cell(row, column),
      row[column.under] ? element("span", { class: "quiet under" }, row[column.under]) : null);
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
    const shown = state.all ? found : found.slice(0, rowsAtFirst);
    body.replaceChildren(...shown.map(rowOf));
    count.textContent = found.length === rows.length ? countOf(rows.length, "row") : `${countText(found.length)} of ${countText(rows.length)} rows`;
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
  const filter = rows.length >= FEWEST_TO_FILTER ? element("label", {}, "Filter ", element("input", {
    type: "search", oninput: (event) => { state.filter = event.target.value; draw(); },
  })) : null;
  draw();
  return element("section", { class: "table", id, "data-title": short },
    title ? heading(title, explanation) : null,
    element("div", { class: "controls" }, beside, filter, copy, count),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads)), body)),
    more);
}

// The same memory by something coarser than the stack: sums of the sites that have it in common.
const GROUPS = [
  { name: null, by: null },
  { name: "line", by: (site) => site.place },
  { name: "kind", by: (site) => site.kind },
  { name: "tags", by: (site) => site.tag || "(no tag)" },
];

function grouped(sites, by, columns) {
  const groups = new Map();
  for (const site of sites) {
    const name = by(site);
    const group = groups.get(name) ?? { place: name, kinds: new Set(), tags: new Set(), sites: 0 };
    groups.set(name, group);
    for (const { key, sum } of columns) if (sum) group[key] = (group[key] ?? 0) + (site[key] ?? 0);
    group.kinds.add(site.kind);
    group.tags.add(site.tag);
    group.sites += 1;
  }
  return [...groups.values()].map((group) => ({
    ...group, kind: [...group.kinds].join(", "), tag: [...group.tags].filter(Boolean).join(", "),
  }));
}

// Of each stack, outermost frame first: the frame in which it leaves the one that is most like it.
function whereTheyPart(stacks) {
  const common = (a, b) => { let i = 0; while (i < a.length && a[i] === b[i]) i += 1; return i; };
  return stacks.map((stack) => {
    const shared = d3.max(stacks, (other) => (other === stack ? 0 : common(stack, other)));
    return stack[Math.min(shared, stack.length - 1)];
  });
}

// Of rows that one line of code leads to by several ways: the innermost Python function, and where
// that is the same, the native one, which tells them apart.
function toldApart(rows) {
  const told = new Map();
  for (const alike of d3.group(rows, ({ place }) => place).values()) {
    if (alike.length === 1) continue;
    for (const [inner, same] of d3.group(alike, (row) => row.inner)) {
      const parts = same.length > 1 ? whereTheyPart(same.map(({ stack }) => stack.split("\n").reverse())) : [];
      same.forEach((row, i) => told.set(row, [inner, (parts[i] ?? "").split("(")[0]].filter(Boolean).join(", ")));
    }
  }
  return rows.map((row) => (told.get(row) ? { ...row, innermost: told.get(row) } : row));
}

// A table of sites (Sites.named, and numbers), which can be grouped. Columns with `sum` add up over
// a group, those with `of` are told from its sums; others are for single sites only. one, many: what
// a row is, and what a group has several of; lead: columns that come first, of single rows; kinds:
// whether they say something.
function groupedTable(view, id, title, rows, columns, options = {}) {
  const { group = 0, onGroup = () => {}, one = "call stack", many = "Stacks", lead = [], kinds = true, ...others } = options;
  const by = choice("By", GROUPS.map(({ name }, i) => [i, name ?? one]).filter(([, name]) => kinds || name !== "kind"), group, (i) => {
    onGroup(i);
    document.getElementById(id).replaceWith(groupedTable(view, id, title, rows, columns, { ...options, group: i }));
  });
  const single = group === 0;
  const tagged = rows.some((row) => row.tag);
  const shown = single ? toldApart(rows) : grouped(rows, GROUPS[group].by, columns);
  const told = columns.filter(({ of }) => of);
  return table(id, title, shown.map((row) => ({ ...row, ...Object.fromEntries(told.map(({ key, of }) => [key, of(row)])) })), [
    ...(single ? lead : []),
    { key: "place", title: "Where", wide: true, under: "innermost" },
    ...(single ? [] : [{ key: "sites", title: many, number: countText }]),
    ...(!kinds ? [] : [{ key: "kind", title: "Kind", swatch: (row) => (KINDS.includes(row.kind) ? kindClass(row.kind) : "none"), title_of: (row) => row.kind_reason }]),
    ...(tagged ? [{ key: "tag", title: "Tags" }] : []),
    ...columns.filter(({ sum, of, hidden }) => !hidden && (single || sum || of)),
  ], { ...others, beside: by, details: single ? (row) => row.stack : null });
}
