// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
)

// LiveNode is a node of a cluster that runs.
type LiveNode struct {
	Name string
	// CPU and Memory are what pods can have of it in all.
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Closed nodes take no new pods.
	Closed bool
	// Allocatable are the amounts of Kerf's resources that its kubelet gives out, by name; nil where that is not known.
	Allocatable map[string]int64
	// Report is what its agent says; nil where there is none, and then no GPU of the node is known.
	Report *gpunode.Status
}

// LivePod is a pod of a cluster that runs.
type LivePod struct {
	sharing.Pod
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Owner is the controller that would create it again; empty if there is none.
	Owner string
	// Fixed pods belong to their node and go with it.
	Fixed bool
}

// Live is a cluster as it runs, with the changes that are asked about.
type Live struct {
	// Nodes are those that stay, as they are when only the pods that belong to them run.
	Nodes []cluster.Node
	// Pods are all that were placed or wait, as a list of what usually arrives.
	Pods []Pod
	// There is what is held, for Experiment.
	There []There
	// Moved pods ran where they cannot stay; Waiting ones have no node yet.
	Moved, Waiting []Pod
	// Left is what could not be read of pods, each with its reason.
	Left []string
	// Notes are what of the nodes counts for less than it is.
	Notes []string
}

// There is what is held before anything arrives.
type There struct {
	Node  int
	Grant cluster.Grant
}

// NewLive makes a simulation's nodes and pods of a cluster's. Gone nodes are left out, and the GPUs of MIG nodes have
// MIG instances. Pods on gone nodes, and pods with a GPU of a MIG node, have to move. A GPU that is not healthy is left
// out. A pod with several containers that request GPUs counts as one pod for each.
func NewLive(nodes []LiveNode, pods []LivePod, gone, inMIG func(node string) bool) (Live, error) {
	l := Live{}
	b := liveBuilder{Live: &l, at: map[string]int{}, parts: map[string]int{}, gpus: map[string]slot{},
		becomes: map[string]bool{}, claims: map[string][]gpunode.Grant{}, seen: map[string]bool{},
		migNodes: map[string]bool{}, instances: map[slot]mig.Occupancy{}}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(x, y LiveNode) int { return strings.Compare(x.Name, y.Name) })
	for i := range nodes {
		n := &nodes[i]
		b.holders(n)
		if gone(n.Name) {
			b.at[n.Name] = -1
		} else {
			b.node(n, inMIG(n.Name))
		}
	}
	if err := MIG(l.Nodes, func(name string) bool { return b.migNodes[name] }); err != nil {
		return l, err
	}
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(x, y LivePod) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	for i := range pods {
		b.pod(&pods[i])
	}
	for i := range nodes {
		b.unmanaged(&nodes[i])
	}
	Size(l.Pods, l.Nodes)
	Size(l.Moved, l.Nodes)
	Size(l.Waiting, l.Nodes)
	return l, nil
}

type liveBuilder struct {
	*Live
	// at is a node's index in Nodes, -1 for one that is gone; parts is as how many nodes it counts, one after the
	// other.
	at, parts map[string]int
	// gpus is where a GPU is, by UUID; becomes has the nodes that are put into MIG mode.
	gpus    map[string]slot
	becomes map[string]bool
	// migNodes has the nodes whose GPUs are in MIG mode, or will be.
	migNodes map[string]bool
	// claims are those of pods that run, by UID.
	claims map[string][]gpunode.Grant
	// seen are the pods that were reported.
	seen map[string]bool
	// left is what is free, node by node; instances are the MIG instances of GPUs in MIG mode, by where they are.
	left      []cluster.Node
	instances map[slot]mig.Occupancy
}

// holders finds the claims of pods.
func (b *liveBuilder) holders(n *LiveNode) {
	if n.Report == nil {
		return
	}
	for _, c := range n.Report.Grants {
		if c.PodUID != "" {
			b.claims[c.PodUID] = append(b.claims[c.PodUID], c)
		}
	}
}

// slot is a GPU of Nodes.
type slot struct{ node, gpu int }

// node adds one that stays.
func (b *liveBuilder) node(n *LiveNode, inMIG bool) {
	parts := []cluster.Node{{Name: n.Name, CPU: n.CPU, Memory: n.Memory, Cordoned: n.Closed}}
	if n.Report != nil {
		parts = b.inventory(parts[0], n, inMIG)
	}
	b.at[n.Name], b.parts[n.Name] = len(b.Nodes), len(parts)
	b.Nodes = append(b.Nodes, parts...)
	for _, p := range parts {
		p.GPUs = slices.Clone(p.GPUs)
		b.left = append(b.left, p)
	}
}

