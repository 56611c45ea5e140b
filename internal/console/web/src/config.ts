// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view Config: the applied config, and errors, differences and plan of a pasted one.

import { el, field, fill, link, plural } from "./dom";
import { get, Latest, Node, nodes, post } from "./state";
import { Table } from "./table";
import type { View } from "./main";

interface Applied { known: boolean; text?: string; pools: string[]; profiles: string[] }
interface Problem { line: number; path: string; problem: string; remedy?: string }
interface Difference { path: string; before: string; after: string }
interface Step { index: number; settings: string[]; blockedBy?: string[] }
interface Rule extends Difference { when: string; running?: string[] }
interface NodePlan {
  node: string; poolBefore: string; poolAfter: string; now: Step[]; pending: Step[]; new: Step[]; rules: Rule[];
  shares?: { indexes: number[]; reason: string }[]; rejected?: string; notPlanned?: string;
}
interface Plan { differences: Difference[]; nodes?: NodePlan[]; unknown?: string[] }
interface Checked { valid: boolean; errors: Problem[]; plan?: Plan }
interface Line { node: string; when: string; what: string; who: string }

export class ConfigView implements View {
  readonly title = "Config";
  readonly element: HTMLElement;
  private readonly applied = el("div");
  private readonly result = el("section", { "aria-live": "polite", "aria-label": "Result" });
  private readonly text: HTMLTextAreaElement;
  private readonly status: Table<Node>;
  private readonly latest = new Latest();

  constructor() {
    this.status = new Table<Node>("Config of each node", [
      { name: "Node", text: (n) => n.name, cell: (n) => link(`/cluster?q=${encodeURIComponent(n.name)}`, n.name) },
      { name: "Pool", text: (n) => n.pool || "" },
      { name: "Applied", text: (n) => n.config.sha256?.slice(0, 12) || "built-in" },
      { name: "Errors of a newer config", text: (n) => (n.config.errors || []).join("; ") },
      { name: "Pending", text: (n) => (n.config.pending || []).join("; ") },
    ]);
    this.text = el("textarea", { rows: 16, spellcheck: "false", class: "code",
      placeholder: "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig" });
    this.element = el("div", {}, this.applied, this.status.element, el("h2", {}, "Compare a config"),
      el("form", { onsubmit: (e) => { e.preventDefault(); void this.compare(); } },
        field("SharingConfig in YAML", this.text),
        el("button", { type: "submit", class: "primary" }, "Check and compare")), this.result);
    void this.ask();
  }

  update(): void { this.status.set([...nodes.values()]); }

  private async ask(): Promise<void> {
    try {
      const c = await get<Applied>("/api/config");
      fill(this.applied, el("p", {}, c.known ? `The cluster's config has ${plural(c.pools.length, "pool")} ` +
        `(${c.pools.join(", ")}) and ${plural(c.profiles.length, "profile")}${c.profiles.length ? ` (${
          c.profiles.join(", ")})` : ""}.` : "The text of the config is not known here."),
      c.text ? el("details", {}, el("summary", {}, "Applied config"), el("pre", { tabindex: 0 }, c.text)) : null);
    } catch (e) {
      fill(this.applied, el("p", { class: "bad" }, (e as Error).message));
    }
  }

  private async compare(): Promise<void> {
    const newest = this.latest.next();
    fill(this.result, el("p", {}, "Comparing ..."));
    try {
      const checked = await post<Checked>("/api/config", { text: this.text.value });
      if (newest()) this.show(checked);
    } catch (e) {
      if (newest()) fill(this.result, el("p", { class: "bad", role: "alert" }, (e as Error).message));
    }
  }

  private show(c: Checked): void {
    if (!c.valid) {
      const table = new Table<Problem>("Errors", [
        { name: "Line", text: (p) => p.line ? String(p.line) : "", sort: (p) => p.line, number: true,
          cell: (p) => p.line ? this.line(p.line) : el("span") },
        { name: "Field", text: (p) => p.path }, { name: "Error", text: (p) => p.problem },
        { name: "Remedy", text: (p) => p.remedy || "" },
      ]);
      table.set(c.errors);
      return fill(this.result, el("p", { class: "bad", role: "alert" }, `The config has ${plural(c.errors.length,
        "error")}. Kerf would reject it and change nothing.`), table.element);
    }
    if (!c.plan) {
      return fill(this.result, el("p", {}, "The config is valid. You may not see what it would change: that needs the " +
        "right to list all pods."));
    }
    fill(this.result, el("p", {}, "The config is valid."), ...this.plan(c.plan));
  }

  // line is a button that moves the cursor to a line of the text.
  private line(n: number): HTMLElement {
    const to = () => {
      const lines = this.text.value.split("\n"), from = lines.slice(0, n - 1).join("\n").length + (n > 1 ? 1 : 0);
      this.text.focus();
      this.text.setSelectionRange(from, from + (lines[n - 1] || "").length);
    };
    return el("button", { type: "button", onclick: to, "aria-label": `Go to line ${n}` }, String(n));
  }

  private plan(p: Plan): HTMLElement[] {
    const differences = new Table<Difference>("Differences", [
      { name: "Field", text: (d) => d.path }, { name: "Before", text: (d) => d.before },
      { name: "After", text: (d) => d.after },
    ], 0, false, "No field differs.");
    differences.set(p.differences);
    const lines = new Table<Line>("Plan", [
      { name: "Node", text: (l) => l.node }, { name: "When", text: (l) => l.when }, { name: "What", text: (l) => l.what },
      { name: "Pods", text: (l) => l.who },
    ], 0, false, "No GPU changes.");
    lines.set((p.nodes || []).flatMap(linesOf));
    return [differences.element, lines.element, ...(p.unknown || []).map((u) => el("p", { class: "note" }, u))];
  }
}

function linesOf(n: NodePlan): Line[] {
  const step = (when: string) => (s: Step): Line => ({ node: n.node, when, what: `GPU ${s.index}: ` +
    s.settings.join(", "), who: (s.blockedBy || []).join(", ") });
  const out = [...n.now.map(step("now")), ...n.pending.map(step("when idle")), ...n.new.map(step("new grants"))];
  for (const r of n.rules) {
    out.push({ node: n.node, when: r.when, what: `${r.path}: ${r.before || "not set"} → ${r.after || "not set"}`,
      who: (r.running || []).join(", ") });
  }
  for (const s of n.shares || []) {
    out.push({ node: n.node, when: "now", what: `shares of GPU ${s.indexes.join(", ")} are rejected: ${s.reason}`,
      who: "" });
  }
  if (n.rejected) out.push({ node: n.node, when: "never", what: `The node rejects the config: ${n.rejected}`, who: "" });
  if (n.notPlanned) out.push({ node: n.node, when: "unknown", what: n.notPlanned, who: "" });
  return out;
}
