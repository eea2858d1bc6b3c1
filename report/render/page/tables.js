// SPDX-License-Identifier: Apache-2.0
// The tables of what the run did.

function siteTable(view) {
  const { report, device, sites } = view;
  const slopes = new Map((device.growth ?? []).map((row) => [row.site, row.bytes_per_step]));
  const rows = report.call_sites.filter((site) => site.device === device.index).map((site) => ({
    ...site,
    ...sites.named(site),
    peak: atPeakBytes(site),
    lifetime_ns: (site.mean_lifetime_ns ?? 0) * site.frees,
    growth: slopes.get(site.id) ?? null,
  }));
  return groupedTable(view, "sites", "Call sites", rows, [
    { key: "peak", title: "At peak", number: bytesText, share: device.peak.live_bytes, sum: true },
    { key: "live_bytes", title: "Live at the end", number: bytesText, sum: true },
    { key: "peak_bytes", title: "Most at once", number: bytesText },
    ...(slopes.size > 0 ? [{ key: "growth", title: "Growth a step", number: signedBytesText, sum: true }] : []),
    { key: "bytes", title: "Bytes in all", number: bytesText, sum: true },
    { key: "allocations", title: "Allocations", number: countText, sum: true },
    { key: "frees", title: "Frees", number: countText, sum: true },
    { key: "lifetime_ns", sum: true, hidden: true },
    { key: "mean_lifetime", title: "Mean lifetime", number: durationText,
      of: (row) => (row.frees > 0 ? row.lifetime_ns / row.frees : null) },
  ], {
    sortBy: "peak",
    explanation: "Who asked for memory, by the line that tells a person most; a click on a row shows its whole stack, innermost first. " +
      "At peak: live when the device's live bytes peaked.",
  });
}

function kindTable({ report, device }) {
  const kinds = report.kinds.filter((kind) => kind.device === device.index);
  if (kinds.length === 0) return null;
  return table("kinds", "What the program used the memory for", kinds, [
    { key: "kind", title: "Kind", swatch: (row) => (KINDS.includes(row.kind) ? kindClass(row.kind) : "none") },
    { key: "at_peak_bytes", title: "At peak", number: bytesText, share: device.peak.live_bytes },
    { key: "live_bytes", title: "Live at the end", number: bytesText },
    { key: "bytes", title: "Bytes in all", number: bytesText },
    { key: "driver_at_peak_bytes", title: "Driver's, then", number: bytesText },
    { key: "sites", title: "Sites", number: countText },
    { key: "largest_line", title: "Largest at", wide: true },
  ], { sortBy: "at_peak_bytes", short: "Kinds", explanation: "Derived from each call site's stack and from how long its memory lived. " +
    "Driver's, then: what the driver held besides live bytes when they peaked, by reason." });
}

const LEDGER_NAMES = {
  tensors: "live tensors", blocks: "live blocks", on_host: "of them in host memory", other_processes: "other processes",
  application: "the program's own chunks", forwarded: "served by the driver", driver_pools: "the driver's pools",
  live_forwarded: "of them served by the driver, counted below", nccl: "NCCL", ipc: "opened from other processes", free: "free below the cap", free_above_cap: "free above the cap",
};

// The layers of the timeline that they are in.
const LEDGER_LAYERS = {
  holes: "holes", application: "application", context: "context", modules: "context", launches: "context", graphs: "context",
  limits: "context", forwarded: "forwarded", arrays: "forwarded", managed: "forwarded", nccl: "forwarded", driver_pools: "forwarded",
  ipc: "forwarded",
};

// At the peak, and at each out-of-memory of the device.
function ledgers({ report, device }) {
  return [{ name: "when live bytes peaked", rows: device.peak.ledger },
    ...report.oom_events.filter((oom) => oom.device === device.index && oom.ledger)
      .map((oom) => ({ name: `at the out-of-memory after ${durationText(oom.time_ns)}`, rows: oom.ledger, fatal: !oom.recovered }))];
}

