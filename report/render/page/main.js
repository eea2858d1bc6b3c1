// SPDX-License-Identifier: Apache-2.0
// What is shown: one process and one of its devices; and how it looks.

const data = JSON.parse(document.getElementById("data").textContent);
const THEMES = ["auto", "light", "dark"];
const SECTIONS = ["cards", "timeline", "leaks", "figures", "moment", "flame", "ledgers", "headroom", "map", "pinning", "tables"];

function storedTheme() {
  try {
    return localStorage.getItem("memshim-theme");
  } catch {
    return null;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("memshim-theme", theme);
  } catch {
    // A page from disk may have no storage: the choice lasts as long as the page.
  }
}

function themeButton() {
  const label = () => `Theme: ${document.documentElement.dataset.theme}`;
  const node = button(label(), "Automatic, light or dark", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    setTheme(next);
    node.textContent = label();
    for (const tell of shown?.onTheme ?? []) tell();
  });
  node.id = "theme";
  return node;
}

function processName(process) {
  const { rank, program, pid } = process.report.process;
  return rank === null ? `${program} (pid ${pid})` : `rank ${rank}`;
}

const LEAST_BUCKETS = 4; // of the timeline: what may be enlarged to the whole width

// What the views share: the data, the part of the run that is shown, the moment that was chosen, and
// who is told of a change.
function viewOf(process, device) {
  const survey = device ? process.surveys.find((each) => each.device === device.index) ?? null : null;
  const moments = survey?.moments ?? (device ? [peakMoment(device)] : []);
  const moment = moments.find(({ what }) => what === "peak") ?? moments[0] ?? null;
  const duration = Math.max(process.report.process.duration_ns, 1);
  const bucket = process.series.find((each) => each.device === device?.index)?.bucket_ns ?? 0;
  const view = {
    duration,
    window: [0, duration],
    data, process, report: process.report, device, survey, moments, moment,
    asked: moment?.time_ns ?? 0,
    sites: device ? new Sites(process, device) : null,
    onMoment: [],
    onTheme: [],
    onZoom: [],
    zoom(from, to) {
      const span = Math.max(Math.min(duration, bucket * LEAST_BUCKETS), Math.min(duration, to - from));
      const start = Math.max(0, Math.min(duration - span, from));
      view.window = [start, start + span];
      for (const tell of view.onZoom) tell();
    },
    // By so much, with what lies at `time` staying where it is.
    zoomAt(time, factor) {
      const [from, to] = view.window;
      view.zoom(time - (time - from) * factor, time + (to - time) * factor);
    },
    zoomKeys(time) {
      const near = () => view.zoomAt(time, 0.5);
      return { "+": near, "=": near, "-": () => view.zoomAt(time, 2), 0: () => view.zoom(0, duration) };
    },
    // Of the recorded moments the one nearest in time.
    chooseTime(time) {
      if (view.survey) view.chooseMoment(nearestMoment(view.survey.moments, time), time);
    },
    // asked: the time that a person pointed at.
    chooseMoment(chosen, asked) {
      Object.assign(view, { moment: chosen, asked });
      for (const tell of view.onMoment) tell();
    },
  };
  return view;
}

function showCharts(view) {
  view.onMoment.length = 0;
  view.onTheme.length = 0;
  view.onZoom.length = 0;
  const drawTimeline = showTimeline(view);
  showLeaks(view);
  showMoments(view);
  showFlame(view);
  showHeadroom(view);
  showMap(view);
  return drawTimeline;
}

// Links to the parts that there are.
function showContents() {
  const heads = [...document.querySelectorAll("main h2")].filter((head) => head.textContent);
  replace("contents", heads.map((head) => {
    const part = head.closest("section");
    return element("a", { href: `#${part.id}` }, part.dataset.title ?? head.textContent);
  }));
}

let shown = null;

function show(chosen, index) {
  const process = data.processes[chosen];
  const { devices } = process.report;
  const device = devices.find((each) => each.index === index) ?? devices[0] ?? null;
  const view = viewOf(process, device);
  const charts = device && typeof d3 !== "undefined";
  shown = view;
  document.body.dataset.shown = "answer";
  replace("choices",
    data.processes.length > 1
      ? choice("Process", data.processes.map((each, i) => [i, processName(each)]), chosen, (i) => show(i, data.processes[i].main_device))
      : null,
    devices.length > 1
      ? choice("Device", devices.map((each) => [each.index, `${each.index} ${each.name ?? ""}`]), device.index, (i) => show(chosen, i))
      : null,
    themeButton());
  showAnswer(view);
  for (const id of SECTIONS) replace(id);
  showFooter(process.report);
  // The answer is on the screen before the charts are drawn.
  afterPaint(() => {
    if (shown !== view) return;
    const drawTimeline = charts ? showCharts(view) : () => {};
    if (!charts && device) {
      replace("timeline", element("p", { class: "explanation" },
        "This memshim was built without d3, which draws the charts: the tables are here, the timeline is in timeline.json."));
    }
    replace("cards", cardTable(view));
    replace("figures", device ? [rankTable(view), ...heading("Figures"), figuresOf(device)] : rankTable(view));
    replace("ledgers", device ? ledgerTable(view) : null);
    replace("pinning", device ? [pinTable(view), arenaTable(view)] : null);
    showTables(view);
    showContents();
    drawTimeline();
    document.body.dataset.shown = "whole";
  });
  window.onresize = debounced(() => { if (charts) showCharts(view); });
}

function afterPaint(act) {
  requestAnimationFrame(() => setTimeout(act, 0));
}

function debounced(act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 150);
  };
}

// Processes whose data would have made the page too large.
function leftOut() {
  const count = data.processes_left_out;
  return count > 0
    ? element("p", { class: "warning" }, `${countText(count)} of ${countText(count + data.processes.length)} processes are not in this page, which has no room for so many; memshim report makes a page of each.`)
    : null;
}

function showFooter(report) {
  const { trace, versions, process } = report;
  const detail = trace.events === trace.events_in_detail
    ? `every one of ${countText(trace.events)} events in detail`
    : `${countText(trace.events_in_detail)} of ${countText(trace.events)} events in detail, since ${durationText(trace.detail_since_ns)}`;
  replace("footer", leftOut(),
    trace.native_names ? [] : element("p", { class: "warning" }, "Native functions have no names here: libdw.so.1 is missing (Debian, Ubuntu: libdw1; Fedora: elfutils-libs)."),
    trace.warnings.map((text) => element("p", { class: "warning" }, text)),
    element("p", {}, `${trace.sums_exact ? "Sums, peaks and out-of-memories are exact" : "The trace is damaged; the figures are from what could be read of it"}; ${detail}.`),
    element("p", {}, `memshim ${versions.memshim}`, versions.torch ? `, PyTorch ${versions.torch}` : "",
      versions.cuda ? `, CUDA ${versions.cuda}` : "", versions.driver ? `, driver ${versions.driver}` : "", ". Charts: d3 (BSD 3-clause, Mike Bostock)."),
    element("p", { class: "command" }, process.command));
}

// The one that died first, else the first.
function firstShown() {
  const dead = data.processes.findIndex((process) => process.folder === data.run.first_dead);
  return Math.max(0, dead);
}

setTheme(storedTheme() ?? "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const tell of shown?.onTheme ?? []) tell();
});
if (data.processes.length > 0) show(firstShown(), data.processes[firstShown()].main_device);
else replace("footer", leftOut());
