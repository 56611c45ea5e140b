// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import "time"

// escape is a time during which a process ran outside of the MPS that enforces its grant.
type escape struct {
	first time.Time
	told  bool // a verdict was given
	// evict is when an eviction is asked for again.
	evict time.Time
}

// escapes judges the processes of a grant with MPS that do not use MPS. Each is over its cap, whatever its usage,
// because nothing limits it. It is killed even if the policy is to warn. With one trust domain on a GPU the driver
// gives it no context. With several it must not run without a limit. When one is seen for the first time, fresh is
// true.
func (w *Watch) escapes(now time.Time, s Sample) (verdicts []Verdict, fresh bool) {
	seen := map[unmanagedUse]escape{}
	for _, c := range s.Caps {
		for _, g := range s.GPUs {
			if g.ID != c.GPU || !g.Answered {
				continue
			}
			for _, u := range g.Uses {
				if u.Grant != c.Grant || !u.Escaped {
					continue
				}
				who := unmanagedUse{u.Process, g.ID}
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
					v := Verdict{Action: action, Reason: Escaped, GPU: g.ID, Grant: c.Grant, Victim: u.Process,
						Cap: c.Memory, First: !e.told, Delay: now.Sub(e.first)}
					if u.Known {
						v.Used = u.Bytes
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