function ledgerTable(view, chosen = null) {
  const all = ledgers(view);
  const at = chosen ?? Math.max(0, all.findLastIndex(({ fatal }) => fatal));
  const rows = all[at].rows.map((row) => ({
    ...row, what: LEDGER_NAMES[row.name] ?? row.name, how: row.exact ? "exact" : "estimated",
  }));
  return table("ledger", `Where the bytes of the device were ${all[at].name}`, rows, [
    { key: "what", title: "What", swatch: ({ name }) => (KINDS.includes(name) ? kindClass(name) : LEDGER_LAYERS[name] ?? "none") },
    { key: "bytes", title: "Bytes", number: (bytes) => (bytes < 0 ? signedBytesText(bytes) : bytesText(bytes)), share: view.device.total_bytes },
    { key: "how", title: "Known" },
  ], {
    short: "Ledger",
    beside: all.length > 1 ? choice("Moment", all.map(({ name }, i) => [i, name]), at, (i) =>
      document.getElementById("ledger").replaceWith(ledgerTable(view, i))) : null,
    explanation: "The whole device, row by row; each row is measured by itself, and the rest is unexplained. Holes are reserved and not live.",
  });
}

// Of the call sites those that have some of it.
function sitesWith({ report, device, sites }, ...keys) {
  return report.call_sites.filter((site) => site.device === device.index && keys.some((key) => site[key] > 0))
    .map((site) => ({ ...site, ...sites.named(site) }));
}

function pinnedTable(view) {
  const rows = sitesWith(view, "peak_pinned_host_bytes");
  if (rows.length === 0) return null;
  return groupedTable(view, "host-pinned", "Pinned host memory", rows, [
    { key: "peak_pinned_host_bytes", title: "Most at once", number: bytesText, share: view.device.peak_host_pinned_bytes },
    { key: "pinned_host_bytes", title: "At the end", number: bytesText, sum: true },
  ], { kinds: false, sortBy: "peak_pinned_host_bytes", explanation: "Host memory that the device reaches; not charged to it." });
}

function temporaryTable(view) {
  const { sites, device: { temporary } } = view;
  if (!temporary || temporary.sites.length === 0) return null;
  const rows = temporary.sites.map((row) => ({ ...sites.get(row.site), ...row, lifetime_ns: row.mean_lifetime_ns * row.allocations }));
  return groupedTable(view, "temporaries", "Temporary allocations", rows, [
    { key: "allocations", title: "Times", number: countText, share: temporary.allocations, sum: true },
    { key: "bytes", title: "Bytes in all", number: bytesText, sum: true },
    { key: "lifetime_ns", sum: true, hidden: true },
    { key: "mean_bytes", title: "Mean size", number: bytesText, of: (row) => row.bytes / Math.max(1, row.allocations) },
    { key: "mean_lifetime", title: "Mean lifetime", number: durationText, of: (row) => row.lifetime_ns / Math.max(1, row.allocations) },
  ], {
    sortBy: "allocations",
    explanation: "Freed before the device's next allocation began: if this is frequent, it is wasted work. " +
      `In all ${countText(temporary.allocations)}, of ${bytesText(temporary.bytes)}.`,
  });
}

function sizeTable({ device: { histogram } }) {
  if (!histogram || histogram.length === 0) return null;
  const rows = histogram.map((row) => ({ ...row, to_bytes: 2 * row.from_bytes }));
  return table("sizes", "Sizes", rows, [
    { key: "from_bytes", title: "From", number: bytesText },
    { key: "to_bytes", title: "To less than", number: bytesText },
    { key: "count", title: "Allocations", number: countText, share: Math.max(...rows.map(({ count }) => count)) },
    { key: "bytes", title: "Bytes in all", number: bytesText, share: Math.max(...rows.map(({ bytes }) => bytes)) },
  ], { sortBy: "from_bytes", up: true, explanation: "Sizes of the blocks and tensors that were asked for, over the whole run." });
}

