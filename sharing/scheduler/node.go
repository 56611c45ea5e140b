// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// node is what is known of one node.
type node struct {
	name    string
	machine Machine
	report  *report
	pods    map[string]*pod

	// renewed is the heartbeat's own time, heard when it was seen to come, valid how long it counts.
	renewed, heard time.Time
	valid          time.Duration

	// migChanges counts, for all nodes together, the changes of those that have GPUs in MIG mode.
	migChanges *int
	// version counts the changes; state is made of the rest, and void when made for another version.
	version uint64
	state   *state
	// verdicts and scores are kept until the node changes.
	verdicts map[verdictKey]kept[Verdict]
	scores   map[scoreKey]kept[int64]
	// ranked are the answers to kinds of pods, each at the place of its kind.
	ranked []ranked
}

// verdictKey is the kind of pod that a verdict is for, and what the policy, which says on which GPU, knew then.
type verdictKey struct {
	key string
	era uint64
}

// kept is an answer for one version of a node.
type kept[T any] struct {
	version uint64
	is      T
}

// mostKept bounds what is kept for one node; beyond it, all is forgotten.
const mostKept = 128

func (n *node) change() {
	n.version++
	n.state = nil
	if n.report != nil && len(n.report.migGPUs) > 0 {
		*n.migChanges++
	}
}

// settled is true when the node, had it anything for the pod that is gone, would have said so.
func (n *node) settled(p *pod) bool { return !n.heard.Before(p.goneAt.Add(settle)) }

// claimed is true while the report has a claim of the pod.
func (n *node) claimed(p *pod) bool { return n.report != nil && len(n.report.claims[p.want.UID]) > 0 }

// state is what a node has free, and who holds what.
type state struct {
	gpus []allocator.GPUState
	// holders counts the claims and plans on each GPU.
	holders map[sharing.GPURef]int
	// held is what each pod has, claimed or planned, one entry for each share.
	held map[string]sharing.Placement
	// migGPUs are the GPUs in MIG mode, and places what pods have of them, an entry for each share.
	migGPUs map[sharing.GPURef]*migGPU
	places  map[sharing.GPURef][]mig.Place
	// byClaim is true for the state as ResourceClaims see it; requests by limits see the other GPUs.
	byClaim bool
}

func (s *state) clone() *state {
	out := &state{gpus: slices.Clone(s.gpus), holders: maps.Clone(s.holders),
		held: make(map[string]sharing.Placement, len(s.held)), migGPUs: s.migGPUs, byClaim: s.byClaim}
	for uid, p := range s.held {
		out.held[uid] = p.Clone()
	}
	if len(s.places) > 0 {
		out.places = make(map[sharing.GPURef][]mig.Place, len(s.places))
		for id, p := range s.places {
			out.places[id] = slices.Clone(p)
		}
	}
	return out
}

func (s *state) at(id sharing.GPURef) *allocator.GPUState {
	for i := range s.gpus {
		if s.gpus[i].GPU.Ref() == id {
			return &s.gpus[i]
		}
	}
	return nil
}

// take reserves a plan. Amounts do not go below zero: a node may have less than was planned.
func (s *state) take(uid string, p sharing.Placement) {
	for _, f := range p {
		s.held[uid] = append(s.held[uid], f)
		g := s.at(f.GPU)
		if g == nil {
			continue
		}
		s.switchFor(f, g)
		s.holders[f.GPU]++
		g.InUse, g.ShareCount = true, s.holders[f.GPU]
		if !f.MIG.None() {
			s.put(f)
			continue
		}
		g.FreeMemory, g.FreePercent = g.FreeMemory.SubFloor(f.Memory), g.FreePercent-min(f.Percent, g.FreePercent)
		if f.Whole {
			g.FreeMemory, g.FreePercent = 0, 0
		}
	}
}

// release gives back what a pod has, as if its node had let go of it.
func (s *state) release(uid string) {
	for _, f := range s.held[uid] {
		g := s.at(f.GPU)
		if g == nil {
			continue
		}
		s.holders[f.GPU]--
		g.InUse, g.ShareCount = s.holders[f.GPU] > 0, s.holders[f.GPU]
		if !f.MIG.None() {
			s.remove(f)
			s.switchBack(g)
			continue
		}
		sum, err := g.FreeMemory.Add(f.Memory)
		if err != nil || sum > g.GPU.Bookable() || f.Whole {
			sum = g.GPU.Bookable()
		}
		g.FreeMemory, g.FreePercent = sum, min(g.GPU.BookablePercent(), g.FreePercent+f.Percent)
		if f.Whole {
			g.FreePercent = g.GPU.BookablePercent()
		}
		s.switchBack(g)
	}
	delete(s.held, uid)
}

// put notes an instance that a pod has.
func (s *state) put(f sharing.Share) {
	if s.places == nil {
		s.places = map[sharing.GPURef][]mig.Place{}
	}
	s.places[f.GPU] = append(s.places[f.GPU], mig.Place{Profile: f.MIG.ID, Start: f.MIG.Start})
}