// inventory takes the GPUs that can be given, in the order of their indices. They are in one part of the node, or in
// one for each way in which its pool gives them.
func (b *liveBuilder) inventory(base cluster.Node, n *LiveNode, becomes bool) []cluster.Node {
	s, inMIG := n.Report, 0
	for _, g := range s.GPUs {
		if g.MIG {
			inMIG++
		}
	}
	all := inMIG > 0 && inMIG == len(s.GPUs)
	var parts []cluster.Node
	differ, none := map[int]bool{}, 0
	var unenforced unenforcedGPUs
	for _, g := range slices.SortedFunc(slices.Values(s.GPUs),
		func(x, y gpunode.GPU) int { return cmp.Compare(x.Index, y.Index) }) {
		if g.Health != sharing.HealthOK.String() || g.Cordoned != "" || g.MIG && !all {
			continue
		}
		gives, some := cluster.AllModes, true
		if !all && !becomes {
			gives, some = shareUnits(g, n.Allocatable)
			unenforced.add(g)
		}
		if !some {
			none++
			continue
		}
		i := slices.IndexFunc(parts, func(p cluster.Node) bool { return p.AllowedModes == gives })
		if i < 0 {
			i, parts = len(parts), append(parts, base)
			parts[i].AllowedModes = gives
		}
		differ[i] = add(&parts[i], g) || differ[i]
		b.gpus[g.UUID] = slot{len(b.Nodes) + i, len(parts[i].GPUs) - 1}
	}
	if none > 0 {
		b.Notes = append(b.Notes, fmt.Sprintf(
			"node %s: %d of its GPUs are left out, which the pool's rules let give neither parts nor all of them",
			base.Name, none))
	}
	b.Notes = append(b.Notes, unenforced.notes(base.Name)...)
	b.becomes[base.Name] = becomes && !all && len(parts) > 0
	b.migNodes[base.Name] = all || b.becomes[base.Name]
	for i := range parts {
		p := &parts[i]
		if b.migNodes[base.Name] {
			p.Overcommit = sharing.Overcommit{} // instances are given once
		} else if differ[i] {
			b.Notes = append(b.Notes, fmt.Sprintf("node %s: its GPUs are overcommitted differently, and each counts "+
				"as the least of them: memory %v times, compute %v times", base.Name, p.Overcommit.Memory,
				p.Overcommit.Compute))
		}
	}
	if len(parts) == 0 {
		return []cluster.Node{base}
	}
	b.divide(base, parts)
	return parts
}

// divide gives each part of a node its part of CPU and memory, by the GPUs.
func (b *liveBuilder) divide(base cluster.Node, parts []cluster.Node) {
	if len(parts) == 1 {
		return
	}
	gpus := 0
	for _, p := range parts {
		gpus += len(p.GPUs)
	}
	var as []string
	for i := range parts {
		p := &parts[i]
		p.Name = fmt.Sprintf("%s (GPUs given %s)", base.Name, p.AllowedModes)
		p.CPU = base.CPU * cluster.Milli(len(p.GPUs)) / cluster.Milli(gpus)
		p.Memory = base.Memory / sharing.Bytes(gpus) * sharing.Bytes(len(p.GPUs))
		as = append(as, fmt.Sprintf("%d %s", len(p.GPUs), p.AllowedModes))
	}
	b.Notes = append(b.Notes, fmt.Sprintf("node %s: its pool gives its GPUs differently (%s): they count as %d "+
		"nodes, each with its part of CPU and memory", base.Name, strings.Join(as, ", "), len(parts)))
}