function spilledTable(view) {
  const { spill } = view.device;
  const rows = sitesWith(view, "spilled_bytes", "promoted_bytes");
  if (rows.length === 0) return null;
  return groupedTable(view, "spilled", "What moved to host memory", rows, [
    { key: "spilled_bytes", title: "Moved to the host", number: bytesText, share: spill.spilled_bytes, sum: true },
    { key: "spilled_blocks", title: "Blocks", number: countText, sum: true },
    { key: "promoted_bytes", title: "Moved back", number: bytesText, sum: true },
  ], {
    sortBy: "spilled_bytes",
    explanation: `The device's work waited ${durationText(spill.held_ns)} for it in all. The least cap with which nothing would have ` +
      `had to move: ${bytesText(spill.estimated_cap_without_bytes)}, by estimate.`,
  });
}

function oomTable(view) {
  const { report, process } = view;
  if (report.oom_events.length === 0) return null;
  const several = report.oom_events.some(({ device }) => device !== report.oom_events[0].device);
  const others = report.oom_events.some(({ other_processes }) => other_processes?.length > 0);
  const rows = report.oom_events.map((oom) => ({
    ...(view.sites?.get(oom.site) ?? {}),
    ...oom,
    place: oom.line ?? "[no call site]",
    end: `${oom.source}, ${oom.outcome}`,
    others: (oom.other_processes ?? []).map(({ pid, name, bytes }) => `${name || "?"} (pid ${pid}) ${bytesText(bytes)}`).join(", "),
  }));
  return groupedTable(view, "ooms", "Out-of-memories", rows, [
    { key: "requested_bytes", title: "Asked for", number: bytesText, sum: true },
    { key: "short_bytes", title: "Short by", number: bytesText },
    ...(report.oom_events.some(({ waiting_bytes }) => waiting_bytes > 0)
      ? [{ key: "waiting_bytes", title: "Freed, but waits", title_of: () => "For work that was queued before the free", number: bytesText }] : []),
    { key: "verdict", title: "Verdict" },
    ...(others ? [{ key: "others", title: "Other processes", wide: true }] : []),
    { key: "end", title: "Told by" },
    { key: "sentence", title: "In words", wide: true },
  ], {
    one: "event", many: "Times", kinds: false, lead: [
      { key: "time_ns", title: "After", number: durationText },
      ...(report.oom_events.some(({ step }) => step) ? [{ key: "step", title: "Step", number: countText }] : []),
      ...(several ? [{ key: "device", title: "Device", number: String }] : []),
    ],
    explanation: process.ooms_left_out > 0 ? `The last ones; ${countText(process.ooms_left_out)} earlier ones are in report.json.` : "",
  });
}

function tagTable({ report, device }) {
  const tags = report.tags.filter((tag) => tag.device === device.index).map((tag) => ({ ...tag, name: tag.path.join(" / ") }));
  if (tags.length === 0) return null;
  return table("tags", "Tags", tags, [
    { key: "name", title: "Tag", wide: true },
    { key: "at_peak_bytes", title: "At peak", number: bytesText, share: device.peak.live_bytes },
    { key: "live_bytes", title: "Live at the end", number: bytesText },
    { key: "bytes", title: "Bytes in all", number: bytesText },
  ], { sortBy: "at_peak_bytes", explanation: "Memory asked for while the tag was set: NVTX ranges and the program's own tags. Memory of an inner tag does not count for the " +
    "outer one. Tables of call sites and of out-of-memories can be grouped by it (By: tags); sizes, calls and the ledger are " +
    "counted for the device as a whole, without it." });
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
  replace("tables", [kindTable, siteTable, oomTable, spilledTable, pinnedTable, temporaryTable, sizeTable, tagTable, callTable]
    .map((make) => (view.device || make === oomTable ? make(view) : null)));
}
