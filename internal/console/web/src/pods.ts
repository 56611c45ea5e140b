// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view Pods: pending pods with the reason and the cheapest change.

import { age, button, el, field, fill, link, param, plural, select, setParam } from "./dom";
import { get, Pod, pods, version } from "./state";
import { Table } from "./table";
import type { View } from "./main";

interface Change { kind: string; text: string }
interface Advice { reason?: string; fits?: string[]; changes: Change[] }

// mostAdvised is for how many pods the cheapest change is asked without a click.
const mostAdvised = 20;

export class PodsView implements View {
  readonly title = "Pods";
  readonly element: HTMLElement;
  private readonly summary = el("p", { role: "status" });
  private readonly detail = el("section", { "aria-label": "Selected pod" });
  private readonly table: Table<Pod>;
  private readonly search: HTMLInputElement;
  private readonly advice = new Map<string, Advice | string>();
  private asking = false;
  private last = 0;

  constructor() {
    this.search = el("input", { type: "search", value: param("q"), placeholder: "namespace, pod, node or label",
      oninput: () => { setParam("q", this.search.value); this.update(); } });
    this.table = new Table<Pod>("Pods with GPU requests", [
      { name: "Pod", text: (p) => `${p.namespace}/${p.name}`, cell: (p) => link(`/pods?${new URLSearchParams({
        ...Object.fromEntries(new URLSearchParams(location.search)), pod: p.uid })}`, `${p.namespace}/${p.name}`) },
      { name: "Needs", text: (p) => p.problem || p.needs || "" },
      { name: "Priority", text: (p) => String(p.priority || 0), sort: (p) => p.priority || 0, number: true },
      { name: "Age", text: (p) => age(p.since), sort: (p) => -(Date.parse(p.since || "") || 0), number: true },
      { name: "Reason", text: (p) => p.pending ? p.reason || "" : `runs on ${p.node}` },
      { name: "Cheapest change", text: (p) => p.pending ? this.cheapest(p) : "" },
    ], 0, false, "No pod is pending.");
    this.element = el("div", {}, el("div", { class: "tools" }, field("Filter", this.search),
      field("Show", select([["", "Pending pods"], ["all", "All pods"]], param("show"), (v) => {
        setParam("show", v);
        this.update();
      }))), this.summary, this.detail, this.table.element);
  }

  private cheapest(p: Pod): string {
    const a = this.advice.get(p.uid);
    if (a === undefined) return "";
    if (typeof a === "string") return a;
    if (a.fits?.length) return `None: it fits on ${a.fits[0]} now.`;
    return a.changes[0]?.text || "No single change is enough.";
  }

  private shown(): Pod[] {
    const words = param("q").toLowerCase().split(/\s+/).filter(Boolean), all = param("show") === "all";
    return [...pods.values()].filter((p) => (all || p.pending) && words.every((w) =>
      `${p.namespace}/${p.name} ${p.node || ""} ${p.reason || ""} ${Object.entries(p.labels || {}).flat().join(" ")}`
        .toLowerCase().includes(w)));
  }

  update(): void {
    const rows = this.shown(), pending = rows.filter((p) => p.pending);
    const text = `${plural(pending.length, "pod")} ${pending.length === 1 ? "is" : "are"} pending.`;
    if (this.summary.textContent !== text) this.summary.textContent = text;
    this.table.set(rows);
    this.choose();
    const chosen = [...pods.values()].find((p) => p.uid === param("pod") && p.pending);
    void this.ask([...(chosen ? [chosen] : []), ...pending.slice(0, mostAdvised)]);
  }

  // ask gets the advice for pods, one after the other, at most every five seconds.
  private async ask(list: Pod[]): Promise<void> {
    if (this.asking || Date.now() - this.last < 5000 && list.every((p) => this.advice.has(p.uid))) return;
    this.asking = true;
    const from = version;
    for (const p of list) {
      try {
        this.advice.set(p.uid, await get<Advice>("/api/advice?pod=" + encodeURIComponent(p.uid)));
      } catch (e) {
        this.advice.set(p.uid, (e as Error).message);
      }
      this.table.set(this.shown());
      this.choose();
    }
    this.last = Date.now();
    this.asking = false;
    if (from !== version && !list.length) this.update();
  }

  private choose(): void {
    const uid = param("pod"), p = uid ? [...pods.values()].find((q) => q.uid === uid) : undefined;
    const a = p && this.advice.get(p.uid);
    const key = JSON.stringify([p, a]);
    if (this.detail.dataset.key === key) return;
    this.detail.dataset.key = key;
    if (!p) return fill(this.detail);
    const changes = typeof a === "object" ? a.changes : [];
    fill(this.detail, el("h2", {}, `${p.namespace}/${p.name}`),
      el("dl", {}, el("dt", {}, "Needs"), el("dd", {}, p.problem || p.needs || ""),
        el("dt", {}, p.pending ? "The scheduler says" : "Runs on"),
        el("dd", {}, p.pending ? p.reason || "" : p.node || ""),
        p.pending && el("dt", {}, "Free capacity now"),
        p.pending && el("dd", {}, typeof a === "object" ? a.reason || `It fits on ${(a.fits || []).join(", ")}.`
          : a || "asking ..."),
        el("dt", {}, "Labels"), el("dd", {}, Object.entries(p.labels || {}).map(([k, v]) => `${k}=${v}`).join(", ")
          || "none")),
      p.pending && el("h3", {}, "Changes that would place it, the cheapest first"),
      p.pending && el("ol", {}, ...(changes.length ? changes.map((c) => el("li", {}, c.text))
        : [el("li", {}, this.cheapest(p) || "asking ...")])),
      button("Close", () => { setParam("pod", ""); this.choose(); }));
  }
}
