// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view Cluster: each GPU to scale, with filter and zoom.

import { bytes, button, el, field, fill, link, param, plural, select, setOptions, setParam } from "./dom";
import { GPU, Node, nodes } from "./state";
import { Drawing, hue, Pen, Table } from "./table";
import type { View } from "./main";

interface Row { node: Node; gpu: GPU }

// Layout of the drawing at zoom 1, in CSS pixels. A GPU of 80 GiB is barLength long.
const barLength = 96, barHeight = 10, barGap = 3, title = 16, gap = 10, height = 520;
const gib80 = 80 * 1024 ** 3;
// fragmentedFrom is the percent of typical requests from which free capacity counts as fragmented.
const fragmentedFrom = 50;

interface Box { node: Node; x: number; y: number; w: number; h: number }

export function kindOf(g: GPU): string {
  if (g.problem) return g.cordoned ? "cordoned" : "unhealthy";
  if (g.shares?.some((s) => s.whole)) return "whole";
  if (g.mig) return "MIG";
  if (!g.shares?.length) return "free";
  return (g.fragmentation || 0) >= fragmentedFrom ? "fragmented" : "shared";
}

const kinds: [string, string][] = [["", "All GPUs"], ["free", "Free"], ["shared", "Shared"], ["whole", "Whole"],
  ["MIG", "MIG"], ["fragmented", "Fragmented"], ["unhealthy", "Unhealthy"], ["cordoned", "Cordoned"]];

export function gpuPath(n: Node, g: GPU): string {
  return `/gpu/${encodeURIComponent(n.name)}/${encodeURIComponent(g.uuid)}`;
}

export function holders(g: GPU): string {
  return (g.shares || []).map((s) => s.hidden ? "(hidden)" : s.pod ? `${s.namespace}/${s.pod}` : s.container || s.grant
    || "process").join(", ");
}

export class ClusterView implements View {
  readonly title = "Cluster";
  readonly element: HTMLElement;
  private readonly drawing: Drawing;
  private readonly table: Table<Row>;
  private readonly summary = el("p", { role: "status" });
  private readonly tip = el("div", { class: "tip", hidden: true });
  private readonly said = el("p", { class: "unseen", "aria-live": "polite" });
  private readonly search: HTMLInputElement;
  private readonly pool: HTMLSelectElement;
  private readonly model: HTMLSelectElement;
  private boxes: Box[] = [];
  private rows: Row[] = [];
  private world = { w: 1, h: 1 };
  private view = { x: 0, y: 0, zoom: 0 };
  private chosen = -1;
  // frame is how long the last drawing took, in milliseconds, for the benchmark.
  frame = 0;

  constructor() {
    this.search = el("input", { type: "search", value: param("q"), placeholder: "node, model, namespace or pod",
      oninput: () => { setParam("q", this.search.value); this.update(); } });
    const choose = (name: string) => (v: string) => { setParam(name, v); this.update(); };
    this.pool = select([["", "All pools"]], "", choose("pool"));
    this.model = select([["", "All models"]], "", choose("model"));
    this.table = new Table<Row>("GPUs", [
      { name: "Node", text: (r) => r.node.name },
      { name: "GPU", text: (r) => String(r.gpu.index), sort: (r) => r.gpu.index, number: true,
        cell: (r) => link(gpuPath(r.node, r.gpu), String(r.gpu.index)) },
      { name: "Model", text: (r) => r.gpu.model || "" },
      { name: "Pool", text: (r) => r.node.pool || "" },
      { name: "State", text: (r) => kindOf(r.gpu) },
      { name: "Problem", text: (r) => r.gpu.problem || r.node.reason || "" },
      { name: "Allocatable", text: (r) => amount(r.gpu, r.gpu.memory.allocatable),
        sort: (r) => r.gpu.memory.allocatable, number: true },
      { name: "Free", text: (r) => amount(r.gpu, r.gpu.memory.free), sort: (r) => r.gpu.memory.free, number: true },
      { name: "Fragmentation", text: (r) => `${r.gpu.fragmentation || 0}%`, sort: (r) => r.gpu.fragmentation || 0,
        number: true },
      { name: "Grants", text: (r) => holders(r.gpu) },
    ]);
    this.drawing = new Drawing("GPUs of the cluster to scale", height, (p) => this.paint(p), this.table.element, true);
    this.drawing.onOpen(() => this.update());
    this.listen(this.drawing.canvas);
    this.element = el("div", {}, el("div", { class: "tools" }, field("Filter", this.search), field("Pool", this.pool),
      field("Model", this.model), field("State", select(kinds, param("state"), choose("state"))),
      field("Group by", select([["pool", "Pool"], ["model", "Model"], ["node", "Node"]], param("by") || "pool",
        choose("by"))),
      el("div", { class: "zoom" }, button("+", () => this.zoom(1.4), { "aria-label": "Zoom in" }),
        button("−", () => this.zoom(1 / 1.4), { "aria-label": "Zoom out" }),
        button("Fit", () => this.fit()))),
    this.summary, el("div", { class: "map" }, this.drawing.element, this.tip), this.said, legend());
  }

