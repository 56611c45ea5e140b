// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The view What if: nodes, MIG mode and further pods, simulated on the running cluster.

import { button, el, field, fill, number, param, plural, select, setOptions, setParam } from "./dom";
import { get, Latest, nodes, post } from "./state";
import { Table } from "./table";
import type { View } from "./main";

interface Cause { reason: string; nodes: number; example: string }
interface TypeFit { type: string; requested: number; placed: number; reasons?: Cause[] }
interface More { model: string; nodes: number; gpus: number }
interface Fit {
  allocatedPercentBefore: number; allocatedPercentAfter: number; pods: TypeFit[] | null; more?: More[]; notes?: string[];
}

export class WhatIfView implements View {
  readonly title = "What if";
  readonly element: HTMLElement;
  private readonly result = el("section", { "aria-live": "polite", "aria-label": "Result" });
  private readonly like: HTMLSelectElement;
  private readonly profile: HTMLSelectElement;
  private readonly inputs: Record<string, HTMLInputElement> = {};
  private readonly latest = new Latest();

  constructor() {
    const text = (name: string, placeholder: string) => this.inputs[name] = el("input", { type: "text",
      value: param(name), placeholder });
    const count = (name: string, value: string) => this.inputs[name] = el("input", { type: "number", min: 0,
      max: 10000, step: "any", value: param(name) || value });
    this.like = select([["", "none"]], "", () => undefined);
    this.profile = select([["", "no profile"]], "", () => undefined);
    const form = el("form", { onsubmit: (e) => { e.preventDefault(); void this.ask(); } },
      el("fieldset", {}, el("legend", {}, "Nodes"), field("Remove nodes (globs)", text("remove", "gpu-7, old-*")),
        field("Enable MIG mode on nodes (globs)", text("mig", "h100-*")), field("Add nodes like", this.like),
        field("Number of new nodes", count("add", "1"))),
      el("fieldset", {}, el("legend", {}, "Further pods"), field("Number of pods", count("pods", "0")),
        field("Profile", this.profile), field("GPUs of each pod", count("gpus", "1")),
        field("GiB of each GPU (empty: whole)", count("gib", "")),
        field("Percent of each GPU", count("percent", "")), field("MIG profile", text("profile", "1g.10gb"))),
      el("button", { type: "submit", class: "primary" }, "Simulate"));
    this.element = el("div", {}, el("p", {}, "The simulation uses the running cluster and the placement of " +
      "kerf-scheduler. It changes nothing."), form, this.result);
    void this.profiles();
  }

  private async profiles(): Promise<void> {
    try {
      const c = await get<{ profiles: string[] }>("/api/config");
      setOptions(this.profile, [["", "no profile"], ...c.profiles.map((p): [string, string] => [p, p])]);
    } catch { /* a viewer without a config writes amounts */ }
  }

  update(): void {
    setOptions(this.like, [["", "none"], ...[...nodes.keys()].sort().slice(0, 500).map((n): [string, string] =>
      [n, n])]);
  }

  private question(): unknown {
    const v = (name: string) => this.inputs[name].value.trim();
    const globs = (name: string) => v(name).split(/[\s,]+/).filter(Boolean);
    for (const name of Object.keys(this.inputs)) setParam(name, v(name));
    const pods = Number(v("pods")) > 0 ? [{ name: "further pods", count: Number(v("pods")), profile: this.profile.value,
      gpus: Number(v("gpus")) || (v("profile") ? 0 : 1), gpuMemory: v("gib") ? `${v("gib")}Gi` : "",
      percent: Number(v("percent")) || 0, mig: v("profile") }] : [];
    if (pods.length && v("profile")) pods[0].gpus = 0;
    return { remove: globs("remove"), mig: globs("mig"), pods,
      add: this.like.value ? [{ like: this.like.value, count: Number(v("add")) || 1 }] : [] };
  }

  private async ask(): Promise<void> {
    const newest = this.latest.next();
    fill(this.result, el("p", {}, "Simulating ..."));
    try {
      const fit = await post<Fit>("/api/whatif", this.question());
      if (newest()) this.show(fit);
    } catch (e) {
      if (newest()) fill(this.result, el("p", { class: "bad", role: "alert" }, (e as Error).message));
    }
  }

  private show(f: Fit): void {
    const pods = f.pods || [], asked = pods.reduce((n, p) => n + p.requested, 0);
    const placed = pods.reduce((n, p) => n + p.placed, 0);
    const table = new Table<TypeFit>("Pods of the simulation", [
      { name: "Pods", text: (p) => p.type },
      { name: "Requested", text: (p) => String(p.requested), sort: (p) => p.requested, number: true },
      { name: "Placed", text: (p) => String(p.placed), sort: (p) => p.placed, number: true },
      { name: "Reason of the first refusal", text: (p) => (p.reasons || []).map((r) =>
        `${plural(r.nodes, "node")}: ${r.reason} (${r.example})`).join("; ") },
    ], 0, false, "No pod is moved, pending or added.");
    table.set(pods);
    fill(this.result, el("h2", {}, "Result"),
      el("p", {}, asked === 0 ? "No pod has to be placed." : placed === asked ? `All ${plural(asked, "pod")} fit.`
        : `${placed} of ${plural(asked, "pod")} fit.`,
      ` Allocated: ${number(f.allocatedPercentBefore)}% before, ${number(f.allocatedPercentAfter)}% after.`),
      f.more?.length ? el("p", {}, "More nodes that would be enough: ", f.more.map((m) =>
        `${plural(m.nodes, "node")} with ${plural(m.gpus, "GPU")} of model ${m.model}`).join(", or ")) : null,
      table.element,
      f.notes?.length ? el("details", {}, el("summary", {}, "Notes"), el("ul", {}, ...f.notes.map((n) =>
        el("li", {}, n)))) : null,
      button("Copy link", () => void navigator.clipboard?.writeText(location.href)));
  }
}
