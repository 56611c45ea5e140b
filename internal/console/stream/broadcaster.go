// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package stream keeps the newest state of a cluster for the console's viewers and sends them what changed.
//
// It promises that no viewer delays another. Each asks for what changed since its revision, and a slow one gets fewer
// and larger deltas. It knows no API server: a source reports nodes and pods.
package stream

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// learnEvery is the shortest time after which typical requests are found again.
const learnEvery = time.Minute

// Node is what a source knows of a node.
type Node struct {
	// Live has the name, the resources and the report. A node without a report is not shown.
	Live   simulate.LiveNode
	Labels map[string]string
	// Silent is true if the node's agent is away.
	Silent bool
	Usage  map[string]model.Usage
}

// Broadcaster has the state. Its methods may be called at the same time. Changes are visible to viewers after Flush.
type Broadcaster struct {
	now func() time.Time

	mu      sync.Mutex
	store   *model.Store
	nodes   map[string]Node
	pods    map[string]*model.SeenPod
	changed map[string]bool
	// namespaces are those that were seen since the start.
	namespaces map[string]bool
	learned    learned
	alike      alike
	config     *config.Config
	typical    model.Typical
	wake       chan struct{}
	// flushed is the revision of the store of which the viewers know.
	flushed uint64

	advisor advisor
}

// learned is what the typical requests were found from.
type learned struct {
	requests model.Requests
	// again is true if the typical requests may have changed since at, when there were so many pods.
	again bool
	at    time.Time
	pods  int
}

// NewBroadcaster makes an empty hub with a clock.
func NewBroadcaster(now func() time.Time) *Broadcaster {
	return &Broadcaster{now: now, store: model.NewStore(), nodes: map[string]Node{},
		pods: map[string]*model.SeenPod{}, changed: map[string]bool{}, namespaces: map[string]bool{},
		wake: make(chan struct{})}
}

// Node records a node.
func (h *Broadcaster) Node(n Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := n.Live.Name
	waited := unplaced(h.nodes[name])
	h.nodes[name], h.changed[name] = n, true
	defer func() {
		for uid := range unplaced(n) {
			waited[uid] = ""
		}
		for uid := range waited {
			if p := h.pods[uid]; p != nil {
				h.show(p)
			}
		}
	}()
	if n.Live.Report == nil {
		return
	}
	for _, g := range n.Live.Report.Grants {
		if g.Namespace != "" {
			h.namespaces[g.Namespace] = true
		}
	}
}

// RemoveNode records that a node is gone.
func (h *Broadcaster) RemoveNode(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nodes, name)
	delete(h.changed, name)
	h.store.Remove("node/" + name)
}

// Pod records a pod. One that requests nothing of Kerf counts only for CPU and memory.
func (h *Broadcaster) Pod(p model.SeenPod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alike.pod(&p)
	h.uncount(p.UID)
	h.pods[p.UID] = &p
	w, ok := h.show(&p)
	if !ok {
		return
	}
	h.learned.requests.Add(w, 1)
	h.namespaces[w.Namespace], h.learned.again = true, true
}

// uncount takes what is known of a pod out of the typical requests.
func (h *Broadcaster) uncount(uid string) {
	if p := h.pods[uid]; p != nil {
		if w, ok, err := scheduler.PodRequestOf(p.Pod); ok && err == nil {
			h.learned.requests.Add(w, -1)
			h.learned.again = true
		}
	}
}

// show puts a pod that requests something of Kerf into the store. It returns the request if it can be read.
func (h *Broadcaster) show(p *model.SeenPod) (scheduler.PodRequest, bool) {
	shown, w, ok := model.PodOf(*p)
	if !ok {
		return w, false
	}
	if reason := unplaced(h.nodes[shown.Node])[shown.UID]; reason != "" {
		shown.Pending, shown.Reason = true, reason
	}
	h.store.Set(podKey(p), shown)
	return w, shown.Problem == ""
}

