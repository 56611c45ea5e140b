// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// stateKey is where a scheduling cycle keeps what PreFilter found.
const stateKey fwk.StateKey = Name

// cycle is what a scheduling cycle knows of its pod.
type cycle struct {
	want scheduler.PodRequest
	// ifs are the changes that the framework has thought of, by node.
	ifs map[string]scheduler.WhatIf
	// scores are those of the nodes that have room; the framework asks for none where there is only one.
	scores map[string]int64
	// free is the CPU that the nodes of scores have.
	free map[string]cluster.Milli
	// terms are what the score of the node is made of that the pod is reserved on.
	terms []cluster.Term
	// plan is there from Reserve on.
	plan []scheduler.Planned
	// choice is the node that PreFilter has chosen; nil where the framework looks at all nodes.
	choice *choice
	// trying is true in the state in which PreFilter asks the other plugins.
	trying bool
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData {
	out := *c
	out.ifs = make(map[string]scheduler.WhatIf, len(c.ifs))
	for name, change := range c.ifs {
		out.ifs[name] = scheduler.WhatIf{Without: slices.Clone(change.Without), With: slices.Clone(change.With)}
	}
	return &out
}

// cycleOf is nil for a pod that requests nothing of Kerf's.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// noGangs is why a pod of a PodGroup waits if gangs are disabled. Placed alone it would occupy a GPU and wait for its
// gang.
const noGangs = "the pod is in PodGroup %q, and kerf-scheduler has gangs disabled; gangs need Kubernetes 1.37 and " +
	"--feature-gates=GenericWorkload=true of API server and kerf-scheduler"

// PreFilter implements fwk.PreFilterPlugin. If the node of the pod is known at once, only that node remains.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if c := cycleOf(state); c != nil && c.trying {
		return nil, nil
	}
	w, ok, err := wantOf(pod)
	switch {
	case err != nil:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, oneLineErrors(err))
	case !ok:
		p.claims.learn(pod)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if group := groupName(pod); group != "" && !p.gangs {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(noGangs, group))
	}
	if err := p.core.ready(); err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.core.mu.Lock()
	p.core.state.Learn(w)
	if state.IsPodGroupSchedulingCycle() {
		// Nothing is reported here for a pod of a gang: it waits until it is finally reserved.
		p.core.waiting.add(waiting{pod: pod, want: w, gang: true, activate: activateBy(p.handle)}, nil)
	}
	p.core.mu.Unlock()
	c := &cycle{want: w, ifs: map[string]scheduler.WhatIf{}, scores: map[string]int64{},
		free: map[string]cluster.Milli{}}
	state.Write(stateKey, c)
	if c.choice = p.choose(ctx, state, c, pod, nodes); c.choice == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(c.choice.Node)}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod implements fwk.PreFilterExtensions: a pod that is nominated to a node is thought to be there, and one that was
// thought away is back.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	w, ok, err := wantOf(added.GetPod())
	if c == nil || !ok || err != nil {
		return nil
	}
	change := c.ifs[node.Node().Name]
	if i := slices.Index(change.Without, w.UID); i >= 0 {
		change.Without = slices.Delete(change.Without, i, i+1)
	} else if !p.core.holds(w.UID) {
		change.With = append(change.With, w)
	}
	c.ifs[node.Node().Name] = change
	return nil
}

// RemovePod implements fwk.PreFilterExtensions.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, removed fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	uid, change := string(removed.GetPod().UID), c.ifs[node.Node().Name]
	if i := slices.IndexFunc(change.With, func(w scheduler.PodRequest) bool { return w.UID == uid }); i >= 0 {
		change.With = slices.Delete(change.With, i, i+1)
	} else {
		change.Without = append(change.Without, uid)
	}
	c.ifs[node.Node().Name] = change
	return nil
}

func (c *core) holds(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.HasPod(uid)
}

// Filter implements fwk.FilterPlugin.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	name := node.Node().Name
	p.core.mu.Lock()
	v := p.core.state.FitIf(c.want, name, c.ifs[name], p.core.now())
	p.core.mu.Unlock()
	switch {
	case v.Reason == scheduler.Fits:
		return nil
	case v.Reason.IsPending():
		return fwk.NewStatus(fwk.Unschedulable, v.Reason.String())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, v.Reason.String())
}

// PostFilter implements fwk.PostFilterPlugin: it makes less important pods give way, or says in one line what the pod
// waits for.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := cycleOf(state)
	if c == nil { // another plugin refused it before this one saw it, or it is none of ours
		p.core.heard(pod.UID)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if c.choice != nil { // its node changed after it was chosen, and no other one was looked at
		activateBy(p.handle)(map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
		return nil, fwk.NewStatus(fwk.Unschedulable, "node "+c.choice.Node+" was chosen and has changed")
	}
	text := p.wait(c, pod)
	if node := p.preemptor.preempt(ctx, state, c, pod, statuses); node != "" {
		return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: node,
			NominatingMode: fwk.ModeOverride}}, nil
	}
	if text == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, text)
}

// wait has the pod tried again when there is room, and says what it waits for.
func (p *Plugin) wait(c *cycle, pod *corev1.Pod) string {
	p.core.mu.Lock()
	text := p.core.state.Explain(c.want, p.core.now())
	p.core.waiting.add(waiting{pod: pod, want: c.want, activate: activateBy(p.handle)},
		p.core.state.Fitting(c.want, p.core.now()))
	p.core.mu.Unlock()
	p.core.tryNext()
	return text
}
