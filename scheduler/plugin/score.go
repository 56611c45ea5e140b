// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// PreScore implements fwk.PreScorePlugin: pods that request nothing of Kerf's are scored by others alone. A pod with
// limits and ResourceClaims is scored by its limits.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) != nil {
		return nil
	}
	c := p.claims.begin(ctx, pod)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(claimsKey, c)
	return nil
}

// Score implements fwk.ScorePlugin. NormalizeScore makes of it what the framework takes.
func (p *Plugin) Score(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64,
	*fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		if claims := claimCycleOf(state); claims != nil {
			return p.claims.score(ctx, claims, node), nil
		}
		return 0, nil
	}
	free := freeCPU(node)
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	score := p.core.state.Score(c.want, node.Node().Name, free, p.core.now())
	c.scores[node.Node().Name], c.free[node.Node().Name] = score, free
	return score, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore implements fwk.ScoreExtensions. The best node, of equally good ones the first by name, gets all
// points. The others get at most half, by their distance from the best. So no sum of other plugins' points outweighs
// it, and the framework, which decides ties by chance, never has to. A node without an opinion gets none: other plugins
// decide if Kerf knows nothing of all nodes.
func (*Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod,
	scores fwk.NodeScoreList) *fwk.Status {
	best, least := -1, int64(0)
	for i, s := range scores {
		if s.Score == noOpinion {
			continue
		}
		if best < 0 {
			best, least = i, s.Score
		}
		least = min(least, s.Score)
		if top := scores[best]; s.Score > top.Score || s.Score == top.Score && s.Name < top.Name {
			best = i
		}
	}
	if best < 0 {
		for i := range scores {
			scores[i].Score = 0
		}
		return nil
	}
	most := scores[best].Score
	for i := range scores {
		scores[i].Score = points(scores[i].Score, least, most)
	}
	scores[best].Score = fwk.MaxScore
	return nil
}

// points are those of a node that is not the best.
func points(score, least, most int64) int64 {
	const half = fwk.MaxScore / 2
	switch {
	case score == noOpinion:
		return 0
	case most == least:
		return half
	}
	below := (float64(most) - float64(score)) / (float64(most) - float64(least))
	return half - int64(float64(half)*below)
}

// mostTried bounds the nodes that the other plugins are asked about one by one, before the framework asks about all at
// once.
const mostTried = 64

// choice is the node that PreFilter found to be the best of those that no plugin refuses.
type choice struct {
	scheduler.Candidate
	// room is the number of nodes with room by the cluster state, and next the best of those that no plugin has
	// checked.
	room int
	next *scheduler.Candidate
}

// preFilters is the framework's interface beyond the one for plugins.
type preFilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status,
		sets.Set[string])
}

// choose finds the node that the framework would choose: the best one by score that passes the filters of all plugins.
// It asks the filters for the best nodes alone, one after the other. So a pod costs two or three node checks instead of
// two for each node. It returns nil to leave the choice to the framework. It does so if no node is found soon, with an
// extender, for a gang, and for a nominated pod.
func (p *Plugin) choose(ctx context.Context, state fwk.CycleState, c *cycle, pod *corev1.Pod,
	nodes []fwk.NodeInfo) *choice {
	framework, ok := p.handle.(preFilters)
	if !ok || state.IsPodGroupSchedulingCycle() || pod.Status.NominatedNodeName != "" || len(p.handle.Extenders()) > 0 {
		return nil
	}
	p.core.mu.Lock()
	candidates := p.core.state.Candidates(c.want, freeOf(nodes), p.core.now())
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
	out := choice{Candidate: scheduler.Candidate{Node: nodeName, Score: c.scores[nodeName]},
		room: max(1, len(c.scores))}
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

// gpuNode is what an informer keeps of a GPUNode. The form of the API server, maps of maps, takes several times as much
// memory, which matters in a cluster of many nodes.
type gpuNode struct {
	metav1.ObjectMeta

	// status has the GPUs cordoned that the spec names: at once, and not when the agent has heard of it.
	status gpunode.Status
	// unread and specUnread are why there is no status, and why nothing is cordoned.
	unread, specUnread error
}

// readGPUNode is a cache.TransformFunc. What it makes goes through it again after an interrupted watch, and stays as it
// is.
func readGPUNode(object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	n := &gpuNode{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion()}}
	n.status, n.unread = statusIn(o)
	var spec gpunode.Spec
	if spec, n.specUnread = specIn(o); n.specUnread == nil {
		n.status.Cordon(spec)
	}
	return n, nil
}

// statusIn reads the status. The converter costs less than JSON, and reads only the present form.
func statusIn(o *unstructured.Unstructured) (s gpunode.Status, err error) {
	raw, ok := o.Object["status"].(map[string]any)
	if _, earlier := raw["ready"]; ok && earlier {
		text, err := json.Marshal(raw)
		if err != nil {
			return s, fmt.Errorf("encode its status: %w", err)
		}
		return gpunode.ReadStatus(text) //nolint:wrapcheck // it says what it did
	}
	err = fromMap(o, "status", &s)
	return s, err
}

// specIn reads the spec.
func specIn(o *unstructured.Unstructured) (gpunode.Spec, error) {
	text, err := json.Marshal(o.Object["spec"])
	if err != nil {
		return gpunode.Spec{}, fmt.Errorf("encode its spec: %w", err)
	}
	return gpunode.ReadSpec(text) //nolint:wrapcheck // it says what it did
}

// fromMap reads a field of the object; one that is not there, or null, is empty.
func fromMap(o *unstructured.Unstructured, field string, into any) error {
	raw, ok := o.Object[field].(map[string]any)
	if !ok && o.Object[field] != nil {
		return fmt.Errorf("read its %s: it is a %T", field, o.Object[field])
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into); err != nil {
		return fmt.Errorf("read its %s: %w", field, err)
	}
	return nil
}
