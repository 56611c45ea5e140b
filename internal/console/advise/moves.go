// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/state"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// moves finds the cheapest moves of running pods that let the pod fit. Only pods that a controller replaces, and that
// the viewer may see, move. It does not know disruption budgets and namespaces, which kerf defrag respects.
func (c Cluster) moves(p model.SeenPod, w scheduler.PodRequest, sees func(string) bool, now time.Time) (Change, bool) {
	in := state.Input{State: c.State, Free: c.free(), Rules: state.Rules{Any: true},
		Limits: defrag.Limits{Single: true}, Now: now,
		Pods: []state.Pod{{Pod: p.Pod, Request: w}}}
	for _, uid := range slices.Sorted(maps.Keys(c.Pods)) {
		seen := c.Pods[uid]
		want, ok, err := scheduler.PodRequestOf(seen.Pod)
		if uid == p.UID || seen.Node == "" || !ok || err != nil {
			continue
		}
		want.CPU, want.Memory = seen.CPU, seen.Memory
		in.Pods = append(in.Pods, state.Pod{Pod: seen.Pod, Request: want, Owner: seen.Owner, Started: seen.Since,
			Fixed: seen.Fixed || !sees(seen.Namespace)})
	}
	b := state.New(in)
	plan := b.Make()
	if len(plan.Steps) == 0 {
		return Change{}, false
	}
	var all []string
	for _, m := range plan.Steps[0].Moves {
		all = append(all, fmt.Sprintf("pod %s from %s to %s", b.Pods[m.Pod].String(), b.Text(m.From), b.Text(m.To)))
	}
	return Change{Kind: Move, Node: b.Problem.Nodes[plan.Steps[0].Fits[0].To.Node].Name,
		Text: "Move " + strings.Join(all, ", ") + "."}, true
}

// free is what the machines have free in addition to GPUs.
func (c Cluster) free() map[string]scheduler.Free {
	out := map[string]scheduler.Free{}
	for name, n := range c.Nodes {
		out[name] = scheduler.Free{CPU: n.CPU, Memory: n.Memory, Closed: n.Closed}
	}
	for _, p := range c.Pods {
		if f, ok := out[p.Node]; ok {
			f.CPU, f.Memory = f.CPU-p.CPU, f.Memory.SubFloor(p.Memory)
			out[p.Node] = f
		}
	}
	return out
}
