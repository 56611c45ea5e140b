// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// settle is how long after the end of a pod that its node never reported a heartbeat must come before it is believed that
// the node holds nothing for it: an agent reports at most once a second, and tries again what failed.
const settle = 5 * time.Second

// Machine is what a node has beside its GPUs.
type Machine struct {
	// CPU and Memory are what pods can have of it in all.
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Offers are the amounts of Kerf's resources that its kubelet gives out, by name: kerf.dev/gpu-percent and so on.
	Offers map[string]int64
}

// Books are the books of a cluster: what its nodes and pods are, and the questions that are asked of that.
type Books struct {
	*judge
	gangs
	explainer
}

// inventory has the nodes and pods of the cluster.
type inventory struct {
	nodes map[string]*node
	pods  map[string]*pod
	// recut counts the changes of nodes with GPUs in MIG mode.
	recut *int
}

// New are empty books.
func New() *Books {
	policy := cluster.NewOnline(nil)
	l := &lessons{policy: policy, learned: map[string]bool{}}
	j := &judge{
		inventory: &inventory{nodes: map[string]*node{}, pods: map[string]*pod{}, recut: &l.survey.changes},
		placer:    &placer{policy: policy}, lessons: l, reader: &reader{}, kinds: kinds{all: map[kindKey]kind{}},
	}
	return &Books{judge: j, gangs: gangs{j}, explainer: explainer{gangs{j}}}
}

// Configure sets the SharingConfig by which the agents complete requests. Without one, a request counts as it is written,
// and one that names a profile fits nowhere.
func (b *Books) Configure(c config.Config) {
	b.config = &c
	for _, n := range b.nodes {
		n.change()
	}
}

func (x *inventory) node(name string) *node {
	n := x.nodes[name]
	if n == nil {
		n = &node{name: name, pods: map[string]*pod{}, recut: x.recut}
		x.nodes[name] = n
	}
	return n
}

// Machine tells what a node has beside its GPUs.
func (b *Books) Machine(name string, m Machine) {
	n := b.node(name)
	if n.machine.CPU != m.CPU || n.machine.Memory != m.Memory {
		b.stale = true
	}
	n.machine = m
	n.change()
}

// Report tells what a node's agent says.
func (b *Books) Report(name string, s gpunode.Status) {
	n := b.node(name)
	r := b.readReport(s)
	if n.report == nil || len(n.report.gpus) != len(r.gpus) || model(n.report) != model(r) || !slices.Equal(n.report.geometries(), r.geometries()) {
		b.stale = true
	}
	n.report = r
	for _, p := range n.pods {
		p.reflect(r)
	}
	n.change()
	b.sweep(n)
}

// NoReport tells that a node's agent says nothing any more.
func (b *Books) NoReport(name string) {
	if n := b.nodes[name]; n != nil {
		n.report, n.heard, b.stale = nil, time.Time{}, true
		n.change()
	}
}

// NoNode tells that the node is gone from the cluster; what its pods hold goes with it.
func (b *Books) NoNode(name string) {
	n := b.nodes[name]
	if n == nil {
		return
	}
	for uid := range n.pods {
		delete(b.pods, uid)
		delete(b.learned, uid)
	}
	delete(b.nodes, name)
	b.stale = true
}

// Heartbeat tells that the node's agent renewed its Lease at a time of its own clock, for so long. A renewal that was seen
// before tells nothing new, however often it is told.
func (b *Books) Heartbeat(name string, renewed time.Time, valid time.Duration, now time.Time) {
	n := b.node(name)
	n.valid = valid
	switch {
	case n.renewed.Equal(renewed):
		return
	case n.renewed.IsZero() && renewed.Before(now):
		n.heard = renewed // nobody saw it come: only its own time tells how old it is
	default:
		n.heard = now
	}
	n.renewed = renewed
	b.sweep(n)
}

// sweep forgets the pods that are gone and of which the node holds nothing.
func (b *Books) sweep(n *node) {
	for uid, p := range n.pods {
		if p.gone() && (n.settled(p) || len(p.seen) > 0) && !n.claimed(p) {
			delete(n.pods, uid)
			delete(b.pods, uid)
			delete(b.learned, uid)
			b.leave()
			n.change()
		}
	}
}

func model(r *report) string {
	if len(r.gpus) == 0 {
		return ""
	}
	return r.gpus[0].GPU.Model
}

// geometries are what its GPUs can be cut into, in their order; nil for one that cannot be.
func (r *report) geometries() []*geometry {
	if len(r.cuts) == 0 {
		return nil
	}
	out := make([]*geometry, len(r.gpus))
	for i, g := range r.gpus {
		if c := r.cuts[g.GPU.Ref()]; c != nil && c.on {
			out[i] = c.geometry
		}
	}
	return out
}

// lessons is what the policy was told: of pods that came and went, and of the nodes.
type lessons struct {
	policy *cluster.Online
	// learned has the pods that the policy was told of.
	learned map[string]bool
	// stale says that the policy does not know the nodes as they are.
	stale bool
	// era counts the changes that make every score void.
	era uint64
	// survey is of the GPUs in MIG mode together.
	survey survey
}

// leave tells the policy that a pod has ended.
func (l *lessons) leave() {
	if l.policy.Leave() {
		l.survey.void = true
		l.era++
	}
}

// Learn tells the policy of a pod that arrived; each is counted once, however often it is told.
func (l *lessons) Learn(w Want) {
	if l.learned[w.UID] {
		return
	}
	l.learned[w.UID] = true
	for _, a := range w.Asks {
		if a.Kind != sharing.ContainerInit && !a.Request.Open() && l.policy.Learn(cluster.Request{Shape: shapeOf(a.Request, w.CPU)}) {
			l.survey.void = true
			l.era++
		}
	}
}

// renew tells the policy of the nodes that report.
func (l *lessons) renew(all map[string]*node, read *reader) {
	l.stale, l.survey.void = false, true
	names := make([]string, 0, len(all))
	for name, n := range all {
		if n.report != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	nodes := make([]cluster.Node, 0, len(names))
	told := map[*geometry]bool{}
	for _, name := range names {
		nodes = append(nodes, all[name].parts()...)
		for _, g := range all[name].report.geometries() {
			told[g] = true
		}
	}
	read.geometries = slices.DeleteFunc(read.geometries, func(g *geometry) bool { return !told[g] })
	l.policy.Nodes(nodes)
	l.era++
}

// look tells the policy how many GPUs have which units free, once enough of them may have changed. Scores are void only
// when that differs: most reports say what the last one did.
func (l *lessons) look(all map[string]*node, m *placer) {
	s := &l.survey
	if !s.void && s.changes <= s.gpus/cluster.SurveyPart {
		return
	}
	rooms, gpus := map[*mig.Table]mig.Room{}, 0
	for _, n := range all {
		if n.report != nil && len(n.report.cuts) > 0 {
			gpus += m.books(n).rooms(rooms)
		}
	}
	same := !s.void && maps.EqualFunc(rooms, s.rooms, maps.Equal[mig.Room, mig.Room])
	l.survey = survey{rooms: rooms, gpus: gpus}
	if !same && l.policy.Rooms(rooms) {
		l.era++
	}
}
