// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// The state that the server streams, and how views hear of it.

export interface Share {
  grant?: string; namespace?: string; pod?: string; container?: string; profile?: string;
  state: string; level: string; memory: number; percent: number; whole?: boolean;
  mig?: string; start?: number; used?: number; hidden?: boolean;
}
export interface Instance { profile: string; start: number; slices: number; managed: boolean; free: boolean }
export interface GPU {
  uuid: string; index: number; model?: string; health: string; problem?: string; cordoned?: boolean; mode?: string;
  memory: {
    unknown?: boolean; capacity: number; allocatable: number; free: number; freePercent: number; used?: number;
  };
  mig?: { slices: number; instances?: Instance[] };
  shares?: Share[]; fragmentation?: number; utilization?: number; levels?: string[];
}
export interface Node {
  name: string; pool?: string; state: string; reason?: string; driver?: string; agent?: string;
  config: { sha256?: string; errors?: string[]; pending?: string[] };
  gpus: GPU[];
}
export interface Pod {
  uid: string; namespace: string; name: string; node?: string; priority?: number; needs?: string; problem?: string;
  reason?: string; pending?: boolean; since?: string; labels?: Record<string, string>;
}
export interface Source { source: string; problems: string[]; prometheus: boolean }

export const nodes = new Map<string, Node>();
export const pods = new Map<string, Pod>();
export let source: Source = { source: "", problems: [], prometheus: false };
export let version = 0;
export let ready = false;

type Listener = (connected: boolean) => void;

// connect opens the stream. It calls changed at most once for each frame. It calls closed if the server rejected the
// request, because the browser does not try again then.
export function connect(changed: Listener, closed: () => void): void {
  const stream = new EventSource("/api/stream");
  let asked = false;
  const soon = (connected: boolean) => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; changed(connected); });
  };
  stream.addEventListener("reset", () => { nodes.clear(); pods.clear(); ready = false; });
  stream.addEventListener("message", (e) => { apply(JSON.parse(e.data)); if (!ready) soon(true); });
  stream.addEventListener("ready", () => { ready = true; version++; soon(true); });
  stream.addEventListener("error", () => {
    soon(false);
    if (stream.readyState === EventSource.CLOSED) closed();
  });
}

function apply(delta: Record<string, unknown>): void {
  version++;
  for (const [key, value] of Object.entries(delta)) {
    const at = key.indexOf("/");
    const kind = key.slice(0, at), name = key.slice(at + 1);
    if (kind === "node") put(nodes, name, value as Node | null);
    else if (kind === "pod") put(pods, name, value as Pod | null);
    else if (kind === "meta" && value) source = value as Source;
  }
}

function put<T>(map: Map<string, T>, key: string, value: T | null): void {
  if (value === null) map.delete(key);
  else map.set(key, value);
}

// Latest tells the newest of several questions: an answer of an earlier one can arrive after its own.
export class Latest {
  private asked = 0;

  // next begins a question, and returns whether it is still the newest.
  next(): () => boolean {
    const mine = ++this.asked;
    return () => mine === this.asked;
  }
}

// get and post ask the server. An error has the server's words.
export async function get<T>(path: string): Promise<T> { return answer<T>(await fetch(path)); }

export async function post<T>(path: string, body: unknown): Promise<T> {
  return answer<T>(await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }));
}

async function answer<T>(r: Response): Promise<T> {
  const text = await r.text();
  if (!r.ok) {
    let said = text;
    try { said = JSON.parse(text).error || text; } catch { /* it is plain text */ }
    throw new Error(said.trim());
  }
  return JSON.parse(text) as T;
}