// add adds a GPU to those of the node; true where it is overcommitted in another way than they.
func add(n *cluster.Node, g gpunode.GPU) (differs bool) {
	place := cluster.Place{NVLink: -1 - g.Index, PCIe: g.Index}
	if g.NVLinkClique != nil {
		place.NVLink = *g.NVLinkClique
	}
	if g.NUMANode != nil {
		place.NUMA = *g.NUMANode
	}
	read := gpureport.GPU(g, 0)
	level, over := max(sharing.LevelNone, read.ShareLevel()), read.GPU.Overcommit.Plain()
	if len(n.GPUs) == 0 {
		n.GPUMemory, n.Level, n.Model, n.Overcommit = gpureport.Bytes(g.AllocatableBytes), level, g.Model, over
	}
	n.GPUMemory, n.Level = min(n.GPUMemory, gpureport.Bytes(g.AllocatableBytes)), min(n.Level, level)
	differs = over != n.Overcommit
	n.Overcommit = sharing.Overcommit{Memory: min(n.Overcommit.Memory, over.Memory),
		Compute: min(n.Overcommit.Compute, over.Compute)}
	n.GPUs, n.Topology = append(n.GPUs, cluster.WholeGPU), append(n.Topology, place)
	return differs
}

// pod finds out where a pod is, and whether it may stay there.
func (b *liveBuilder) pod(p *LivePod) {
	b.seen[p.UID] = true
	at, known := b.at[p.Node]
	claims := b.claims[p.UID]
	asks := b.asks(p, claims)
	if !p.Fixed {
		b.Pods = append(b.Pods, asks...)
	}
	switch {
	case p.Node == "":
		b.Waiting = append(b.Waiting, asks...)
	case !known:
	case at < 0 && p.Fixed:
	case at < 0, b.becomes[p.Node] && len(claims) > 0:
		b.Moved = append(b.Moved, asks...)
	default:
		b.stay(at, p, claims)
	}
}

// asks is what a new pod would ask for, one pod for each container that asks, at least one. The first has its CPU and
// memory. Amounts that a profile gives are taken from the pod's grants. A pod that cannot be read asks for nothing.
func (b *liveBuilder) asks(p *LivePod, claims []gpunode.Grant) []Pod {
	kind := p.Namespace + "/" + p.Name
	if p.Owner != "" {
		kind = p.Namespace + "/" + p.Owner
	}
	var out []Pod
	whole := true
	leave := func(c, format string, args ...any) {
		whole = false
		b.Left = append(b.Left, fmt.Sprintf("pod %s/%s, container %s: ", p.Namespace, p.Name, c)+
			fmt.Sprintf(format, args...))
	}
	add := func(container string, s cluster.Shape) {
		out = append(out, Pod{Name: p.Namespace + "/" + p.Name + "/" + container, Type: kind,
			Request: cluster.Request{Shape: s}})
	}
	for _, c := range p.Containers {
		r, asks, err := sharing.RequestFromResources(c.Limits, p.Annotations, c.Name)
		switch {
		case c.Kind == sharing.ContainerInit || err == nil && !asks:
		case err != nil:
			leave(c.Name, "%v", err)
		case !r.Open():
			add(c.Name, shapeOf(r))
		default:
			i := slices.IndexFunc(claims, func(held gpunode.Grant) bool {
				return held.Container == c.Name &&
					len(held.Shares) > 0
			})
			if i < 0 {
				leave(c.Name, "its profile says how much it gets, and it holds nothing yet")
				continue
			}
			add(c.Name, again(claims[i], r))
		}
	}
	if !whole {
		return nil
	}
	if len(out) == 0 {
		add("", cluster.Shape{})
	}
	out[0].CPU, out[0].Memory = p.CPU, p.Memory
	return out
}

// shapeOf is the request for a scheduler.
func shapeOf(r sharing.Request) cluster.Shape {
	s := cluster.Shape{GPUs: r.GPUs, Models: strings.Join(r.Models, "|"), Level: r.MinLevel}
	if r.Kind == sharing.KindMIG {
		s.GPUs, s.Profile = 1, r.MIG
		return s
	}
	if r.Kind == sharing.KindWhole {
		s.Share = cluster.WholeGPU
		return s
	}
	memory, percent := r.Each()
	s.GPUMemory, s.Share = memory, cluster.Milli(percent)*10
	return s
}

// again is a new request for the grant.
func again(c gpunode.Grant, r sharing.Request) cluster.Shape {
	f := c.Shares[0]
	s := cluster.Shape{GPUs: len(c.Shares), Models: strings.Join(r.Models, "|"), Level: r.MinLevel}
	if f.Whole {
		s.Share = cluster.WholeGPU
		return s
	}
	s.GPUMemory, s.Share = gpureport.Bytes(f.MemoryBytes), cluster.Milli(f.Percent)*10
	return s
}
