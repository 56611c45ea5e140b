// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/faults"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// endedFor is how long a pod that has ended for a fault is told of: long enough for a scheduler that was away.
const endedFor = 10 * time.Minute

// Ending is a pod that was asked to end because a GPU of its is unhealthy or lost. It is told of to those who end what
// belongs together with it on other nodes: an agent may not.
type Ending struct {
	// Ref is the pod, and one of its containers.
	Ref sharing.ContainerRef
	// Why says what is wrong with which GPU, and the remedy.
	Why string
	// Since is when it was asked to.
	Since time.Time

	// made is true once it is made to: that is not taken back when the GPU is well again.
	made bool
	// until is when it is forgotten; zero while it holds anything.
	until time.Time
}

// tellEnding takes note that the pod of a grant is asked, or made, to end.
func (r *Runtime) tellEnding(g ledger.Grant, why string, made bool, now time.Time) {
	if !g.Claim.Owner.Pod() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := notify.Ref(g)
	e, known := r.ending[ref.PodUID]
	if !known {
		e = Ending{Ref: ref, Why: why, Since: now}
	}
	e.made = e.made || made
	r.ending[ref.PodUID] = e
	if !known {
		r.changed.announce()
	}
}

// keepEnding forgets the pods that were asked to end and need not any more, and those that ended long ago.
func (r *Runtime) keepEnding(p faults.Policy, grants []faults.Grant, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ending) == 0 {
		return
	}
	holds, faulty := map[string]bool{}, map[string]bool{}
	for _, g := range grants {
		holds[g.Group] = true
		faulty[g.Group] = faulty[g.Group] || len(g.Faulty) > 0
	}
	for uid, e := range r.ending {
		switch {
		case holds[uid] && (e.made || faulty[uid] && p.Evict):
			e.until = time.Time{}
		case holds[uid], !e.until.IsZero() && now.After(e.until):
			delete(r.ending, uid)
			r.changed.announce()
			continue
		case e.until.IsZero():
			e.until = now.Add(endedFor)
		}
		r.ending[uid] = e
	}
}
