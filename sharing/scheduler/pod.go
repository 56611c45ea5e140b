// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Planned is the placement of one container, before its node has reported it.
type Planned struct {
	Container string
	Placement sharing.Placement
}

// Annotations are the plan as a Binding carries it: for each container the GPUs, in order, and its MIG instance's
// place.
func Annotations(plan []Planned) map[string]string {
	out := make(map[string]string, len(plan))
	for _, c := range plan {
		out[sharing.PlacementAnnotation(c.Container)] = sharing.PlacementValue(c.Placement)
	}
	return out
}

// pod is a pod that is on a node, or about to be.
type pod struct {
	want PodRequest
	node string
	// bound is true once the API server said so; before, it is a reservation.
	bound bool
	// plan has the place of each container with a separate grant: what was reserved here, else what the pod's
	// annotations say.
	plan map[string]sharing.Advice
	// seen is what the node reported last for the pod; a pod that was reported once is not planned any more.
	seen sharing.Placement
	// goneAt is when it was heard that the pod is deleted, or has ended for good; zero before.
	goneAt time.Time
	// stuckAt is when the node was first found to have no capacity for it; zero while it has not been. Once that
	// evicted it, evicted is true.
	stuckAt time.Time
	evicted bool
}

func (p *pod) gone() bool { return !p.goneAt.IsZero() }

// reflect takes note of what a report says of the pod.
func (p *pod) reflect(r *report) {
	if c := r.claims[p.want.UID]; len(c) > 0 {
		p.seen = c
	}
}

// Pod records a pod as the API server has it. A pod that is not bound, or requests nothing, is not in the state. The
// error is that of an invalid request, which the pod's node will reject.
func (b *ClusterState) Pod(p sharing.Pod, w PodRequest, now time.Time) {
	if p.Node == "" {
		return
	}
	old := b.pods[p.UID]
	switch {
	case p.Terminal:
		b.PodRemoved(p.UID, now)
		return
	case b.Confirm(p.UID, p.Node):
		return // nothing else of it can change
	case old != nil: // another scheduler bound it elsewhere
		b.drop(old)
	}
	b.Learn(w)
	plan := map[string]sharing.Advice{}
	for _, a := range w.Containers {
		planned := sharing.Planned(p.Annotations, a.Container)
		if len(planned.GPUs) > 0 {
			plan[a.Container] = planned
		}
	}
	b.put(&pod{want: w, node: p.Node, bound: true, plan: plan})
}

// Confirm records that a pod on the node is bound there. It returns false if the state does not have it there: the
// caller then has to call Pod.
func (x *inventory) Confirm(uid, node string) bool {
	p := x.pods[uid]
	if p == nil || p.node != node {
		return false
	}
	p.bound = true
	return true
}

func (x *inventory) put(p *pod) {
	n := x.node(p.node)
	if n.report != nil {
		p.reflect(n.report)
	}
	x.pods[p.want.UID], n.pods[p.want.UID] = p, p
	n.change()
}

func (x *inventory) drop(p *pod) {
	delete(x.pods, p.want.UID)
	if n := x.nodes[p.node]; n != nil {
		delete(n.pods, p.want.UID)
		n.change()
	}
}

// PodRemoved tells that a pod is deleted, or has ended for good. What it held stays held until its node has let go.
func (b *ClusterState) PodRemoved(uid string, now time.Time) {
	p := b.pods[uid]
	if p == nil {
		delete(b.learned, uid)
		return
	}
	if !p.gone() {
		p.goneAt = now
		n := b.node(p.node)
		n.change()
		b.sweep(n)
	}
}

