// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/advise"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const (
	// adviceTime is how long a cluster state counts for further advice. To make it takes long in a large cluster.
	adviceTime = 30 * time.Second
	// heardFor is how long a report counts in a cluster state. It is longer than adviceTime.
	heardFor = time.Hour
)

// advisor has the cluster state for advice. It has a lock that the stream never waits for: advice takes seconds in a
// large cluster.
type advisor struct {
	mu sync.Mutex
	// cluster was made at a time; nil if there is none.
	cluster *advise.Cluster
	at      time.Time
}

// forget frees the memory of an old cluster state.
func (a *advisor) forget(now time.Time) {
	if !a.mu.TryLock() {
		return // it is in use
	}
	defer a.mu.Unlock()
	if now.Sub(a.at) >= adviceTime {
		a.cluster = nil
	}
}

// Advice is the advice for a pending pod. It is false if there is no such pod that the scope sees. The cluster state
// behind it can be adviceTime old.
func (h *Broadcaster) Advice(uid string, scope model.Scope) (advise.Advice, bool, error) {
	h.mu.Lock()
	p, ok := h.pods[uid]
	h.mu.Unlock()
	if !ok || !scope.Sees(p.Namespace) {
		return advise.Advice{}, false, nil
	}
	h.advisor.mu.Lock()
	defer h.advisor.mu.Unlock()
	now := h.now()
	if h.advisor.cluster == nil || now.Sub(h.advisor.at) >= adviceTime {
		nodes, pods, c := h.snapshot()
		h.advisor.cluster, h.advisor.at = clusterOf(nodes, pods, c, now), now
	}
	a, err := h.advisor.cluster.Pod(*p, scope.Sees, now)
	a.Reason = scope.Text(a.Reason)
	return a, true, err
}

// snapshot is what the hub knows now. What its maps refer to does not change.
func (h *Broadcaster) snapshot() (map[string]Node, map[string]*model.SeenPod, *config.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.nodes), maps.Clone(h.pods), h.config
}

// clusterOf makes the cluster state of nodes and pods. The report of a node whose agent is away counts for nothing; one
// that did not change for long counts if the agent is there.
func clusterOf(nodes map[string]Node, pods map[string]*model.SeenPod, c *config.Config, now time.Time) *advise.Cluster {
	out := &advise.Cluster{State: scheduler.New(), Config: c, Nodes: map[string]simulate.LiveNode{}, Pods: pods}
	if c != nil {
		out.State.Configure(*c)
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		out.State.Machine(name, scheduler.Machine{CPU: n.Live.CPU, Memory: n.Live.Memory,
			Allocatable: n.Live.Allocatable})
		if n.Live.Report == nil {
			continue
		}
		out.Nodes[name] = n.Live
		out.State.Report(name, *n.Live.Report)
		if !n.Silent {
			out.State.Heartbeat(name, now, heardFor, now)
		}
	}
	var same alike
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		w, ok, err := scheduler.PodRequestOf(p.Pod)
		if !ok || err != nil {
			continue
		}
		w.CPU, w.Memory = p.CPU, p.Memory
		out.State.Pod(p.Pod, same.want(w), now)
	}
	return out
}