// podKey has the namespace, so that the viewers who saw the pod hear of its end.
func podKey(p *model.SeenPod) string { return "pod/" + p.Namespace + "/" + p.UID }

// unplaced are the pods that wait on the node for free capacity, with the reason.
func unplaced(n Node) map[string]string {
	if n.Live.Report == nil {
		return map[string]string{}
	}
	return model.Unplaced(*n.Live.Report)
}

// RemovePod records that a pod is gone.
func (h *Broadcaster) RemovePod(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uncount(uid)
	if p := h.pods[uid]; p != nil {
		h.store.Remove(podKey(p))
	}
	delete(h.pods, uid)
}

// Configure records the agents' config; nil if it is not known.
func (h *Broadcaster) Configure(c *config.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config = c
}

// Meta is what a viewer gets in addition to nodes and pods.
type Meta struct {
	// Source is cluster or machine.
	Source string `json:"source"`
	// Problems are sentences about what cannot be read.
	Problems []string `json:"problems"`
	// Prometheus is true if measured usage over time is available.
	Prometheus bool `json:"prometheus"`
}

// Describe records what a viewer sees of the source.
func (h *Broadcaster) Describe(m Meta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store.Set("meta/source", m)
}

// Flush makes the changes visible and wakes the viewers.
func (h *Broadcaster) Flush() {
	h.advisor.forget(h.now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.learn()
	for name := range h.changed {
		n := h.nodes[name]
		if n.Live.Report == nil {
			h.store.Remove("node/" + name)
			continue
		}
		seen := model.Seen{Name: name, Closed: n.Live.Closed, Silent: n.Silent, Status: *n.Live.Report, Usage: n.Usage}
		h.store.Set("node/"+name, model.NodeOf(seen, h.typical))
	}
	clear(h.changed)
	if rev := h.store.Rev(); rev != h.flushed { // pods are in the store before a flush
		h.flushed = rev
		close(h.wake)
		h.wake = make(chan struct{})
	}
}

// Since are objects that changed after what the viewer has, and what the viewer has then. Woken is closed at the next
// change; it is nil if there are more objects now. The objects are in the memory of into, if it is large enough.
func (h *Broadcaster) Since(at model.Cursor, into []model.Item) (changed []model.Item, next model.Cursor, reset bool,
	woken <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed, next, reset, more := h.store.Since(at, into)
	if more {
		return changed, next, reset, nil
	}
	return changed, next, reset, h.wake
}

// learn finds the typical requests again, at most once in a while: if they change, so does the fragmentation of each
// GPU. It does so at once if there are twice as many pods, as after the start.
func (h *Broadcaster) learn() {
	l := &h.learned
	if !l.again || len(h.pods) < 2*l.pods && h.now().Sub(l.at) < learnEvery {
		return
	}
	l.again, l.at, l.pods = false, h.now(), len(h.pods)
	if t := l.requests.Typical(); !t.Equal(h.typical) {
		h.typical = t
		for name := range h.nodes {
			h.changed[name] = true
		}
	}
}

// Namespaces are those that have, or had, a pod with a request of Kerf.
func (h *Broadcaster) Namespaces() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.namespaces))
}

// Live is the cluster for a simulation.
func (h *Broadcaster) Live() ([]simulate.LiveNode, []simulate.LivePod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var nodes []simulate.LiveNode
	for _, n := range h.nodes {
		if n.Live.CPU == 0 {
			n.Live.CPU = unboundedCPU
		}
		nodes = append(nodes, n.Live)
	}
	var pods []simulate.LivePod
	for _, p := range h.pods {
		pods = append(pods, simulate.LivePod{Pod: p.Pod, CPU: p.CPU, Memory: p.Memory, Owner: p.Owner, Fixed: p.Fixed})
	}
	return nodes, pods
}

// unboundedCPU is the CPU of a node whose resources cannot be read.
const unboundedCPU = cluster.Milli(1_000_000)

// Config is the config that the source read; nil if it is not known.
func (h *Broadcaster) Config() *config.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.config
}
