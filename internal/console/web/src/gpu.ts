// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view GPU: its shares against their caps, usage over time, and events of its pods.

import { bytes, el, fill, link, number, select } from "./dom";
import { get, GPU, Latest, Node, nodes, Share, source } from "./state";
import { amount, describe, drawn, paintGPU } from "./cluster";
import { Drawing, Pen, Table } from "./table";
import type { View } from "./main";

interface Point { time: string; memory?: number; utilization?: number }
interface Event { time: string; reason: string; message: string; from?: string; count: number; pod?: string }

const mostPods = 8;

export class GPUView implements View {
  title: string;
  readonly element: HTMLElement;
  private readonly text = el("p", { role: "status" });
  private readonly note = el("p", { class: "note" });
  private readonly shares: Table<Share>;
  private readonly points: Table<Point>;
  private readonly events: Table<Event>;
  private readonly bar: Drawing;
  private readonly chart: Drawing;
  private history: Point[] = [];
  private asked = "";
  private since = "1h";
  private readonly latestHistory = new Latest();
  private readonly latestEvents = new Latest();

  constructor(private readonly node: string, private readonly uuid: string) {
    this.title = `GPU of ${node}`;
    this.shares = new Table<Share>("Grants on this GPU", [
      { name: "Pod", text: name, cell: (s) => s.pod ? link(`/pods?show=all&q=${encodeURIComponent(`${s.namespace}/` +
        s.pod)}`, name(s)) : el("span", {}, name(s)) },
      { name: "Container", text: (s) => s.container || "" },
      { name: "Cap", text: (s) => bytes(s.memory), sort: (s) => s.memory, number: true },
      { name: "Used", text: (s) => bytes(s.used), sort: (s) => s.used ?? -1, number: true },
      { name: "Compute", text: (s) => s.percent ? `${s.percent}%` : "fair", sort: (s) => s.percent, number: true },
      { name: "MIG instance", text: (s) => s.mig || "" },
      { name: "Level", text: (s) => s.level },
      { name: "State", text: (s) => s.state },
    ], 2, true, "No grant is on this GPU.");
    this.points = new Table<Point>("Usage over time", [
      { name: "Time", text: (p) => p.time },
      { name: "Used memory", text: (p) => bytes(p.memory), sort: (p) => p.memory ?? -1, number: true },
      { name: "Utilization", text: (p) => p.utilization === undefined ? "unknown" : number(p.utilization, 0) + "%",
        sort: (p) => p.utilization ?? -1, number: true },
    ]);
    this.events = new Table<Event>("Events of its pods", [
      { name: "Time", text: (e) => e.time }, { name: "Pod", text: (e) => e.pod || "" },
      { name: "Reason", text: (e) => e.reason }, { name: "Message", text: (e) => e.message },
      { name: "Times", text: (e) => String(e.count), sort: (e) => e.count, number: true },
    ], 0, true, "No events.");
    this.bar = new Drawing("Shares of the GPU to scale", 64, (p) => this.paintBar(p), el("p", {},
      "The table of grants has the same amounts."));
    this.chart = new Drawing("Usage of the GPU against its caps", 220, (p) => this.paintChart(p), this.points.element);
    this.element = el("div", {}, this.text, this.bar.element, this.shares.element, el("h2", {}, "Usage over time"),
      el("div", { class: "tools" }, el("div", { class: "field" }, el("label", { for: "since" }, "Time"),
        this.times())), this.note, this.chart.element, el("h2", {}, "Events"), this.events.element);
  }

  private times(): HTMLElement {
    const s = select([["1h", "1 hour"], ["24h", "1 day"], ["168h", "7 days"]], this.since, (v) => {
      this.since = v;
      void this.ask();
    });
    s.id = "since";
    return s;
  }

  private find(): { node: Node; gpu: GPU } | null {
    const node = nodes.get(this.node), gpu = node?.gpus.find((g) => g.uuid === this.uuid);
    return node && gpu ? { node, gpu } : null;
  }

