// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package faults decides about grants whose GPU is unhealthy or lost: which get an event, which are asked to end, and
// which are ended.
//
// It promises: every grant on a faulty GPU is reported in the step in which the fault is seen, and once. A grant on no
// faulty GPU is affected only if its group (the containers of one pod) has one that is. A group is ended only when the
// whole grace period has passed since it was asked. All of this stops when the GPU recovers or the policy changes.
//
// It has no I/O and no clock: its user says what time it is, and does what it decides.
package faults

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Again is how long it is until those who were made to end, and are there still, are made to once more.
const Again = 10 * time.Second

// Part is one faulty GPU of a grant.
type Part struct {
	GPU    sharing.GPURef
	Health sharing.Health
	// Reason says what is wrong, and the remedy.
	Reason string
}

// Grant is one grant as it stands. Faulty has its GPUs that are unhealthy or lost, and is empty when all are well.
type Grant struct {
	ID string
	// Group is shared by those that end together; it is empty for a grant that ends by itself.
	Group string
	// active is true while something runs on it.
	Active bool
	Faulty []Part
}

// Policy is what the pool says.
type Policy struct {
	// Evict: grants on a faulty GPU are asked to end, and ended after the grace period. Else they only get an event.
	Evict bool
	Grace time.Duration
}

// Kind is what to do.
type Kind uint8

// The kinds of acts.
const (
	// Report the users of a grant what is wrong with a GPU of theirs.
	Report Kind = iota
	// Recovered tells them that all are healthy again.
	Recovered
	// RequestEnd the processes of a grant to end.
	RequestEnd
	// End the grant: its pod is evicted, and processes of no pod are killed. For a group it is said of one of its
	// grants.
	End
)

// Act is one thing to do. Parts are those that it is for.
type Act struct {
	Kind  Kind
	Grant string
	Parts []Part
}

// Tracker remembers what was done. The zero value is ready for use.
type Tracker struct {
	told   map[string]map[sharing.GPURef]sharing.Health
	groups map[string]*group
}

// group is one that was asked to end.
type group struct {
	asked map[string]bool
	// due is when it is made to end, next.
	due time.Duration
}

// Step takes all grants as they are now, and returns what to do, in the order of their ids. The time of the next step,
// even if nothing changes, is next; 0 for never.
func (k *Tracker) Step(now time.Duration, p Policy, grants []Grant) (acts []Act, next time.Duration) {
	if k.told == nil {
		k.told, k.groups = map[string]map[sharing.GPURef]sharing.Health{}, map[string]*group{}
	}
	grants = slices.Clone(grants)
	slices.SortFunc(grants, func(a, b Grant) int { return cmp.Compare(a.ID, b.ID) })
	there, members := map[string]bool{}, map[string][]Grant{}
	for _, g := range grants {
		there[g.ID] = true
		members[groupOf(g)] = append(members[groupOf(g)], g)
		acts = append(acts, k.tell(g)...)
	}
	maps.DeleteFunc(k.told, func(id string, _ map[sharing.GPURef]sharing.Health) bool { return !there[id] })
	for name := range k.groups {
		if !p.Evict || !slices.ContainsFunc(members[name], faulty) {
			delete(k.groups, name)
		}
	}
	if !p.Evict {
		return acts, 0
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(members[name], faulty) {
			continue
		}
		more, due := k.end(now, p, name, members[name])
		acts = append(acts, more...)
		if next == 0 || due < next {
			next = due
		}
	}
	return acts, next
}

func groupOf(g Grant) string { return cmp.Or(g.Group, g.ID) }

func faulty(g Grant) bool { return len(g.Faulty) > 0 }

// tell says what is new of a grant's GPUs.
func (k *Tracker) tell(g Grant) []Act {
	was := k.told[g.ID]
	if len(g.Faulty) == 0 {
		delete(k.told, g.ID)
		if len(was) == 0 {
			return nil
		}
		return []Act{{Kind: Recovered, Grant: g.ID}}
	}
	now := make(map[sharing.GPURef]sharing.Health, len(g.Faulty))
	var fresh []Part
	for _, p := range g.Faulty {
		now[p.GPU] = p.Health
		if h, before := was[p.GPU]; !before || p.Health > h {
			fresh = append(fresh, p)
		} else {
			now[p.GPU] = h
		}
	}
	k.told[g.ID] = now
	if len(fresh) == 0 {
		return nil
	}
	return []Act{{Kind: Report, Grant: g.ID, Parts: fresh}}
}

// end asks a group to end, or makes it. Its members are in the order of their ids.
func (k *Tracker) end(now time.Duration, p Policy, name string, members []Grant) (acts []Act, due time.Duration) {
	gr := k.groups[name]
	if gr == nil {
		gr = &group{asked: map[string]bool{}, due: now + p.Grace}
		k.groups[name] = gr
	}
	cause := members[slices.IndexFunc(members, faulty)]
	for _, g := range members {
		if g.Active && !gr.asked[g.ID] {
			gr.asked[g.ID] = true
			acts = append(acts, Act{Kind: RequestEnd, Grant: g.ID, Parts: cause.Faulty})
		}
	}
	if now >= gr.due {
		gr.due = now + Again
		acts = append(acts, Act{Kind: End, Grant: cause.ID, Parts: cause.Faulty})
	}
	return acts, gr.due
}
