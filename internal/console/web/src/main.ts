// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The console: navigation, keyboard and the stream.

import { button, el, fill, link } from "./dom";
import { connect, get, source } from "./state";
import { ClusterView } from "./cluster";
import { GPUView } from "./gpu";
import { PodsView } from "./pods";
import { TeamsView } from "./teams";
import { WhatIfView } from "./whatif";
import { ConfigView } from "./config";

export interface View {
  title: string;
  readonly element: HTMLElement;
  update(): void;
}

const views: [string, string, () => View][] = [
  ["/cluster", "Cluster", () => new ClusterView()],
  ["/pods", "Pods", () => new PodsView()],
  ["/teams", "Teams", () => new TeamsView()],
  ["/whatif", "What if", () => new WhatIfView()],
  ["/config", "Config", () => new ConfigView()],
];

const main = el("main", { id: "main", tabindex: -1 });
const heading = el("h1");
const body = el("div");
const problems = el("ul", { class: "problems", "aria-label": "Problems" });
const live = el("span", { class: "live", role: "status" });
const nav = el("nav", { "aria-label": "Views" });
const who = el("span", { class: "who" });
let view: View | null = null;

function open(path: string): void {
  const url = new URL(path, location.origin);
  history.pushState(null, "", url);
  show();
  main.focus();
}

// show makes the view of the address.
function show(): void {
  if (location.pathname === "/" || location.pathname === "/login") history.replaceState(null, "", "/cluster");
  const gpu = location.pathname.match(/^\/gpu\/([^/]+)\/([^/]+)$/);
  const known = views.find(([path]) => path === location.pathname);
  view = gpu ? new GPUView(decodeURIComponent(gpu[1]), decodeURIComponent(gpu[2])) : (known || views[0])[2]();
  fill(body, view.element);
  for (const a of nav.querySelectorAll("a")) {
    const here = a.getAttribute("href") === (gpu ? "/cluster" : location.pathname);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  update(true);
}

function update(connected: boolean): void {
  live.textContent = connected ? "live" : "connection lost, retrying";
  live.classList.toggle("bad", !connected);
  const text = source.problems.join("\n");
  if (problems.dataset.text !== text) {
    problems.dataset.text = text;
    fill(problems, ...source.problems.map((p) => el("li", {}, p)));
    problems.hidden = !text;
  }
  if (!view) return;
  view.update();
  if (heading.textContent !== view.title) heading.textContent = view.title;
  document.title = `${view.title} - Kerf`;
}

const help = el("dialog", { "aria-labelledby": "keys" }, el("h2", { id: "keys" }, "Keys"), el("dl", {},
  ...[["1 to 5", "Open a view"], ["/", "Go to the filter"], ["Arrow keys", "Choose a GPU in the drawing"],
    ["Enter", "Open the GPU"], ["+, -, 0", "Zoom in, zoom out, fit"], ["?", "Show the keys"]].flatMap(([k, t]) =>
    [el("dt", {}, k), el("dd", {}, t)])), button("Close", () => help.close()));

function listen(): void {
  addEventListener("popstate", show);
  document.addEventListener("visit", (e) => open((e as CustomEvent<string>).detail));
  document.addEventListener("click", (e) => {
    const a = (e.target as Element).closest?.("a[data-view]");
    if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    open(a.getAttribute("href") || "/");
  });
  document.addEventListener("keydown", (e) => {
    const typing = (e.target as Element).matches?.("input, textarea, select");
    if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
    const i = Number(e.key);
    if (e.key === "?") help.showModal();
    else if (e.key === "/") document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
    else if (i >= 1 && i <= views.length) open(views[i - 1][0]);
    else return;
    e.preventDefault();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.update());
}

function login(): void {
  const token = el("input", { type: "password", name: "token", id: "token", autocomplete: "off", required: true });
  fill(document.body, el("main", { class: "login" }, el("h1", {}, "Kerf"),
    el("form", { method: "post", action: "/login" }, el("label", { for: "token" }, "Token"), token,
      el("button", { type: "submit", class: "primary" }, "Log in")),
    el("p", {}, "Use a token of the cluster, such as the output of kubectl create token. If you started the console " +
      "with kerf ui, run the command again for a new address.")));
  document.title = "Log in - Kerf";
}

const retryTime = 5000;

// reconnect goes on after the server rejected the stream. Without a session or its rights, the user must log in.
async function reconnect(): Promise<void> {
  try {
    if ((await fetch("/api/me")).status === 401) return login();
  } catch { /* the console is away */ }
  setTimeout(() => connect(update, reconnect), retryTime);
}

async function start(): Promise<void> {
  try {
    const me = await get<{ name: string; all: boolean }>("/api/me");
    who.textContent = me.name + (me.all ? "" : " (some namespaces)");
  } catch {
    return login();
  }
  fill(nav, ...views.map(([path, text]) => link(path, text)));
  fill(main, heading, problems, body);
  problems.hidden = true;
  fill(document.body, el("a", { href: "#main", class: "skip" }, "Skip to the content"),
    el("header", {}, el("span", { class: "brand" }, "Kerf"), nav, live, who,
      button("Keys", () => help.showModal())), main, help);
  listen();
  show();
  connect(update, reconnect);
}

// The benchmark reads the view.
Object.defineProperty(window, "kerfView", { get: () => view });

void start();
