// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mostTried bounds the nodes that the other plugins are asked about one by one, before the framework asks about all at once.
const mostTried = 64

// choice is the node that PreFilter found to be the best of those that no plugin refuses.
type choice struct {
	scheduler.Candidate
	// room is how many nodes have room for the pod by the books, and next the best of those that no plugin was asked about.
	room int
	next *scheduler.Candidate
}

// preFilters is what the framework is, beside what it shows to plugins.
type preFilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// choose finds the node that the framework would choose if it looked at all: the one that the books score highest of those
// that the filters of all plugins let pass. It asks them for the best nodes alone, one after the other, so that a pod costs
// two or three looks at a node and not two at each node of the cluster. nil leaves it to the framework: where no node is
// found soon, so that all are told apart by their reasons; where an extender has a say; for a gang, whose nodes are chosen
// otherwise; and for a pod that is nominated to a node, which the framework looks at first.
func (p *Plugin) choose(ctx context.Context, state fwk.CycleState, c *cycle, pod *corev1.Pod, nodes []fwk.NodeInfo) *choice {
	framework, ok := p.handle.(preFilters)
	if !ok || state.IsPodGroupSchedulingCycle() || pod.Status.NominatedNodeName != "" || len(p.handle.Extenders()) > 0 {
		return nil
	}
	p.core.mu.Lock()
	candidates := p.core.books.Candidates(c.want, freeOf(nodes), p.core.now())
	p.core.mu.Unlock()
	room := len(candidates)
	if room == 0 {
		return nil
	}
	c.trying = true
	then := state.Clone()
	c.trying = false
	only, status, _ := framework.RunPreFilterPlugins(ctx, then, pod)
	if !status.IsSuccess() {
		return nil
	}
	for range mostTried {
		one, ok := candidates.Best()
		if !ok {
			return nil
		}
		info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(one.Node)
		if err != nil || !only.AllNodes() && !only.NodeNames.Has(one.Node) {
			continue
		}
		switch status := p.handle.RunFilterPluginsWithNominatedPods(ctx, then, pod, info); {
		case status.IsSuccess():
			found := &choice{Candidate: one, room: room}
			if next, ok := candidates.Best(); ok {
				found.next = &next
			}
			return found
		case !status.IsRejected():
			return nil
		}
	}
	return nil
}

// chosen is what is known of the node that the pod went to: what PreFilter found, else what the framework had scored.
func (c *cycle) chosen(nodeName string) choice {
	if c.choice != nil && c.choice.Node == nodeName {
		return *c.choice
	}
	out := choice{Candidate: scheduler.Candidate{Node: nodeName, Score: c.scores[nodeName]}, room: max(1, len(c.scores))}
	for name, score := range c.scores {
		one := scheduler.Candidate{Node: name, Score: score}
		if name != nodeName && (out.next == nil || one.Before(*out.next)) {
			out.next = &one
		}
	}
	return out
}

// freeOn is the CPU that the node had free when it was looked at; false for one that was not.
func (c *cycle) freeOn(nodeName string) (cluster.Milli, bool) {
	if c.choice != nil && c.choice.Node == nodeName {
		return c.choice.Free, true
	}
	free, ok := c.free[nodeName]
	return free, ok
}

// freeOf is the nodes with the CPU that each has free.
func freeOf(nodes []fwk.NodeInfo) func(yield func(string, cluster.Milli) bool) {
	return func(yield func(string, cluster.Milli) bool) {
		for _, info := range nodes {
			if !yield(info.Node().Name, freeCPU(info)) {
				return
			}
		}
	}
}

// freeCPU is what the pods of a node leave of its CPU.
func freeCPU(info fwk.NodeInfo) cluster.Milli {
	return cluster.Milli(info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU())
}
