// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view Teams: what each team used, wasted and cost.

import { bytes, el, field, fill, number, param, select, setParam } from "./dom";
import { get, Latest, nodes } from "./state";
import { Drawing, Pen, Table } from "./table";
import type { View } from "./main";

interface Row {
  labels: Record<string, string>; grantedGPUHours: number; usedGPUHours: number; wastedGPUHours: number;
  idleGPUHours: number; unknownGPUHours: number; cost: number | null; enoughPercent: number | null;
  savedCost: number | null;
}
interface Now { namespace: string; gpus: number; memory: number; used?: number }
interface Usage { by: string; currency: string; rows: Row[] }

const mostBars = 12, barHeight = 18, labelWidth = 170;

export class TeamsView implements View {
  readonly title = "Teams";
  readonly element: HTMLElement;
  private readonly summary = el("p", { role: "status" });
  private readonly holder = el("div");
  private readonly now: Table<Now>;
  private readonly drawing: Drawing;
  private rows: Row[] = [];
  private by = "namespace";
  private readonly latest = new Latest();

  constructor() {
    this.now = new Table<Now>("Granted now", [
      { name: "Namespace", text: (r) => r.namespace },
      { name: "Grants", text: (r) => String(r.gpus), sort: (r) => r.gpus, number: true },
      { name: "Memory", text: (r) => bytes(r.memory), sort: (r) => r.memory, number: true },
      { name: "Used now", text: (r) => bytes(r.used), sort: (r) => r.used ?? -1, number: true },
    ], 2, true);
    this.drawing = new Drawing("GPU hours used and wasted by team", 40 + mostBars * (barHeight + 6), (p) =>
      this.paint(p), el("p", {}, "The table of usage has the same amounts."));
    const choose = (name: string) => (v: string) => { setParam(name, v); void this.ask(); };
    const label = el("input", { type: "text", value: param("label"), placeholder: "such as team",
      onchange: () => { setParam("label", label.value.trim()); void this.ask(); } });
    this.element = el("div", {}, el("div", { class: "tools" },
      field("Time", select([["1h", "1 hour"], ["24h", "1 day"], ["168h", "7 days"], ["720h", "30 days"]],
        param("since") || "24h", choose("since"))),
      field("Group by", select([["namespace", "Namespace"], ["profile", "Profile"], ["model", "Model"], ["level",
        "Level"]], param("by") || "namespace", choose("by"))), field("or by the pod label", label)),
    this.summary, this.holder, el("h2", {}, "Now"), this.now.element);
    void this.ask();
  }

  update(): void {
    const by = new Map<string, Now>();
    for (const n of nodes.values()) {
      for (const g of n.gpus) {
        for (const s of g.shares || []) {
          const key = s.hidden ? "(hidden)" : s.namespace || "(no pod)";
          const r = by.get(key) || { namespace: key, gpus: 0, memory: 0 };
          r.gpus++;
          r.memory += s.memory;
          if (s.used !== undefined) r.used = (r.used || 0) + s.used;
          by.set(key, r);
        }
      }
    }
    this.now.set([...by.values()]);
  }

  private async ask(): Promise<void> {
    const label = param("label"), by = label ? "label:" + label : param("by") || "namespace";
    const newest = this.latest.next();
    this.summary.textContent = "Reading usage ...";
    try {
      const u = await get<Usage>(`/api/teams?since=${param("since") || "24h"}&by=${encodeURIComponent(by)}`);
      if (newest()) this.show(u);
    } catch (e) {
      if (!newest()) return;
      this.rows = [];
      fill(this.holder);
      this.summary.textContent = `Usage over time is not available: ${(e as Error).message}`;
    }
  }

  private show(u: Usage): void {
    this.rows = [...u.rows].sort((a, b) => b.wastedGPUHours - a.wastedGPUHours);
    this.by = u.by;
    const of = (r: Row) => r.labels[this.by] || "(none)";
    const hours = (name: string, get: (r: Row) => number) => ({ name, text: (r: Row) => number(get(r)), sort: get,
      number: true });
    const money = (v: number | null) => v === null ? "unknown" : `${v.toFixed(2)} ${u.currency}`;
    const table = new Table<Row>("Usage by team", [
      { name: "Team", text: of },
      hours("Granted GPU hours", (r) => r.grantedGPUHours), hours("Used", (r) => r.usedGPUHours),
      hours("Wasted", (r) => r.wastedGPUHours), hours("Idle", (r) => r.idleGPUHours),
      hours("Unknown", (r) => r.unknownGPUHours),
      { name: "Cost", text: (r) => money(r.cost), sort: (r) => r.cost ?? -1, number: true },
      { name: "Enough", text: (r) => r.enoughPercent === null ? "unknown" : r.enoughPercent + "%",
        sort: (r) => r.enoughPercent ?? 101, number: true },
      { name: "Could save", text: (r) => money(r.savedCost), sort: (r) => r.savedCost ?? -1, number: true },
    ], 3, true, "No usage in this time.");
    table.set(this.rows);
    const first = this.rows[0];
    this.summary.textContent = !first || first.wastedGPUHours <= 0 ? "No waste is known in this time."
      : `${of(first)} wastes most: ${number(first.wastedGPUHours)} of ${number(first.grantedGPUHours)} granted GPU ` +
      `hours${first.cost === null ? "" : `, which cost ${money(first.cost)}`}.`;
    fill(this.holder, this.drawing.element, table.element);
    this.drawing.height = 44 + Math.min(mostBars, this.rows.length) * (barHeight + 6);
    this.drawing.draw();
  }

  private paint(p: Pen): void {
    const c = p.c, rows = this.rows.slice(0, mostBars), most = Math.max(1e-9, ...rows.map((r) => r.grantedGPUHours));
    let x = 8;
    for (const [text, color] of [["used", "used"], ["wasted", "wasted"], ["unknown", "hidden"]]) {
      c.fillStyle = p.color(color);
      c.fillRect(x, 8, 12, 12);
      c.fillStyle = p.color("text");
      c.fillText(text, x + 17, 18);
      x += 90;
    }
    rows.forEach((r, i) => {
      const y = 34 + i * (barHeight + 6), per = (p.w - labelWidth - 16) / most;
      c.fillStyle = p.color("text");
      c.fillText(r.labels[this.by] || "(none)", 8, y + 13, labelWidth - 16);
      let at = labelWidth;
      for (const [v, color] of [[Math.min(r.usedGPUHours, r.grantedGPUHours), "used"], [r.wastedGPUHours, "wasted"],
        [r.unknownGPUHours, "hidden"]] as [number, string][]) {
        c.fillStyle = p.color(color);
        c.fillRect(at, y, v * per, barHeight);
        at += v * per;
      }
    });
  }
}
