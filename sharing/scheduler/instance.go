// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// instanceChooser says which GPU in MIG mode answers a request, and where on it.
type instanceChooser interface {
	cluster.Policy
	cluster.Starter
}

// spread takes the emptiest GPU.
type spread struct{ cluster.Spread }

// Start implements cluster.Starter.
func (spread) Start(n *cluster.Node, gpu, profile int) int { return usualStart(n, gpu, profile) }

// plain takes the GPU that loses least if all profiles are equally likely. An agent chooses similarly without a plan,
// and the result does not depend on what the policy has learned.
type plain struct{}

// Score implements cluster.Policy.
func (plain) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	best, at := int64(math.MinInt64), -1
	p, _ := n.Instance(s)
	for g := range n.GPUs {
		if start, loss := n.TypicalPlacement(g, p); start >= 0 && -int64(loss) > best {
			best, at = -int64(loss), g
		}
	}
	return best, at
}

// Start implements cluster.Starter.
func (plain) Start(n *cluster.Node, gpu, profile int) int { return usualStart(n, gpu, profile) }

func usualStart(n *cluster.Node, gpu, profile int) int {
	p, _ := n.Table.Profile(profile)
	start, _ := n.TypicalPlacement(gpu, p)
	return start
}

func (m *placer) instanceChooser(r sharing.Request) instanceChooser {
	if r.Place == sharing.PlaceSpread {
		return spread{}
	}
	return m.policy
}

// hardened turns a request for memory that only hardware may enforce into one for the smallest MIG instance that has
// it. It does so if the node has GPUs in MIG mode; any other request stays as it is. The agent does the same.
func (n *node) hardened(r sharing.Request) sharing.Request {
	if n.report == nil || len(n.report.migGPUs) == 0 ||
		r.Kind != sharing.KindShared || r.MinLevel != sharing.LevelHardware || r.Memory == 0 || r.Percent != 0 ||
		r.GPUs != 1 || r.Profile != "" {
		return r
	}
	r.Kind, r.MIG, r.Memory, r.Burst = sharing.KindMIG, ">= "+r.Memory.String(), 0, sharing.Burst{}
	return r
}

// migView is the GPUs of a node that have a geometry and can answer the request, as policies see them. It also says
// which GPUs of the state they are.
func (n *node) migView(s *state, g *geometry, r sharing.Request) (view cluster.Node, gpus []int) {
	view = g.node
	view.Name, view.CPU, view.Memory = n.name, n.machine.CPU, n.machine.Memory
	var have []mig.Occupancy
	for i, at := range s.gpus {
		if c := s.migGPU(at.GPU.Ref()); c != nil && c.geometry == g && !c.fixed && c.trouble == "" &&
			c.byClaim == s.byClaim &&
			at.GPU.Health == sharing.HealthOK && r.Admits(at.GPU) {
			view.Model, gpus, have = at.GPU.Model, append(gpus, i), append(have, s.taken(at.GPU.Ref()))
		}
	}
	view.SetMIG(have)
	return view, gpus
}

// instanceShape is a request for an instance as policies see it.
func instanceShape(r sharing.Request, cpu cluster.Milli) cluster.Shape {
	s := shapeOf(r, cpu)
	s.Models, s.Level = "", sharing.LevelUnknown
	return s
}

