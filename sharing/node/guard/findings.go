// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Finding is what was found of how one grant keeps its cap. The zero value is that of a grant that was not watched.
type Finding struct {
	// Watched is true while the guard compares the grant's usage with its cap.
	Watched bool
	// Lost is why the guard cannot read the usage of a grant that only it enforces, or why nothing limits a process.
	// The level is then unknown. Else it is empty.
	Lost string
	// Exceeds says what a grant of libkerf or MPS holds above its cap; empty if nothing.
	Exceeds string
	// breaches are the times that the grant was found over its cap since the agent started, by GPU.
	breaches map[sharing.GPURef]breaches
}

type breaches struct {
	count uint64
	delay time.Duration
}

// Breaches is how many times the grant was over its cap on a GPU since the agent started. The delay is the longest time
// that it can have been so before the guard found it last.
func (f Finding) Breaches(gpu sharing.GPURef) (count uint64, delay time.Duration) {
	b := f.breaches[gpu]
	return b.count, b.delay
}

// Findings are what was found of all grants. They are safe for concurrent use. The zero value is ready for use.
type Findings struct {
	mu sync.Mutex
	of map[ledger.GrantID]Finding
}

// Of is what was found of a grant.
func (f *Findings) Of(id ledger.GrantID) Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[id]
}

// Drop forgets a grant.
func (f *Findings) Drop(id ledger.GrantID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, id)
}

// Released forgets what a grant held above its cap: no container uses it any more.
func (f *Findings) Released(id ledger.GrantID) {
	f.change(id, func(one *Finding) { one.Exceeds = "" })
}

func (f *Findings) change(id ledger.GrantID, do func(*Finding)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changeLocked(id, do)
}

func (f *Findings) changeLocked(id ledger.GrantID, do func(*Finding)) {
	one := f.of[id]
	do(&one)
	if f.of == nil {
		f.of = map[ledger.GrantID]Finding{}
	}
	f.of[id] = one
}

// breached counts a verdict, once for each time that a grant is over its cap.
func (f *Findings) breached(v reactive.Verdict) {
	if v.Reason == reactive.Unmanaged || !v.First {
		return
	}
	f.change(ledger.GrantID(v.Grant), func(one *Finding) {
		all := maps.Clone(one.breaches) // Of gave the old ones away
		if all == nil {
			all = map[sharing.GPURef]breaches{}
		}
		all[v.GPU] = breaches{all[v.GPU].count + 1, v.Delay}
		one.breaches = all
	})
}

// note keeps what a sample showed of all grants of a view, and forgets all others. It reports whether the level of a
// grant changes by that.
func (f *Findings) note(v View, caps []reactive.Cap, standings []reactive.Standing, lost map[ledger.GrantID]string) (
	changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.of, func(id ledger.GrantID, _ Finding) bool { _, there := v.grant(id); return !there })
	watched := map[ledger.GrantID]bool{}
	for _, c := range caps {
		watched[ledger.GrantID(c.Grant)] = true
	}
	for _, g := range v.Grants {
		was := f.of[g.ID]
		now := was
		now.Watched, now.Lost = watched[g.ID], lost[g.Speaker]
		if g.served() {
			held := map[sharing.GPURef]sharing.Bytes{}
			for _, st := range standings {
				if st.Known && ledger.GrantID(st.Grant) == g.ID {
					held[st.GPU] = st.Used
				}
			}
			now.Exceeds = exceeds(*g.Grant, v.Contexts, held, was.Exceeds)
		}
		if now.Watched || was.Watched || now.Lost != was.Lost || now.Exceeds != was.Exceeds {
			f.changeLocked(g.ID, func(one *Finding) { *one = now })
		}
		changed = changed || was.Lost != now.Lost || (was.Exceeds == "") != (now.Exceeds == "")
	}
	return changed
}

// Compare compares what the processes of grants with a common cap hold on each GPU with the cap. A GPU that is not in
// holds is unknown. It reports whether the level of a grant changes by that.
func (f *Findings) Compare(grants []ledger.Grant, contexts Contexts, holds map[sharing.GPURef]sharing.Bytes) (
	changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range grants {
		if g.Active == nil {
			continue
		}
		f.changeLocked(g.ID, func(one *Finding) {
			before := one.Exceeds
			one.Exceeds = exceeds(g, contexts, holds, before)
			changed = changed || (before == "") != (one.Exceeds == "")
		})
	}
	return changed
}

// Context is the index of a GPU, and the size of one context there. Size is 0 if it is unknown.
type Context struct {
	Index int
	Model string
	Size  sharing.Bytes
}

// Contexts are those of a node's GPUs.
type Contexts map[sharing.GPURef]Context

// exceeds says what the processes of a grant hold above its cap and one context, as the driver counts it: no cap
// enforces that. On a GPU whose usage is unknown, what was said before stays.
func exceeds(g ledger.Grant, contexts Contexts, held map[sharing.GPURef]sharing.Bytes, before string) string {
	unknown := false
	for _, f := range g.Caps() {
		bytes, known := held[f.GPU]
		unknown = unknown || !known
		on := contexts[f.GPU]
		if on.Size == 0 { // no driver answers
			on.Size = contextsize.Bound(on.Model)
		}
		if f.Whole || !overhead.Exceeds(bytes, f.Memory, on.Size) {
			continue
		}
		return fmt.Sprintf("its processes hold %s of GPU %d, more than its cap of %s and a context of %s, so the cap "+
			"is not enforced",
			bytes, on.Index, f.Memory, on.Size)
	}
	if unknown {
		return before
	}
	return ""
}