// Reserve takes for a pod what Fit chose on the node, and holds it until the node reports it or Unreserve gives it
// back. It returns the placements, in the order of the pod's asks; one without is an init container that uses
// another's.
//
// Errors: sharing.ErrExhausted when it does not fit, or does not fit any more; sharing.ErrConflict when the pod is on a
// node already.
func (b *ClusterState) Reserve(w PodRequest, name string, now time.Time) ([]Planned, error) {
	if p := b.pods[w.UID]; p != nil && (p.bound || p.gone()) {
		return nil, fmt.Errorf("reserve for pod %s: it is on node %q: %w", w, p.node, sharing.ErrConflict)
	} else if p != nil {
		b.drop(p)
	}
	v := b.Fit(w, name, now)
	if v.Reason != Fits {
		return nil, fmt.Errorf("reserve for pod %s on node %q: %s: %w", w, name, v.Text, sharing.ErrExhausted)
	}
	plan := map[string]sharing.Advice{}
	for _, c := range v.Plan {
		var a sharing.Advice
		for _, f := range c.Placement {
			a.GPUs = append(a.GPUs, f.GPU.UUID)
			if in := f.Instance(); !in.None() {
				a.MIG = in
			}
		}
		plan[c.Container] = a
	}
	b.put(&pod{want: w, node: name, plan: plan})
	return slices.Clone(v.Plan), nil
}

// Unreserve gives a reservation back. It changes nothing for a pod that is bound, or that was not reserved.
func (b *ClusterState) Unreserve(uid string) {
	if p := b.pods[uid]; p != nil && !p.bound && !p.gone() {
		b.drop(p)
	}
}

// HasPod is true for a pod that is bound or reserved.
func (x *inventory) HasPod(uid string) bool { return x.pods[uid] != nil }

// Stuck is a pod that its node has no room for, so that it never starts there.
type Stuck struct {
	UID, Namespace, Name string
	Node                 string
	// For is how long that is known, and Reason what the node says is missing.
	For    time.Duration
	Reason string
}

// Stuck returns the pods, sorted, that a plan of this scheduler bound and that do not fit on their nodes. Their nodes
// must have reported that without a break for at least after. Call it regularly: reports between two calls are not
// seen. After an unreliable report of a node, its time starts again. Pods that Evicted reported are left out.
func (x *inventory) Stuck(after time.Duration, now time.Time) []Stuck {
	var out []Stuck
	for uid, p := range x.pods {
		n := x.nodes[p.node]
		reason, stuck := "", false
		if _, ok := trusted(n, now); ok {
			reason, stuck = n.report.unplaced[uid]
		}
		if !stuck || !p.bound || p.gone() || p.evicted || len(p.plan) == 0 || n.claimed(p) {
			p.stuckAt = time.Time{}
			continue
		}
		if p.stuckAt.IsZero() {
			p.stuckAt = now
		}
		if waited := now.Sub(p.stuckAt); waited >= after {
			out = append(out, Stuck{UID: uid, Namespace: p.want.Namespace, Name: p.want.Name, Node: p.node, For: waited,
				Reason: reason})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Evicted tells that a pod that was stuck was made to leave.
func (x *inventory) Evicted(uid string) {
	if p := x.pods[uid]; p != nil {
		p.evicted = true
	}
}

// WhatIf is a change that is thought through and not made.
type WhatIf struct {
	// Without are the UIDs of pods whose claims and plans are thought away.
	Without []string
	// With are pods that are thought to be there already, placed one after the other before the pod in question. One
	// that does not fit takes nothing.
	With []PodRequest
}

// FitIf is Fit after a change that is not made. Claims of pods that are thought away count as given back at once.
func (j *judge) FitIf(w PodRequest, name string, change WhatIf, now time.Time) Verdict {
	if len(change.Without) == 0 && len(change.With) == 0 {
		return j.Fit(w, name, now)
	}
	n := j.nodes[name]
	if v, ok := trusted(n, now); !ok {
		return v
	}
	j.refresh()
	s := j.stateOf(n).clone()
	for _, uid := range slices.Sorted(slices.Values(change.Without)) {
		s.release(uid)
	}
	for _, other := range change.With {
		if other.UID == w.UID {
			continue
		}
		for _, c := range j.fit(n, s, other, now).Plan {
			s.take(other.UID, c.Placement)
		}
	}
	return j.fit(n, s, w, now)
}
