// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import "time"

// escape is a time during which a process ran beside the MPS that holds its lease.
type escape struct {
	first time.Time
	told  bool
	// evict is when an eviction is asked for again.
	evict time.Time
}

// escapes judges the processes that run beside MPS: each is over its cap by itself, whatever it holds, because nothing
// limits it. fresh is true while one was seen for the first time.
func (w *Watch) escapes(now time.Time, s Sample) (verdicts []Verdict, fresh bool) {
	seen := map[intruder]escape{}
	for _, c := range s.Caps {
		for _, g := range s.GPUs {
			if g.ID != c.GPU || !g.Told {
				continue
			}
			for _, u := range g.Uses {
				if u.Lease != c.Lease || !u.Escaped {
					continue
				}
				who := intruder{u.Process, g.ID}
				e, again := w.escaped[who]
				if !again {
					if e.first, fresh = w.last, true; e.first.IsZero() {
						e.first = now
					}
				}
				due := c.Action == Kill || c.Action == Warn && !e.told || c.Action == Evict && !now.Before(e.evict)
				if again && !w.named[u.Process] && due {
					v := Verdict{Action: c.Action, Reason: Escaped, GPU: g.ID, Lease: c.Lease, Victim: u.Process, Cap: c.Memory, First: !e.told, Delay: now.Sub(e.first)}
					if u.Known {
						v.Held = u.Bytes
					}
					verdicts = append(verdicts, v)
					e.told, e.evict = true, now.Add(EvictAgain)
					if c.Action == Kill {
						w.named[u.Process] = true
					}
				}
				seen[who] = e
			}
		}
	}
	w.escaped = seen
	return verdicts, fresh
}
