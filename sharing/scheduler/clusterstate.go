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

// settle applies to a pod that its node never reported. A heartbeat so long after the pod's end shows that the node has
// no grant for it. An agent reports at most once a second, and tries again what failed.
const settle = 5 * time.Second

// Machine is what a node has in addition to its GPUs.
type Machine struct {
	// CPU and Memory are what pods can have of it in all.
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Allocatable are the amounts of Kerf's resources that its kubelet gives out, by name: kerf.dev/gpu-percent and so
	// on.
	Allocatable map[string]int64
}

// ClusterState has the nodes and pods of a cluster, and answers questions about them.
type ClusterState struct {
	*judge
	gangs
	explainer
}

// inventory has the nodes and pods of the cluster.
type inventory struct {
	nodes map[string]*node
	pods  map[string]*pod
	// migChanges counts the changes of nodes with GPUs in MIG mode.
	migChanges *int
}

// New returns the state of an empty cluster.
func New() *ClusterState {
	policy := cluster.NewOnline(nil)
	l := &lessons{policy: policy, learned: map[string]bool{}, ofClaims: map[string]bool{}}
	j := &judge{
		inventory: &inventory{nodes: map[string]*node{}, pods: map[string]*pod{}, migChanges: &l.survey.changes},
		placer:    &placer{policy: policy}, lessons: l, reader: &reader{}, kinds: kinds{all: map[kindKey]kind{}},
	}
	return &ClusterState{judge: j, gangs: gangs{j}, explainer: explainer{gangs{j}}}
}

// Configure sets the SharingConfig by which the agents complete requests. Without one, a request counts as it is
// written, and one that names a profile fits nowhere.
func (b *ClusterState) Configure(c config.Config) {
	b.config = &c
	for _, n := range b.nodes {
		n.change()
	}
}

func (x *inventory) node(name string) *node {
	n := x.nodes[name]
	if n == nil {
		n = &node{name: name, pods: map[string]*pod{}, migChanges: x.migChanges}
		x.nodes[name] = n
	}
	return n
}

// Machine records what a node has in addition to its GPUs.
func (b *ClusterState) Machine(name string, m Machine) {
	n := b.node(name)
	if n.machine.CPU != m.CPU || n.machine.Memory != m.Memory {
		b.stale = true
	}
	n.machine = m
	n.change()
}

// Report tells what a node's agent says.
func (b *ClusterState) Report(name string, s gpunode.Status) {
	n := b.node(name)
	r := b.readReport(s)
	if n.report == nil || len(n.report.gpus) != len(r.gpus) || model(n.report) != model(r) ||
		!slices.Equal(n.report.geometries(), r.geometries()) {
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
func (b *ClusterState) NoReport(name string) {
	if n := b.nodes[name]; n != nil {
		n.report, n.heard, b.stale = nil, time.Time{}, true
		n.change()
	}
}

// NoNode tells that the node is gone from the cluster; what its pods hold goes with it.
func (b *ClusterState) NoNode(name string) {
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

// Heartbeat records that the node's agent renewed its Lease at a time of the agent's clock, for so long. A repeated
// renewal changes nothing.
func (b *ClusterState) Heartbeat(name string, renewed time.Time, valid time.Duration, now time.Time) {
	n := b.node(name)
	n.valid = valid
	switch {
	case n.renewed.Equal(renewed):
		return
	case n.renewed.IsZero() && renewed.Before(now):
		n.heard = renewed // its arrival was not seen: only its time shows how old it is
	default:
		n.heard = now
	}
	n.renewed = renewed
	b.sweep(n)
}

// sweep forgets the pods that are gone and of which the node holds nothing.
func (b *ClusterState) sweep(n *node) {
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

// geometries are the MIG geometries of its GPUs, in their order; nil for a GPU without MIG support.
func (r *report) geometries() []*geometry {
	if len(r.migGPUs) == 0 {
		return nil
	}
	out := make([]*geometry, len(r.gpus))
	for i, g := range r.gpus {
		if c := r.migGPUs[g.GPU.Ref()]; c != nil && c.on {
			out[i] = c.geometry
		}
	}
	return out
}

// lessons is what the policy learned: from pods that came and went, and from the nodes.
type lessons struct {
	policy *cluster.Online
	// learned are the pods that the policy counted.
	learned map[string]bool
	// ofClaims are those of them with ResourceClaims, which the inventory does not have.
	ofClaims map[string]bool
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

// Learn reports a pod that arrived to the policy. Each pod counts once.
func (l *lessons) Learn(w PodRequest) {
	if l.learned[w.UID] {
		return
	}
	l.learned[w.UID] = true
	for _, a := range w.Containers {
		if a.Kind != sharing.ContainerInit && !a.Request.Open() &&
			l.policy.Learn(cluster.Request{Shape: shapeOf(a.Request, w.CPU)}) {
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
	profileList := map[*geometry]bool{}
	for _, name := range names {
		nodes = append(nodes, all[name].parts()...)
		for _, g := range all[name].report.geometries() {
			profileList[g] = true
		}
	}
	read.geometries = slices.DeleteFunc(read.geometries, func(g *geometry) bool { return !profileList[g] })
	l.policy.Nodes(nodes)
	l.era++
}

// look tells the policy how many GPUs have which units free, once enough of them may have changed. Scores are void only
// when that differs: most reports say what the last one did.
func (l *lessons) look(all map[string]*node, m *placer) {
	s := &l.survey
	if !s.void && s.changes <= s.gpus/cluster.ObserveFraction {
		return
	}
	rooms, gpus := map[*mig.Table]mig.FreeCapacity{}, 0
	for _, n := range all {
		if n.report != nil && len(n.report.migGPUs) > 0 {
			gpus += m.stateOf(n).rooms(rooms)
		}
	}
	same := !s.void && maps.EqualFunc(rooms, s.rooms, maps.Equal[mig.FreeCapacity, mig.FreeCapacity])
	l.survey = survey{rooms: rooms, gpus: gpus}
	if !same && l.policy.Rooms(rooms) {
		l.era++
	}
}
