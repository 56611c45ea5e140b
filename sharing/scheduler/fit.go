// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Reason is why a node does not answer a pod; Fits when it does.
type Reason int

// The reasons, in the order in which they are looked for.
const (
	Fits Reason = iota
	NoReport
	Stale
	Torn
	NotReady
	Refused
	NotOffered
	WrongModel
	LacksProfile
	LacksGPUs
	LacksLevel
	TooSmall
	Unhealthy
	LacksCapacity
	LacksInstance
)

// String is the reason in a few words, without numbers, so that equal reasons of many nodes read alike.
func (r Reason) String() string {
	switch r {
	case Fits:
		return "fits"
	case NoReport:
		return "no kerf-agent reports of its GPUs"
	case Stale:
		return "kerf-agent was not heard from in time"
	case Torn:
		return "report of the kerf-agent does not agree with itself"
	case NotReady:
		return "kerf-agent is not ready"
	case Refused:
		return "sharing config of its pool refuses the request"
	case NotOffered:
		return "does not offer the kind of GPU resource"
	case WrongModel:
		return "no GPU of the model or UUID requested"
	case LacksProfile:
		return "no GPU in MIG mode that has the profile"
	case LacksGPUs:
		return "too few GPUs"
	case LacksLevel:
		return "enforcement level too low"
	case TooSmall:
		return "GPUs too small"
	case Unhealthy:
		return "GPUs not healthy"
	case LacksCapacity:
		return "too little free on any one GPU"
	case LacksInstance:
		return "no place for the MIG instance"
	}
	return fmt.Sprintf("reason %d", int(r))
}

// IsPending is true for what the end of other pods can change.
func (r Reason) IsPending() bool { return r == LacksCapacity || r == LacksInstance }

// Verdict is whether a node answers a pod.
type Verdict struct {
	Reason Reason
	// Text is the reason with what is known of it; empty when it fits.
	Text string
	// Container is the one that the reason is about.
	Container string
	// Plan is the placement of each container with a separate grant, if the pod fits.
	Plan []Planned
}

// judge answers whether and how well nodes answer a pod, and keeps the answers as long as they hold.
type judge struct {
	*inventory
	*placer
	*lessons
	*reader
	kinds kinds
}

// refresh tells the policy of nodes that came, went or changed, and of the room on them.
func (j *judge) refresh() {
	if j.stale {
		j.renew(j.nodes, j.reader)
	}
	j.look(j.nodes, j.placer)
}

// Fit says whether a node answers a pod now, and how.
func (j *judge) Fit(w PodRequest, name string, now time.Time) Verdict {
	n := j.nodes[name]
	if v, ok := trusted(n, now); !ok {
		return v
	}
	if v, ok := j.permitted(w, now); !ok {
		return v // the same pod may be permitted in another hour, and another one of its kind now
	}
	j.refresh()
	key := verdictKey{w.key, j.era}
	if k, ok := n.verdicts[key]; ok && k.version == n.version && len(w.Containers) == 1 {
		return k.is.of(w)
	}
	v := j.fit(n, j.stateOf(n), w, now)
	if len(w.Containers) != 1 {
		return v
	}
	if len(n.verdicts) >= mostKept || n.verdicts == nil {
		n.verdicts = map[verdictKey]kept[Verdict]{}
	}
	n.verdicts[key] = kept[Verdict]{n.version, v}
	return v
}

