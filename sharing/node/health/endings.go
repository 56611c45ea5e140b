// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/faults"
)

// endedFor is how long a pod that ended for a fault is listed: long enough for a scheduler that was away.
const endedFor = 10 * time.Minute

// Ending is a pod that was asked to end because one of its GPUs is unhealthy or lost. An agent may not end the pods of
// other nodes that belong to it, so the scheduler reads this.
type Ending struct {
	// Ref is the pod, and one of its containers.
	Ref sharing.ContainerRef
	// Reason says what is wrong with which GPU.
	Reason string
	// Since is when it was asked to end.
	Since time.Time

	// forced is true once the pod is evicted. That is not taken back when the GPU recovers.
	forced bool
	// until is when it is forgotten; zero while the pod has a grant.
	until time.Time
}

// Endings are the pods that end for a fault. Its lock is innermost.
type Endings struct {
	changed func()

	mu    sync.Mutex
	byPod map[string]Ending
}

// NewEndings returns an empty list, which calls changed after each change.
func NewEndings(changed func()) *Endings {
	return &Endings{changed: changed, byPod: map[string]Ending{}}
}

// List returns the pods by UID.
func (e *Endings) List() []Ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Ending
	for _, uid := range slices.Sorted(maps.Keys(e.byPod)) {
		out = append(out, e.byPod[uid])
	}
	return out
}

// note notes that a pod is asked, or forced, to end.
func (e *Endings) note(ref sharing.ContainerRef, why string, forced bool, now time.Time) {
	e.mu.Lock()
	one, known := e.byPod[ref.PodUID]
	if !known {
		one = Ending{Ref: ref, Reason: why, Since: now}
	}
	one.forced = one.forced || forced
	e.byPod[ref.PodUID] = one
	e.mu.Unlock()
	if !known {
		e.changed()
	}
}

// keep forgets the pods that need not end any more, and those that ended long ago.
func (e *Endings) keep(p faults.Policy, grants []faults.Grant, now time.Time) {
	has, faulty := map[string]bool{}, map[string]bool{}
	for _, g := range grants {
		has[g.Group] = true
		faulty[g.Group] = faulty[g.Group] || len(g.Faulty) > 0
	}
	e.mu.Lock()
	before := len(e.byPod)
	for uid, one := range e.byPod {
		switch {
		case has[uid] && (one.forced || faulty[uid] && p.Evict):
			one.until = time.Time{}
		case has[uid], !one.until.IsZero() && now.After(one.until):
			delete(e.byPod, uid)
			continue
		case one.until.IsZero():
			one.until = now.Add(endedFor)
		}
		e.byPod[uid] = one
	}
	fewer := len(e.byPod) < before
	e.mu.Unlock()
	if fewer {
		e.changed()
	}
}
