// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Tables that sort, page and export, and drawings with a table behind them.

import { button, csv, el, fill, save } from "./dom";

export interface Column<T> {
  name: string;
  text: (row: T) => string;
  // sort is what is compared, if it is not the text. cell is what is shown, if it is not the text.
  sort?: (row: T) => number | string;
  cell?: (row: T) => HTMLElement;
  number?: boolean;
}

const pageSize = 100;

export class Table<T> {
  readonly element: HTMLElement;
  private readonly body = el("tbody");
  private readonly heads: HTMLTableCellElement[];
  private readonly pager = el("div", { class: "pager" });
  private rows: T[] = [];
  private shown = "";
  private page = 0;

  constructor(private readonly caption: string, private readonly columns: Column<T>[], private by = 0,
    private down = false, private readonly empty = "Nothing to show.") {
    this.heads = columns.map((c, i) => el("th", { scope: "col", class: c.number ? "number" : "" },
      button(c.name, () => this.order(i))));
    const file = caption.toLowerCase().replace(/[^a-z]+/g, "-") + ".csv";
    this.element = el("div", { class: "table" },
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
        el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...this.heads)), this.body)),
      el("div", { class: "under" }, button("Export CSV", () => save(file, this.export())), this.pager));
  }

  // set shows these rows. It leaves the page alone if no text changed, so that the focus stays.
  set(rows: T[]): void {
    this.rows = rows;
    this.draw();
  }

  private order(i: number): void {
    this.down = this.by === i ? !this.down : !!this.columns[i].number;
    this.by = i;
    this.page = 0;
    this.draw();
  }

  private sorted(): T[] {
    const c = this.columns[this.by], of = c.sort || c.text;
    const sign = this.down ? -1 : 1;
    return [...this.rows].sort((x, y) => {
      const a = of(x), b = of(y);
      return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en",
        { numeric: true }));
    });
  }

  private draw(): void {
    const pages = Math.max(1, Math.ceil(this.rows.length / pageSize));
    this.page = Math.min(this.page, pages - 1);
    const rows = this.sorted().slice(this.page * pageSize, (this.page + 1) * pageSize);
    const text = JSON.stringify([this.by, this.down, this.page, pages, rows.map((r) =>
      this.columns.map((c) => c.text(r)))]);
    if (text === this.shown) return;
    this.shown = text;
    this.heads.forEach((h, i) => h.setAttribute("aria-sort", i !== this.by ? "none" : this.down ? "descending"
      : "ascending"));
    fill(this.body, ...rows.map((r) => el("tr", {}, ...this.columns.map((c) =>
      el("td", { class: c.number ? "number" : "" }, c.cell ? c.cell(r) : c.text(r))))));
    if (rows.length === 0) this.body.append(el("tr", {}, el("td", { colspan: this.columns.length }, this.empty)));
    fill(this.pager, ...(pages < 2 ? [] : [
      button("Previous", () => { this.page--; this.draw(); }, { disabled: this.page === 0 }),
      `Page ${this.page + 1} of ${pages}`,
      button("Next", () => { this.page++; this.draw(); }, { disabled: this.page === pages - 1 }),
    ]));
  }

  private export(): Blob {
    return csv([this.columns.map((c) => c.name), ...this.sorted().map((r) => this.columns.map((c) => c.text(r)))]);
  }
}

// Drawing is a canvas with a description, and a table that says the same.
export class Drawing {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private readonly details: HTMLDetailsElement;

  constructor(label: string, height: number, private readonly paint: (d: Pen) => void, table: HTMLElement,
    interactive = false) {
    this.canvas = el("canvas", interactive ? { tabindex: 0, role: "application", "aria-label": label }
      : { role: "img", "aria-label": label });
    this.canvas.style.height = `${height}px`;
    const file = label.toLowerCase().replace(/[^a-z]+/g, "-") + ".png";
    this.details = el("details", {}, el("summary", {}, "Show as a table"), table);
    this.element = el("figure", {}, this.canvas, el("div", { class: "under" },
      button("Export PNG", () => this.canvas.toBlob((b) => { if (b) save(file, b); }))), this.details);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get open(): boolean { return this.details.open; }

  set height(h: number) { this.canvas.style.height = `${h}px`; }

  onOpen(f: () => void): void { this.details.addEventListener("toggle", f); }

  draw(): void {
    const ratio = devicePixelRatio || 1, w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    if (w === 0 || h === 0) return;
    if (this.canvas.width !== Math.round(w * ratio) || this.canvas.height !== Math.round(h * ratio)) {
      this.canvas.width = Math.round(w * ratio);
      this.canvas.height = Math.round(h * ratio);
    }
    const c = this.canvas.getContext("2d");
    if (!c) return;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pen = new Pen(c, w, h);
    c.fillStyle = pen.color("surface");
    c.fillRect(0, 0, w, h);
    c.font = "12px system-ui, sans-serif";
    this.paint(pen);
  }
}

// Pen is a canvas with the colors of the theme.
export class Pen {
  private readonly style = getComputedStyle(document.documentElement);
  private readonly colors = new Map<string, string>();
  private stripes?: CanvasPattern | null;

  constructor(readonly c: CanvasRenderingContext2D, readonly w: number, readonly h: number) {}

  color(name: string): string {
    let v = this.colors.get(name);
    if (v === undefined) {
      v = this.style.getPropertyValue("--" + name).trim();
      this.colors.set(name, v);
    }
    return v;
  }

  // hatch is a pattern of stripes, for free capacity that typical requests cannot use.
  hatch(): CanvasPattern | string {
    if (this.stripes === undefined) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const t = tile.getContext("2d");
      if (t) {
        t.strokeStyle = this.color("fragmented");
        t.lineWidth = 1.5;
        for (const x of [-6, 0, 6]) { t.beginPath(); t.moveTo(x, 6); t.lineTo(x + 6, 0); t.stroke(); }
      }
      this.stripes = this.c.createPattern(tile, "repeat");
    }
    return this.stripes || this.color("fragmented");
  }
}

const hues = 8;

const colors = new Map<string, number>();

// hue is the color of a namespace, the same as long as the page is open. Up to eight namespaces have different colors.
export function hue(namespace: string): string {
  let h = colors.get(namespace);
  if (h === undefined) {
    h = 0;
    for (let i = 0; i < namespace.length; i++) h = (h * 31 + namespace.charCodeAt(i)) >>> 0;
    h %= hues;
    const taken = new Set(colors.values());
    for (let i = 0; i < hues && taken.has(h); i++) h = (h + 1) % hues;
    colors.set(namespace, h);
  }
  return `share-${h}`;
}
