// What is shown: one process and one of its devices; and how it looks.

const data = JSON.parse(document.getElementById("data").textContent);
const THEMES = ["auto", "light", "dark"];

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
  });
  node.id = "theme";
  return node;
}

function processName(process) {
  const { rank, program, pid } = process.report.process;
  return rank === null ? `${program} (pid ${pid})` : `rank ${rank}`;
}

function show(chosen, index) {
  const process = data.processes[chosen];
  const report = process.report;
  const devices = report.devices;
  const device = devices.find((each) => each.index === index) ?? devices[0] ?? null;
  const view = { data, process, report, device };
  replace("choices",
    data.processes.length > 1
      ? choice("Process", data.processes.map((each, i) => [i, processName(each)]), chosen, (i) => show(i, data.processes[i].main_device))
      : null,
    devices.length > 1
      ? choice("Device", devices.map((each) => [each.index, `${each.index} ${each.name ?? ""}`]), device.index, (i) => show(chosen, i))
      : null,
    themeButton());
  showAnswer(view);
  if (device && typeof d3 !== "undefined") {
    showTimeline(view);
    showFlame(view);
  } else if (device) {
    replace("timeline", element("p", { class: "explanation" },
      "This memshim was built without d3, which draws the charts: the tables are here, the timeline is in timeline.json."));
  }
  showTables(view);
  showFooter(report);
  window.onresize = debounced(() => { if (device && typeof d3 !== "undefined") { showTimeline(view); showFlame(view); } });
}

function debounced(act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 150);
  };
}

function showFooter(report) {
  const { trace, versions, process } = report;
  const detail = trace.events === trace.events_in_detail
    ? `every one of ${countText(trace.events)} events in detail`
    : `${countText(trace.events_in_detail)} of ${countText(trace.events)} events in detail, since ${durationText(trace.detail_since_ns)}`;
  replace("footer",
    trace.warnings.map((text) => element("p", { class: "warning" }, text)),
    element("p", {}, `${trace.sums_exact ? "Sums, peaks and out-of-memories are exact" : "The trace is damaged: figures are what could be read of it"}; ${detail}.`),
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
if (data.processes.length > 0) show(firstShown(), data.processes[firstShown()].main_device);