  // filtered are the rows that the filters leave, in the order of the groups.
  private filtered(): Row[] {
    const words = param("q").toLowerCase().split(/\s+/).filter(Boolean);
    const pool = param("pool"), model = param("model"), state = param("state"), out: Row[] = [];
    for (const node of nodes.values()) {
      if (pool && node.pool !== pool) continue;
      for (const gpu of node.gpus) {
        if (model && gpu.model !== model || state && kindOf(gpu) !== state) continue;
        if (words.length) {
          const text = `${node.name} ${gpu.model} ${gpu.uuid} ${holders(gpu)}`.toLowerCase();
          if (!words.every((w) => text.includes(w))) continue;
        }
        out.push({ node, gpu });
      }
    }
    const by = param("by") || "pool";
    const group = (r: Row) => by === "pool" ? r.node.pool || "" : by === "model" ? r.gpu.model || "" : "";
    const order = new Intl.Collator("en", { numeric: true }).compare;
    return out.sort((a, b) => order(group(a), group(b)) || order(a.node.name, b.node.name) || a.gpu.index - b.gpu.index);
  }

  update(): void {
    const all = [...nodes.values()];
    const names = (of: string[]) => [...new Set(of)].filter(Boolean).sort();
    setOptions(this.pool, [["", "All pools"], ...names(all.map((n) => n.pool || "")).map((p): [string, string] =>
      [p, p])]);
    setOptions(this.model, [["", "All models"], ...names(all.flatMap((n) => n.gpus.map((g) => g.model || "")))
      .map((m): [string, string] => [m, m])]);
    this.pool.value = param("pool");
    this.model.value = param("model");
    this.rows = this.filtered();
    this.layout();
    this.summarize();
    if (this.drawing.open) this.table.set(this.rows);
    this.drawing.draw();
  }

  private summarize(): void {
    let free = 0, all = 0;
    const count = new Map<string, number>();
    for (const { gpu } of this.rows) {
      const k = kindOf(gpu);
      count.set(k, (count.get(k) || 0) + 1);
      all += gpu.memory.allocatable;
      free += gpu.memory.free;
    }
    const parts = [...count].map(([k, n]) => `${n.toLocaleString("en")} ${k}`).join(", ");
    const text = this.rows.length === 0 ? "No GPU matches." : `${plural(this.rows.length, "GPU")} on ` +
      `${plural(this.boxes.length, "node")}: ${parts}. ${bytes(free)} of ${bytes(all)} are free.`;
    if (this.summary.textContent !== text) this.summary.textContent = text;
  }

  // layout puts the nodes into a grid whose shape is that of the canvas.
  private layout(): void {
    const by = new Map<Node, GPU[]>();
    let most = 1, longest = 1;
    for (const { node, gpu } of this.rows) {
      const list = by.get(node) || [];
      list.push(gpu);
      by.set(node, list);
      most = Math.max(most, list.length);
      longest = Math.max(longest, drawn(gpu) / gib80);
    }
    const w = Math.max(barLength * longest, 90) + gap, h = title + most * (barHeight + barGap) + gap;
    const width = this.drawing.canvas.clientWidth || 1000;
    const columns = Math.max(1, Math.min(by.size, Math.round(Math.sqrt(by.size * h * width / (w * height)))));
    this.boxes = [];
    let i = 0;
    for (const [node, gpus] of by) {
      this.boxes.push({ node: { ...node, gpus }, x: (i % columns) * w, y: Math.floor(i / columns) * h, w: w - gap,
        h: h - gap });
      i++;
    }
    this.world = { w: columns * w, h: Math.ceil(by.size / columns) * h };
    if (this.view.zoom === 0 && by.size > 0) this.fit(false);
  }

  private fit(draw = true): void {
    const width = this.drawing.canvas.clientWidth || 1000;
    this.view = { x: -8, y: -8, zoom: Math.min(2, (width - 16) / this.world.w, (height - 16) / this.world.h) };
    if (draw) this.drawing.draw();
  }

