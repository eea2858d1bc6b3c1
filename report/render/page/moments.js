// SPDX-License-Identifier: Apache-2.0
// Who was live at a moment: the one chosen in the timeline, of those that were recorded.

const NEXT = { earlier: -1, later: 1 };

class Moments {
  constructor(view) {
    this.view = view;
    this.group = 0;
  }

  show() {
    const { moments } = this.view;
    this.select = element("select", { id: "moment-choice", onchange: () => this.choose(Number(this.select.value)) },
      moments.map((moment, i) => element("option", { value: i },
        `${momentText(moment.time_ns, this.view.report.process.duration_ns)}  ${momentName(moment)}, ${bytesText(moment.live_bytes)} live`)));
    this.title = element("h2", { id: "moment-title" });
    this.note = element("p", { class: "explanation", id: "moment-note" });
    this.list = element("div");
    replace("moment", this.title, this.note,
      moments.length > 1 ? element("div", { class: "controls" }, element("label", {}, "Recorded moment ", this.select),
        Object.entries(NEXT).map(([name, step]) => button(name, `The recorded moment that is next ${name}`,
          () => this.choose(Math.max(0, Math.min(moments.length - 1, moments.indexOf(this.view.moment) + step)))))) : null,
      this.list);
    this.view.onMoment.push(() => this.draw());
    this.draw();
  }

  choose(index) {
    const moment = this.view.moments[index];
    this.view.chooseMoment(moment, moment.time_ns);
  }

  draw() {
    const { view } = this;
    const { moment, asked, device } = view;
    const duration = view.report.process.duration_ns;
    this.select.value = String(view.moments.indexOf(moment));
    this.title.textContent = moment.what === "high"
      ? `Who was live on device ${device.index} at ${momentText(moment.time_ns, duration)}`
      : `Who was live on device ${device.index} at the ${momentName(moment)}, ${momentText(moment.time_ns, duration)}`;
    this.note.textContent = (asked !== moment.time_ns
      ? `You chose ${momentText(asked, duration)}; this is the nearest moment at which every live block is known. ` : "") +
      `${bytesText(moment.live_bytes)} were live then${this.besideText()}. Choose another moment here or by a click in the timeline.`;
    this.list.replaceChildren(this.table());
  }

  // At the peak the list has what the driver served as well.
  besideText() {
    const { moment, report, device } = this.view;
    const beside = moment.what !== "peak" ? 0
      : d3.sum(report.call_sites.filter((site) => site.device === device.index), (site) => site.forwarded_at_peak_bytes);
    return beside > 0 ? `; the list has ${bytesText(beside)} that the driver served (NCCL, arrays) too` : "";
  }

  table() {
    const { view } = this;
    const before = new Map(liveAt(view, view.moments.find(({ what }) => what === "peak") ?? view.moment)
      .map(({ id, bytes }) => [id, bytes]));
    const rows = liveAt(view, view.moment).map((row) => ({ ...row, than_peak: row.bytes - (before.get(row.id) ?? 0) }));
    return groupedTable(view, "live-then", "", rows, [
      { key: "bytes", title: "Live then", number: bytesText, share: view.moment.live_bytes, sum: true },
      ...(view.moment.what === "peak" ? [] : [
        { key: "than_peak", title: "Than at the peak", number: signedBytesText, sum: true },
      ]),
    ], { sortBy: "bytes", rowsAtFirst: 10, group: this.group, onGroup: (group) => { this.group = group; } });
  }
}

function showMoments(view) {
  new Moments(view).show();
}
