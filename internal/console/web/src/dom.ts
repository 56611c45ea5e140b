// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Elements without HTML: every text is set as text, so that no name can become markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((e: Event) => void) | undefined>;

// el makes an element. An attribute that begins with "on" is a listener.
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]):
  HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  fill(e, ...children);
  return e;
}

// fill replaces the content of an element.
export function fill(e: Element, ...children: Child[]): void {
  e.replaceChildren(...children.filter((c): c is Node | string => !!c));
}

// link is a link to another view.
export function link(href: string, text: string): HTMLAnchorElement {
  return el("a", { href, "data-view": true }, text);
}

export function button(text: string, press: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return el("button", { type: "button", onclick: press, ...attributes }, text);
}

let ids = 0;

// field is a labeled input.
export function field(label: string, input: HTMLElement): HTMLElement {
  input.id = input.id || `field-${++ids}`;
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input);
}

export function select(options: [string, string][], value: string, change: (v: string) => void): HTMLSelectElement {
  const s = el("select", { onchange: () => change(s.value) });
  options.forEach(([v, text]) => s.append(el("option", { value: v, selected: v === value }, text)));
  return s;
}

// setOptions replaces the options and keeps the choice.
export function setOptions(s: HTMLSelectElement, options: [string, string][]): void {
  const key = JSON.stringify(options);
  if (s.dataset.options === key) return;
  const value = s.value;
  s.dataset.options = key;
  fill(s, ...options.map(([v, text]) => el("option", { value: v, selected: v === value }, text)));
}

const gib = 1024 ** 3;

export function bytes(n: number | undefined): string {
  if (n === undefined) return "unknown";
  const v = n / gib;
  return `${v >= 100 || Number.isInteger(v) ? Math.round(v) : v.toFixed(1)} GiB`;
}

export function number(n: number | null | undefined, digits = 1): string {
  return n === null || n === undefined ? "unknown" : n.toFixed(digits);
}

export function plural(n: number, one: string): string { return `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`; }

export function age(since: string | undefined): string {
  const ms = since ? Date.now() - Date.parse(since) : NaN;
  if (!(ms >= 0)) return "";
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

// save offers a file to the user.
export function save(name: string, data: Blob): void {
  const url = URL.createObjectURL(data);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// csv is a table as text. A cell that a spreadsheet would take for a formula gets an apostrophe.
export function csv(rows: string[][]): Blob {
  const cell = (s: string) => `"${(/^[=+\-@\t\r]/.test(s) ? "'" + s : s).replace(/"/g, '""')}"`;
  return new Blob([rows.map((r) => r.map(cell).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" });
}

// query reads and sets the parameters of the address, so that links lead to what is shown.
export function param(name: string): string { return new URLSearchParams(location.search).get(name) || ""; }

export function setParam(name: string, value: string): void {
  const q = new URLSearchParams(location.search);
  if (value) q.set(name, value);
  else q.delete(name);
  const text = q.toString();
  history.replaceState(null, "", location.pathname + (text ? "?" + text : ""));
}