  update(): void {
    const found = this.find();
    if (!found) {
      this.text.textContent = "There is no such GPU.";
      return;
    }
    const { node, gpu } = found;
    this.title = `GPU ${gpu.index} of ${node.name}`;
    fill(this.text, `${gpu.model || "unknown model"}, ${gpu.uuid}, pool ${node.pool || "none"}, node ${node.state}` +
      `${node.reason ? " (" + node.reason + ")" : ""}. State: ${describe(gpu)}. Enforcement levels: ` +
      `${(gpu.levels || []).join(", ") || "none"}.`);
    this.shares.set(gpu.shares || []);
    this.bar.draw();
    const pods = [...new Set((gpu.shares || []).filter((s) => s.pod).map((s) => `${s.namespace}/${s.pod}`))].sort();
    if (this.asked !== pods.join()) {
      this.asked = pods.join();
      void this.ask();
      void this.askEvents(pods.slice(0, mostPods));
    }
  }

  private async ask(): Promise<void> {
    const newest = this.latestHistory.next();
    try {
      const query = `gpu=${encodeURIComponent(this.uuid)}&since=${this.since}`;
      const said = await get<{ points: Point[] }>("/api/history?" + query);
      if (!newest()) return;
      this.history = said.points;
      this.note.textContent = this.history.length ? "" : "There is no measurement yet.";
    } catch (e) {
      if (!newest()) return;
      this.history = [];
      this.note.textContent = source.prometheus ? String((e as Error).message)
        : "Usage over time needs a Prometheus: start the console with --prometheus.";
    }
    this.points.set(this.history);
    this.chart.draw();
  }

  private async askEvents(pods: string[]): Promise<void> {
    const newest = this.latestEvents.next(), all: Event[] = [];
    for (const pod of pods) {
      const [namespace, podName] = pod.split("/");
      try {
        const query = `namespace=${encodeURIComponent(namespace)}&pod=${encodeURIComponent(podName)}`;
        const said = await get<{ events: Event[] }>("/api/events?" + query);
        all.push(...said.events.map((e) => ({ ...e, pod })));
      } catch { /* events of a pod that is gone are gone */ }
      if (!newest()) return;
    }
    this.events.set(all);
  }

  private paintBar(p: Pen): void {
    const found = this.find();
    if (!found) return;
    paintGPU(p, found.gpu, 8, 8, p.w - 16, 28, true);
    p.c.fillStyle = p.color("text");
    p.c.fillText("0", 8, 54);
    p.c.textAlign = "right";
    p.c.fillText(amount(found.gpu, found.gpu.memory.capacity), p.w - 8, 54);
    p.c.textAlign = "left";
  }

  // paintChart draws used memory over time, and the sum of the caps as a line.
  private paintChart(p: Pen): void {
    const found = this.find(), c = p.c, left = 64, bottom = p.h - 24, top = 12, right = p.w - 12;
    if (!found) return;
    const most = drawn(found.gpu), caps = (found.gpu.shares || []).reduce((n, s) => n + s.memory, 0);
    const y = (v: number) => bottom - (bottom - top) * v / most;
    c.strokeStyle = p.color("line");
    c.fillStyle = p.color("text");
    c.textAlign = "right";
    for (const part of [0, 0.5, 1]) {
      c.beginPath(); c.moveTo(left, y(most * part)); c.lineTo(right, y(most * part)); c.stroke();
      c.fillText(bytes(most * part), left - 6, y(most * part) + 4);
    }
    c.textAlign = "left";
    c.setLineDash([6, 4]);
    c.strokeStyle = p.color("bad");
    c.beginPath(); c.moveTo(left, y(caps)); c.lineTo(right, y(caps)); c.stroke();
    c.setLineDash([]);
    c.fillText(`sum of caps: ${bytes(caps)}`, left + 6, Math.max(top + 10, y(caps) - 5));
    if (this.history.length < 2) return;
    const from = Date.parse(this.history[0].time), to = Date.parse(this.history[this.history.length - 1].time);
    c.strokeStyle = p.color("used");
    c.lineWidth = 2;
    c.beginPath();
    let down = false;
    for (const q of this.history) {
      const x = left + (right - left) * (Date.parse(q.time) - from) / Math.max(1, to - from);
      if (q.memory === undefined) { down = false; continue; }
      if (down) c.lineTo(x, y(q.memory)); else c.moveTo(x, y(q.memory));
      down = true;
    }
    c.stroke();
    c.lineWidth = 1;
    c.fillText(new Date(from).toLocaleString(), left, p.h - 6);
    c.textAlign = "right";
    c.fillText(new Date(to).toLocaleString(), right, p.h - 6);
    c.textAlign = "left";
  }
}

function name(s: Share): string {
  return s.hidden ? "(a pod that you may not see)" : s.pod ? `${s.namespace}/${s.pod}` : s.grant || "process";
}
