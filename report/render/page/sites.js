// SPDX-License-Identifier: Apache-2.0
// Call sites as the views name them, and the moments at which it is known who was live.

const KINDS = ["parameters", "gradients", "optimizer state", "activations", "inputs", "temporary", "workspace",
  "communication", "CUDA-graph pools", "other persistent", "unknown"];

function kindClass(kind) {
  return `kind-${Math.max(0, KINDS.indexOf(kind))}`;
}

function frameName(frame) {
  if (!frame.file) return frame.function;
  const file = frame.file.split("/").at(-1);
  return `${frame.function}  ${file}${frame.line ? `:${frame.line}` : ""}`;
}

// Bytes of the device at its peak, forwarded ones beside those of the pool: as --format folded.
function atPeakBytes(site) {
  return site.at_peak_bytes + site.forwarded_at_peak_bytes;
}

// What is known of a site wherever it is named: its place, its kind, its tags and its stack.
class Sites {
  constructor(process, device) {
    this.frames = process.frames;
    this.byId = new Map();
    for (const site of [...process.report.call_sites, ...process.more_sites]) {
      if (site.device === device.index && site.id !== null) this.byId.set(site.id, this.named(site));
    }
  }

  named(site) {
    return {
      id: site.id,
      place: site.line ?? (site.id === null ? "[sites that are not listed]" : "[no call site]"),
      kind: site.kind,
      kind_reason: site.kind_reason ?? "",
      tag: site.tags.join(" / "),
      inner: this.innermost(site),
      frames: site.frames,
      stack: site.frames.map((number) => frameName(this.frames[number])).join("\n"),
    };
  }

  // The innermost Python frame; nothing where that is the place itself.
  innermost({ frames, line }) {
    const frame = this.frames[frames.find((each) => this.frames[each].language === "python")];
    const itself = frame?.file && line?.startsWith(`${frame.file.split("/").at(-1)}:${frame.line} `);
    return frame && !itself ? frameName(frame) : "";
  }

  // id: null for all those that are not listed.
  get(id) {
    return this.byId.get(id) ?? this.named({ id, line: null, kind: "unknown", tags: [], frames: [] });
  }
}

const MOMENT_NAMES = { peak: "peak of live bytes", oom: "out-of-memory", end: "end of the run", high: "high" };

function momentName(moment) {
  return MOMENT_NAMES[moment.what] ?? moment.what;
}

function momentTitle({ moment, duration }) {
  const time = momentText(moment.time_ns, duration);
  return moment.what === "high" ? time : `${time}, ${momentName(moment)}`;
}

function nearestMoment(moments, time) {
  return moments.reduce((best, each) => (Math.abs(each.time_ns - time) < Math.abs(best.time_ns - time) ? each : best));
}

// The peak as report.json has it, where the survey has no moments of its own.
function peakMoment(device) {
  return { what: "peak", time_ns: device.peak.time_ns, live_bytes: device.peak.live_bytes };
}

// Who was live then, largest first: sites with their bytes. At the peak from report.json itself.
function liveAt(view, moment) {
  const { report, device, sites } = view;
  const rows = moment.what === "peak"
    ? report.call_sites.filter((site) => site.device === device.index)
      .map((site) => ({ ...sites.named(site), bytes: atPeakBytes(site) }))
    : [...moment.sites.map((id, i) => ({ ...sites.get(id), kind: moment.kinds[i], bytes: moment.bytes[i] })),
      { ...sites.get(null), bytes: moment.other_bytes }];
  return rows.filter(({ bytes }) => bytes > 0).sort((a, b) => b.bytes - a.bytes);
}