  private zoom(times: number, x = this.drawing.canvas.clientWidth / 2, y = height / 2): void {
    const z = Math.min(8, Math.max(0.01, this.view.zoom * times));
    this.view.x += x / this.view.zoom - x / z;
    this.view.y += y / this.view.zoom - y / z;
    this.view.zoom = z;
    this.drawing.draw();
  }

  private paint(p: Pen): void {
    const began = performance.now(), { x, y, zoom } = this.view, c = p.c;
    if (zoom === 0) return;
    const fine = barHeight * zoom >= 6, names = zoom >= 0.7;
    let i = 0;
    for (const b of this.boxes) {
      const left = (b.x - x) * zoom, top = (b.y - y) * zoom;
      const inside = left < p.w && top < p.h && left + b.w * zoom > 0 && top + b.h * zoom > 0;
      if (inside && names) this.paintName(p, b, left, top);
      for (let k = 0; k < b.node.gpus.length; k++, i++) {
        if (!inside) continue;
        const g = b.node.gpus[k], at = top + (title + k * (barHeight + barGap)) * zoom;
        const w = barLength * zoom * drawn(g) / gib80;
        paintGPU(p, g, left, at, w, barHeight * zoom, fine);
        if (i === this.chosen) {
          c.strokeStyle = p.color("focus");
          c.lineWidth = 2;
          c.strokeRect(left - 2, at - 2, w + 4, barHeight * zoom + 4);
        }
      }
    }
    this.frame = performance.now() - began;
  }

  private paintName(p: Pen, b: Box, left: number, top: number): void {
    p.c.fillStyle = p.color(b.node.state === "ready" ? "text" : "bad");
    p.c.font = `${Math.min(13, 11 * this.view.zoom)}px system-ui, sans-serif`;
    p.c.fillText(b.node.name, left, top + 11 * this.view.zoom, b.w * this.view.zoom);
  }

  // at is the number of the GPU at a point of the canvas; -1 for none.
  private at(px: number, py: number): number {
    const wx = px / this.view.zoom + this.view.x, wy = py / this.view.zoom + this.view.y;
    let i = 0;
    for (const b of this.boxes) {
      if (wx >= b.x && wx <= b.x + b.w && wy >= b.y && wy <= b.y + b.h) {
        const k = Math.floor((wy - b.y - title) / (barHeight + barGap));
        return k >= 0 && k < b.node.gpus.length ? i + k : -1;
      }
      i += b.node.gpus.length;
    }
    return -1;
  }

  private listen(c: HTMLCanvasElement): void {
    let drag: { x: number; y: number; moved: boolean } | null = null;
    c.addEventListener("wheel", (e) => {
      e.preventDefault();
      this.zoom(Math.exp(-e.deltaY / 400), e.offsetX, e.offsetY);
    }, { passive: false });
    c.addEventListener("pointerdown", (e) => { drag = { x: e.offsetX, y: e.offsetY, moved: false }; });
    c.addEventListener("pointermove", (e) => {
      if (!drag) return this.point(e.offsetX, e.offsetY);
      if (Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) < 3 && !drag.moved) return;
      this.view.x -= (e.offsetX - drag.x) / this.view.zoom;
      this.view.y -= (e.offsetY - drag.y) / this.view.zoom;
      drag = { x: e.offsetX, y: e.offsetY, moved: true };
      this.drawing.draw();
    });
    c.addEventListener("pointerup", (e) => {
      if (drag && !drag.moved) this.open(this.at(e.offsetX, e.offsetY));
      drag = null;
    });
    c.addEventListener("pointerleave", () => { drag = null; this.tip.hidden = true; });
    c.addEventListener("keydown", (e) => this.key(e));
  }

  private key(e: KeyboardEvent): void {
    const last = this.rows.length - 1;
    const step: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 8,
      PageUp: -8, Home: -last, End: last };
    if (e.key in step) {
      this.chosen = Math.max(0, Math.min(last, this.chosen + step[e.key]));
      const r = this.rows[this.chosen];
      if (r) this.said.textContent = `${r.node.name}, GPU ${r.gpu.index}, ${describe(r.gpu)}`;
      this.reveal();
    } else if (e.key === "Enter") this.open(this.chosen);
    else if (e.key === "+" || e.key === "=") this.zoom(1.4);
    else if (e.key === "-") this.zoom(1 / 1.4);
    else if (e.key === "0") this.fit();
    else return;
    e.preventDefault();
    this.drawing.draw();
  }

  // reveal moves the drawing so that the chosen GPU is visible.
  private reveal(): void {
    let i = 0;
    for (const b of this.boxes) {
      if (this.chosen < i + b.node.gpus.length) {
        const w = this.drawing.canvas.clientWidth / this.view.zoom, h = height / this.view.zoom;
        if (b.x < this.view.x || b.x + b.w > this.view.x + w) this.view.x = b.x - w / 2;
        if (b.y < this.view.y || b.y + b.h > this.view.y + h) this.view.y = b.y - h / 2;
        return;
      }
      i += b.node.gpus.length;
    }
  }

  private open(i: number): void {
    const r = this.rows[i];
    if (r) document.dispatchEvent(new CustomEvent("visit", { detail: gpuPath(r.node, r.gpu) }));
  }

  private point(x: number, y: number): void {
    const r = this.rows[this.at(x, y)];
    this.tip.hidden = !r;
    this.drawing.canvas.style.cursor = r ? "pointer" : "grab";
    if (!r) return;
    fill(this.tip, el("strong", {}, `${r.node.name}, GPU ${r.gpu.index}`), el("div", {}, r.gpu.model || ""),
      el("div", {}, describe(r.gpu)), el("div", {}, holders(r.gpu)));
    this.tip.style.left = `${Math.min(x + 14, this.drawing.canvas.clientWidth - 260)}px`;
    this.tip.style.top = `${y + 14}px`;
  }
}

