// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import "time"

// escape is a time during which a process ran beside the MPS that holds its grant.
type escape struct {
	first time.Time
	told  bool // a verdict was given
	// evict is when an eviction is asked for again.
	evict time.Time
}

// escapes judges the processes that run beside MPS: each is over its cap by itself, whatever it holds, because nothing
// limits it. It is ended also where the policy is to warn: with one trust domain on a GPU the driver gives such a process no
// context, and with several it must not run without a limit either. fresh is true while one was seen for the first time.
func (w *Watch) escapes(now time.Time, s Sample) (verdicts []Verdict, fresh bool) {
	seen := map[intruder]escape{}
	for _, c := range s.Caps {
		for _, g := range s.GPUs {
			if g.ID != c.GPU || !g.Told {
				continue
			}
			for _, u := range g.Uses {
				if u.Grant != c.Grant || !u.Escaped {
					continue
				}
				who := intruder{u.Process, g.ID}
				e, again := w.escaped[who]
				if !again {
					if e.first, fresh = w.last, true; e.first.IsZero() {
						e.first = now
					}
				}
				action := Kill
				if c.Action == Evict {
					action = Evict
				}
				due := action == Kill || !now.Before(e.evict)
				if again && !w.named[u.Process] && due {
					v := Verdict{Action: action, Reason: Escaped, GPU: g.ID, Grant: c.Grant, Victim: u.Process, Cap: c.Memory, First: !e.told, Delay: now.Sub(e.first)}
					if u.Known {
						v.Held = u.Bytes
					}
					verdicts = append(verdicts, v)
					e.told, e.evict = true, now.Add(EvictAgain)
					if action == Kill {
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
