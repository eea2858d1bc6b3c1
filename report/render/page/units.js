// SPDX-License-Identifier: Apache-2.0
// Numbers as report.txt writes them (units.c).

function bytesText(bytes) {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  const units = [["KiB", 1], ["MiB", 1], ["GiB", 2], ["TiB", 2], ["PiB", 2], ["EiB", 2]];
  let value = bytes;
  for (const [name, decimals] of units) {
    value /= 1024;
    const scale = 10 ** decimals;
    const rounded = Math.floor(value * scale + 0.5) / scale;
    if (rounded < 1024 || name === "EiB") return `${rounded.toFixed(decimals)} ${name}`;
  }
  return "";
}

function durationText(ns) {
  const seconds = Math.floor(ns / 1e9);
  const two = (number) => String(number).padStart(2, "0");
  if (ns < 1e6) return `${Math.floor(ns / 1e3)} us`;
  if (ns < 1e9) return `${Math.floor(ns / 1e6)} ms`;
  if (seconds < 60) return `${seconds}.${Math.floor((ns % 1e9) / 1e8)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} m`;
}

// A moment of the run, to the width of what is shown around it.
function momentText(ns, spanNs) {
  if (spanNs >= 6e11) return durationText(ns);
  const decimals = Math.max(0, Math.min(6, Math.ceil(3 - Math.log10(spanNs / 1e9))));
  return `${(ns / 1e9).toFixed(decimals)} s`;
}

function percentText(part, whole) {
  return whole > 0 ? `${(Math.floor((part * 1000) / whole + 0.5) / 10).toFixed(1)} %` : "-";
}

function countText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

// The multiples of a whole step that lie in [0, most], about `wanted` of them.
function byteTicks(most, wanted) {
  let step = 1;
  while (most / step > wanted) step *= 2;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

function timeTicks(from, to, wanted) {
  const steps = [];
  for (let decade = 1e3; decade < 1e9; decade *= 10) steps.push(decade, 2 * decade, 5 * decade);
  for (const s of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]) steps.push(s * 1e9);
  for (let h = 2; h < 1e6; h *= 2) steps.push(h * 3600e9);
  const step = steps.find((size) => (to - from) / size <= wanted) ?? to - from;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return { step, ticks };
}

function tickText(ns, step) {
  if (step >= 60e9) return ns === 0 ? "0" : durationText(ns);
  const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / 1e9) - 1e-9)));
  return `${(ns / 1e9).toFixed(decimals)} s`;
}

function signedBytesText(bytes) {
  return bytes === 0 ? "0" : `${bytes > 0 ? "+" : "-"}${bytesText(Math.abs(bytes))}`;
}

function countOf(count, name) {
  return `${countText(count)} ${name}${count === 1 ? "" : "s"}`;
}