// amount is an amount of a GPU's memory for people.
export function amount(g: GPU, n: number): string {
  return bytes(g.memory.unknown ? undefined : n);
}

// drawn is the memory that stands for a GPU's length; a GPU of unknown memory is as long as one of 80 GiB.
export function drawn(g: GPU): number {
  return g.memory.unknown ? gib80 : g.memory.capacity;
}

export function describe(g: GPU): string {
  const parts = [kindOf(g), g.memory.unknown ? "memory unknown" :
    `${bytes(g.memory.free)} of ${bytes(g.memory.allocatable)} free`];
  if (g.problem) parts.push(g.problem);
  if (g.fragmentation) parts.push(`too little for ${g.fragmentation}% of typical requests`);
  if (g.memory.used !== undefined) parts.push(`${bytes(g.memory.used)} used`);
  return parts.join(", ");
}

// paintGPU draws a GPU to scale: its length is its memory, and so is that of each share.
export function paintGPU(p: Pen, g: GPU, x: number, y: number, w: number, h: number, fine: boolean): void {
  const c = p.c, kind = kindOf(g), per = w / drawn(g);
  c.fillStyle = p.color(kind === "unhealthy" ? "unhealthy" : kind === "cordoned" ? "cordoned" : "free");
  c.fillRect(x, y, w, h);
  if (kind === "fragmented") {
    c.fillStyle = fine ? p.hatch() : p.color("fragmented-flat");
    c.fillRect(x, y, w, h);
  }
  let at = x;
  for (const s of g.shares || []) {
    if (g.mig) at = x + (s.start || 0) * w / Math.max(1, g.mig.slices);
    const length = s.whole ? w : s.memory * per;
    c.fillStyle = p.color(s.hidden ? "hidden" : hue(s.namespace || ""));
    c.fillRect(at, y, Math.max(0.5, fine ? length - 1 : length), h);
    if (fine && s.used !== undefined) {
      c.fillStyle = p.color("used");
      c.fillRect(at, y + h * 0.7, Math.min(length, s.used * per), h * 0.3);
    }
    at += length;
  }
  if (!fine) return;
  if (g.mig) {
    c.strokeStyle = p.color("text");
    c.lineWidth = 1;
    for (const i of g.mig.instances || []) {
      c.strokeRect(x + i.start * w / g.mig.slices + 0.5, y + 0.5, i.slices * w / g.mig.slices - 1, h - 1);
    }
  }
  c.strokeStyle = p.color(kind === "unhealthy" ? "bad" : "line");
  c.lineWidth = kind === "whole" ? 2 : 1;
  c.strokeRect(x, y, w, h);
  if (kind === "unhealthy") {
    c.beginPath();
    c.moveTo(x, y); c.lineTo(x + w, y + h); c.moveTo(x + w, y); c.lineTo(x, y + h);
    c.stroke();
  }
}

function legend(): HTMLElement {
  const item = (kind: string, text: string) => el("li", {}, el("span", { class: "key " + kind, "aria-hidden": "true" }),
    text);
  return el("ul", { class: "legend", "aria-label": "Legend" }, item("share", "share, colored by namespace"),
    item("whole", "whole GPU: thick border"), item("mig", "MIG instance: framed"), item("free", "free"),
    item("fragmented", "fragmented: striped"), item("unhealthy", "unhealthy: crossed out"),
    item("cordoned", "cordoned"), item("hidden", "pods that you may not see"));
}