// Fitting are the nodes that answer the pod now, sorted.
func (j *judge) Fitting(w PodRequest, now time.Time) []string {
	var out []string
	for name := range j.nodes {
		if j.Fit(w, name, now).Reason == Fits {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// of is a kept verdict of a pod of one container, for another that asks for the same.
func (v Verdict) of(w PodRequest) Verdict {
	if len(v.Plan) == 1 {
		v.Plan = []Planned{{w.Containers[0].Container, v.Plan[0].Placement}}
	}
	v.Container = w.Containers[0].Container
	return v
}

// trusted is false when nothing that the node says may be built on now.
func trusted(n *node, now time.Time) (Verdict, bool) {
	switch {
	case n == nil || n.report == nil:
		return Verdict{Reason: NoReport, Text: NoReport.String()}, false
	case n.heard.IsZero():
		return Verdict{Reason: Stale, Text: "kerf-agent was never heard from"}, false
	case now.Sub(n.heard) > n.valid:
		return Verdict{Reason: Stale, Text: fmt.Sprintf("kerf-agent was last heard from %v ago",
			now.Sub(n.heard).Round(time.Second))}, false
	case n.report.torn:
		return Verdict{Reason: Torn, Text: Torn.String()}, false
	case !n.report.ready:
		text := NotReady.String()
		if n.report.notReady != "" {
			text += ": " + n.report.notReady
		}
		return Verdict{Reason: NotReady, Text: text}, false
	}
	return Verdict{}, true
}

// placer places a pod on one node.
type placer struct {
	rules
	policy *cluster.Online
	// away are pods that are thought away.
	away map[string]bool
}

// fit places the containers one after the other on a copy of the state.
func (m *placer) fit(n *node, s *state, w PodRequest, now time.Time) Verdict {
	for name, count := range w.Limits {
		if n.machine.Allocatable[name] < count {
			v := Verdict{Reason: NotOffered, Text: fmt.Sprintf("offers %d of %s, %d requested",
				n.machine.Allocatable[name],
				name, count)}
			if names, unknown := otherProfiles(s, w); unknown {
				v.Text += ": write one of " + names
			}
			return v
		}
	}
	if v, ok := m.permitted(w, now); !ok {
		return v
	}
	if len(w.Containers) > 1 {
		s = s.clone()
	}
	v := Verdict{}
	for _, a := range w.Containers {
		r, err := m.resolved(n, a)
		if err != nil {
			return Verdict{Reason: Refused, Text: err.Error(), Container: a.Container}
		}
		if a.Kind == sharing.ContainerInit && s.lends(w.UID, r) {
			continue
		}
		p, err := m.choose(n, s, r, w.CPU)
		if err != nil {
			why, text := because(s, r, err)
			return Verdict{Reason: why, Text: text, Container: a.Container}
		}
		v.Plan = append(v.Plan, Planned{a.Container, p})
		if len(w.Containers) > 1 {
			s.take(w.UID, p)
		}
	}
	return m.permittedMemory(w, v)
}

// choose is the placement of one request on the node. It uses the GPUs as they are, or else changes the mode of an idle
// one.
func (m *placer) choose(n *node, s *state, r sharing.Request, cpu cluster.Milli) (sharing.Placement, error) {
	p, err := m.chooseIn(n, s, r, cpu)
	if err == nil {
		return p, nil
	}
	if t := s.turned(r.Kind == sharing.KindMIG); t != nil {
		if p, turned := m.chooseIn(n, t, r, cpu); turned == nil {
			return p, nil
		}
	}
	return nil, err
}

// chooseIn is the placement of one request in a state of the node. For a share of one GPU the policy decides, else the
// agent's rule.
func (m *placer) chooseIn(n *node, s *state, r sharing.Request, cpu cluster.Milli) (sharing.Placement, error) {
	if r.Kind == sharing.KindMIG {
		return n.chooseInstance(s, r, cpu, m.instanceChooser(r))
	}
	p, err := allocator.Choose(s.gpus, r)
	if err != nil || r.Kind == sharing.KindWhole || r.GPUs != 1 || r.Place == sharing.PlaceSpread {
		return p, err
	}
	view, shape := n.view(s, r, cpu)
	if _, g := m.policy.Score(&view, shape); g >= 0 && g < len(s.gpus) {
		on := slices.Clone(s.gpus[g : g+1])
		if best, err := allocator.Choose(on, r); err == nil {
			return best, nil
		}
	}
	return p, nil
}

// because says why no placement answers the request: by the first thing that too few GPUs of the node have.
func because(s *state, r sharing.Request, err error) (Reason, string) {
	if r.Kind == sharing.KindMIG {
		return noInstance(s, r)
	}
	if len(s.gpus) < r.GPUs {
		return LacksGPUs, fmt.Sprintf("%d GPUs, %d requested", len(s.gpus), r.GPUs)
	}
	no, ok := errors.AsType[*allocator.NoFit](err)
	if !ok {
		return LacksCapacity, err.Error()
	}
	for _, why := range []Reason{WrongModel, LacksLevel, TooSmall, Unhealthy} {
		rest := slices.DeleteFunc(slices.Clone(no.GPUs),
			func(g allocator.Reason) bool { return reasonOf(g.Code) > why })
		if len(s.gpus)-len(rest) >= r.GPUs {
			continue
		}
		return why, textOf(s, why, slices.DeleteFunc(rest,
			func(g allocator.Reason) bool { return reasonOf(g.Code) != why }))
	}
	return LacksCapacity, no.Summary
}

// textOf is the reason of a node, with what is known of its GPUs. Of levels it has what the strongest of them says.
func textOf(s *state, why Reason, gpus []allocator.Reason) string {
	switch why {
	case LacksLevel:
		level := func(g allocator.Reason) sharing.Level { return s.at(g.GPU).ShareLevel() }
		return slices.MaxFunc(gpus, func(a, b allocator.Reason) int { return cmp.Compare(level(a), level(b)) }).Text
	case WrongModel:
		if !slices.ContainsFunc(gpus, func(g allocator.Reason) bool { return g.Code != allocator.OfSystem }) {
			return sharing.NoShares
		}
	case Unhealthy:
		for _, g := range gpus {
			if by := s.at(g.GPU).GPU.Cordoned; by != "" {
				return "GPUs cordoned: " + by
			}
		}
	default:
	}
	return why.String()
}

// reasonOf is the reason of a node on which too few GPUs have a better verdict.
func reasonOf(c allocator.Code) Reason {
	switch c {
	case allocator.Fits:
		return Fits
	case allocator.OtherModel, allocator.OtherUUID, allocator.OtherInstance, allocator.InMIGMode, allocator.NoMemory,
		allocator.OfSystem:
		return WrongModel
	case allocator.Unenforced, allocator.BelowRequest, allocator.BelowPool, allocator.Contested:
		return LacksLevel
	case allocator.TooSmall:
		return TooSmall
	case allocator.NotHealthy, allocator.Cordoned:
		return Unhealthy
	case allocator.NotWhole, allocator.NotShared, allocator.InUse, allocator.TooManyShares, allocator.NoCapacity,
		allocator.NoInstance:
	}
	return LacksCapacity
}