// chooseInstance is the instance that answers a request. One of a layout comes before one that must be created, because
// it costs nothing.
func (n *node) chooseInstance(s *state, r sharing.Request, cpu cluster.Milli,
	by instanceChooser) (sharing.Placement, error) {
	var kinds []*geometry
	for _, g := range s.gpus {
		c := s.migGPU(g.GPU.Ref())
		p, ok := c.profile(r)
		if !ok || c.trouble != "" || g.GPU.Health != sharing.HealthOK || !r.Admits(g.GPU) {
			continue
		}
		if !c.fixed {
			if !slices.Contains(kinds, c.geometry) {
				kinds = append(kinds, c.geometry)
			}
		} else if start, ok := s.start(g.GPU.Ref(), p, -1); ok {
			return sharing.Placement{instanceShare(g.GPU.Ref(), p, start)}, nil
		}
	}
	var best sharing.Placement
	most := int64(0)
	for _, kind := range kinds {
		view, gpus := n.migView(s, kind, r)
		shape := instanceShape(r, cpu)
		p, ok := view.Instance(shape)
		if !ok || !slices.ContainsFunc(gpuIndexes(view),
			func(g int) bool { start, _ := view.TypicalPlacement(g, p); return start >= 0 }) {
			continue
		}
		score, g := by.Score(&view, view.Resolve(shape))
		if g < 0 || g >= len(gpus) || best != nil && score <= most {
			continue
		}
		if start := by.Start(&view, g, p.ID); start >= 0 {
			best, most = sharing.Placement{instanceShare(s.gpus[gpus[g]].GPU.Ref(), p, start)}, score
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: %w", r, sharing.ErrExhausted)
	}
	return best, nil
}

func gpuIndexes(n cluster.Node) []int {
	out := make([]int, len(n.GPUs))
	for i := range out {
		out[i] = i
	}
	return out
}

// plannedInstance is the instance of a plan; false when the plan is not one for this request, or its place is taken.
func (s *state) plannedInstance(a sharing.Advice, r sharing.Request) (sharing.Placement, bool) {
	if len(a.GPUs) != 1 || a.MIG.Profile == "" {
		return nil, false
	}
	gpu := sharing.GPURef{UUID: a.GPUs[0]}
	c := s.migGPU(gpu)
	p, ok := c.profile(r)
	if !ok || p.Name != a.MIG.Profile {
		return nil, false
	}
	start, ok := s.start(gpu, p, a.MIG.Start)
	return sharing.Placement{instanceShare(gpu, p, start)}, ok
}

// admitsInstance is true when a container of the pod has an instance that the request takes.
func (s *state) admitsInstance(uid string, r sharing.Request) bool {
	return slices.ContainsFunc(s.held[uid], func(f sharing.Share) bool {
		c, g := s.migGPU(f.GPU), s.at(f.GPU)
		p, ok := c.profile(r)
		return ok && g != nil && !f.MIG.None() && r.Admits(g.GPU) && p.ID == f.MIG.ID
	})
}

// instanceScore is the score of a placement's GPU, with its terms. A GPU with a layout loses nothing.
func (m *placer) instanceScore(n *node, s *state, r sharing.Request, p sharing.Placement,
	cpu, free cluster.Milli) (int64, []cluster.Term) {
	c := s.migGPU(p[0].GPU)
	if c == nil || c.geometry == nil || c.fixed {
		return 0, nil
	}
	view, _ := n.migView(s, c.geometry, r)
	view.CPU = free
	shape := view.Resolve(instanceShape(r, cpu))
	if by := m.instanceChooser(r); by != instanceChooser(m.policy) {
		score, _ := by.Score(&view, shape)
		return score, nil
	}
	score, _ := m.policy.Score(&view, shape)
	return score, m.policy.Terms(&view, shape)
}

// noInstance says why no instance answers the request.
func noInstance(s *state, r sharing.Request) (Reason, string) {
	has := func(g allocator.GPUState) bool {
		_, ok := s.migGPUs[g.GPU.Ref()].profile(r) // those too that may be put in MIG mode once they are idle
		return ok && r.Admits(g.GPU)
	}
	well := func(g allocator.GPUState) bool {
		return has(g) && g.GPU.Health == sharing.HealthOK && s.migGPUs[g.GPU.Ref()].trouble == ""
	}
	switch {
	case len(s.gpus) == 0:
		return LacksGPUs, "0 GPUs, 1 requested"
	case !slices.ContainsFunc(s.gpus, func(g allocator.GPUState) bool { return r.Admits(g.GPU) }):
		return WrongModel, WrongModel.String()
	case !slices.ContainsFunc(s.gpus, has):
		if names := profilesOf(s, r); names != "" {
			return LacksProfile, LacksProfile.String() + ": write one of " + names
		}
		return LacksProfile, "no GPU in MIG mode"
	case !slices.ContainsFunc(s.gpus, well):
		return Unhealthy, Unhealthy.String()
	}
	n := 0
	for _, g := range s.gpus {
		if well(g) {
			n++
		}
	}
	return LacksInstance, fmt.Sprintf("%d GPUs in MIG mode or able to change to it, and none has a place free for %s",
		n, r)
}

// profilesOf are the names of the profiles that GPUs give and that the request admits, from the smallest to the
// largest. With a layout, they are the layout's.
func profilesOf(s *state, r sharing.Request) string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, g := range s.gpus {
		c := s.migGPUs[g.GPU.Ref()]
		if c == nil || c.geometry == nil || c.byClaim || !r.Admits(g.GPU) {
			continue
		}
		for _, p := range c.table.Profiles() {
			if !c.fixed || slices.ContainsFunc(c.layout, func(at mig.Place) bool { return at.Profile == p.ID }) {
				add(p.Name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// otherProfiles are the names of the profiles of a node if no GPU knows one that the pod requests. It is false if each
// is known, and if no GPU has profiles.
func otherProfiles(s *state, w PodRequest) (string, bool) {
	for _, a := range w.Containers {
		known := func(c *migGPU) bool {
			if c == nil || c.geometry == nil || c.byClaim {
				return false
			}
			_, ok := c.node.Instance(cluster.Shape{GPUs: 1, Profile: a.Request.MIG})
			return ok
		}
		if a.Request.Kind != sharing.KindMIG || slices.ContainsFunc(slices.Collect(maps.Values(s.migGPUs)), known) {
			continue
		}
		names := profilesOf(s, a.Request)
		return names, names != ""
	}
	return "", false
}

// profilePhrase lists the profiles of the node's GPUs, for a node without the requested profile.
func profilePhrase(s *state, r sharing.Request) string {
	if names := profilesOf(s, r); names != "" {
		return "have no GPU with this MIG profile, but with " + names
	}
	return "have no GPU in MIG mode"
}