// remove takes the note of an instance off again.
func (s *state) remove(f sharing.Share) {
	all := s.places[f.GPU]
	if i := slices.Index(all, mig.Place{Profile: f.MIG.ID, Start: f.MIG.Start}); i >= 0 {
		s.places[f.GPU] = slices.Delete(slices.Clone(all), i, i+1)
	}
}

// stateOf computes the state from the report, and from plans that it does not have yet.
func (m *placer) stateOf(n *node) *state {
	if n.state != nil {
		return n.state
	}
	s := &state{holders: map[sharing.GPURef]int{}, held: map[string]sharing.Placement{}}
	if n.report != nil {
		s.gpus, s.holders, s.migGPUs = slices.Clone(n.report.gpus), maps.Clone(n.report.holders), n.report.migGPUs
		for uid, p := range n.report.claims {
			s.held[uid] = p.Clone()
			for _, f := range p {
				if !f.MIG.None() {
					s.put(f)
				}
			}
		}
	}
	// Twice in the order of the UIDs: plans first, then the pods without a plan, for which the node will choose.
	var loose []func()
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		switch p := n.pods[uid]; {
		case n.claimed(p), p.gone() && (len(p.seen) > 0 || n.settled(p)):
		case len(p.seen) > 0:
			s.take(uid, p.seen)
		default:
			for _, a := range p.want.Containers {
				m.hold(n, s, p, a, &loose)
			}
		}
	}
	for _, place := range loose {
		place()
	}
	for uid := range m.away {
		s.release(uid)
	}
	n.state = s
	return s
}

// hold reserves what is planned for one container.
func (m *placer) hold(n *node, s *state, p *pod, a ContainerRequest, loose *[]func()) {
	r, err := m.resolved(n, a)
	if err != nil {
		return // its node refuses it
	}
	uid := p.want.UID
	for _, in := range []*state{s, s.turned(r.Kind == sharing.KindMIG)} {
		if in == nil {
			continue
		}
		if placement, ok := in.planned(p.plan[a.Container], r); ok {
			s.take(uid, placement)
			return
		}
	}
	*loose = append(*loose, func() {
		if a.Kind == sharing.ContainerInit && s.lends(uid, r) {
			return
		}
		for _, in := range []*state{s, s.turned(r.Kind == sharing.KindMIG)} {
			if in == nil {
				continue
			}
			if placement, err := in.loosely(n, r); err == nil {
				s.take(uid, placement)
				return
			}
		}
	})
}

// loosely is where a node places a container without a plan.
func (s *state) loosely(n *node, r sharing.Request) (sharing.Placement, error) {
	if r.Kind == sharing.KindMIG {
		return n.chooseInstance(s, r, 0, plain{})
	}
	p, err := allocator.Choose(s.gpus, r)
	if err != nil {
		return nil, fmt.Errorf("place %s: %w", r, err)
	}
	return p, nil
}

// planned is the placement on the GPUs of a plan; false when the plan is not one for this request and this node.
func (s *state) planned(a sharing.Advice, r sharing.Request) (sharing.Placement, bool) {
	if r.Kind == sharing.KindMIG {
		return s.plannedInstance(a, r)
	}
	gpus := a.Refs()
	if len(gpus) == 0 {
		return nil, false
	}
	on := slices.DeleteFunc(slices.Clone(s.gpus),
		func(g allocator.GPUState) bool { return !slices.Contains(gpus, g.GPU.Ref()) })
	if len(on) != r.GPUs || len(gpus) != r.GPUs {
		return nil, false
	}
	p, err := allocator.Choose(on, r)
	return p, err == nil
}

// lends is true when a container of the pod has what the init container requests, so that it uses that before.
func (s *state) lends(uid string, r sharing.Request) bool {
	if r.Kind == sharing.KindMIG {
		return s.admitsInstance(uid, r)
	}
	var fits sharing.Placement
	for _, f := range s.held[uid] {
		if g := s.at(f.GPU); g != nil && f.MIG.None() && r.Admits(g.GPU) && ledger.Covers(f, r.On(g.GPU)) {
			fits = append(fits, f)
		}
	}
	return len(fits) >= r.GPUs
}

// resolved completes what a container requests as its node does: by the configuration, and by the GPUs that it has.
func (u *rules) resolved(n *node, a ContainerRequest) (sharing.Request, error) {
	r, err := u.resolve(n, a.Request)
	if err == nil && !a.sharedCap {
		r = n.hardened(r)
	}
	return r, err
}

// resolve completes a request by the configuration of the node's pool.
func (u *rules) resolve(n *node, r sharing.Request) (sharing.Request, error) {
	if u.config == nil {
		if r.Open() {
			return r, sharing.Invalid("profile", r.Profile, "give the scheduler the SharingConfig",
				"is not known to the scheduler")
		}
		if r.MinLevel == sharing.LevelNone {
			// as config.Resolve does: only the config allows shares without enforcement
			r.MinLevel = sharing.LevelUnknown
		}
		return r, nil
	}
	for _, p := range u.config.Pools() {
		if n.report != nil && p.Name == n.report.pool {
			return u.config.Resolve(p, r)
		}
	}
	return u.config.Resolve(config.Pool{Name: "none"}, r)
}
