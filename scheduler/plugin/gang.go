// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	// mostDomains bounds the domains in which a gang is tried before it is tried everywhere: each costs as much as a
	// gang.
	mostDomains = 8
	// everywhere is the name of all nodes together.
	everywhere = "all nodes"
)

// preference is what one cycle of a gang knows of its domains: their places in the order of preference, by name.
type preference map[string]int

// Clone implements fwk.StateData.
func (p preference) Clone() fwk.StateData { return p }

// GeneratePlacements implements fwk.PlacementGeneratePlugin. Only one plugin can, so that it keeps to the label that a
// PodGroup may require too. Where none is required it offers the closest domains that have room for the whole gang, and
// all nodes.
func (p *Plugin) GeneratePlacements(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo,
	all *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	key, required := requiredLabel(group)
	levels := p.domains
	if required {
		levels = []string{key}
	}
	wants := wantsOf(ctx, group.GetUnscheduledPods())
	if !required && (len(wants) < 2 || len(levels) == 0 || group.GetCompositePodGroup() != nil) {
		return &fwk.GeneratePlacementsResult{Placements: []*fwk.Placement{all}}, nil
	}
	only, err := domainOf(p.handle.SnapshotSharedLister(), group, key, required)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	placements := map[string]*fwk.Placement{}
	var names []string
	var domains [][]scheduler.Domain
	for _, label := range levels {
		var level []scheduler.Domain
		at := map[string]int{}
		for _, info := range all.Nodes {
			value, ok := info.Node().Labels[label]
			if !ok || only != "" && value != only {
				continue
			}
			name := label + "=" + value
			i, known := at[name]
			if !known {
				i = len(level)
				at[name] = i
				level = append(level, scheduler.Domain{Name: name})
				placements[name] = &fwk.Placement{Name: name}
				names = append(names, name)
			}
			level[i].Nodes = append(level[i].Nodes, info.Node().Name)
			placements[name].Nodes = append(placements[name].Nodes, info)
		}
		domains = append(domains, level)
	}
	p.core.mu.Lock()
	best := p.core.state.Gang(wants, domains, mostDomains, p.core.now())
	p.core.mu.Unlock()
	order, out := preference{}, &fwk.GeneratePlacementsResult{}
	for i, d := range best {
		order[d.Name] = i
		out.Placements = append(out.Placements, placements[d.Name])
	}
	state.Write(stateKey, order)
	if !required {
		whole := *all
		whole.Name = everywhere
		out.Placements = append(out.Placements, &whole)
	} else if len(out.Placements) == 0 {
		// Where none has room each is tried all the same, so that what is said of the gang is said of nodes.
		for _, name := range names {
			out.Placements = append(out.Placements, placements[name])
		}
	}
	return out, nil
}

// ScorePlacement implements fwk.PlacementScorePlugin: the domains in the order of preference, all nodes last.
func (*Plugin) ScorePlacement(_ context.Context, state fwk.PlacementCycleState, _ fwk.PodGroupInfo,
	placement *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	data, err := state.GetPodGroupSchedulingCycle().Read(stateKey)
	if err != nil {
		return 0, nil // it had no choice
	}
	order, _ := data.(preference)
	if i, ok := order[placement.Name]; ok {
		return fwk.MaxScore - int64(i), nil
	}
	return 0, nil
}

// PlacementScoreExtensions implements fwk.PlacementScorePlugin: there is nothing to normalise.
func (*Plugin) PlacementScoreExtensions() fwk.PlacementScoreExtensions { return nil }

// PodGroupPostFilter implements fwk.PodGroupPostFilterPlugin: it makes less important pods give way to a gang, or says
// in one line what that waits for.
func (p *Plugin) PodGroupPostFilter(ctx context.Context, _ fwk.PodGroupCycleState, group fwk.PodGroupInfo,
	schedule fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	wants := wantsOf(ctx, group.GetUnscheduledPods())
	if len(wants) == 0 || p.core.ready() != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.core.mu.Lock()
	text := p.core.state.ExplainGang(wants, p.core.now())
	p.core.mu.Unlock()
	if text == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	result, status := p.preemptor.preemptGang(ctx, group, wants, schedule)
	switch {
	case status.IsSuccess():
		return result, fwk.NewStatus(fwk.Success, text)
	case status.Code() == fwk.Error:
		return nil, status
	}
	// No preemption would help, so other plugins need not search, and none is reported instead of this.
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text)
}

// wantsOf are the requests of those pods that request something of Kerf. Errors are reported where each pod is
// evaluated alone.
func wantsOf(ctx context.Context, pods []*corev1.Pod) []scheduler.PodRequest {
	var out []scheduler.PodRequest
	for _, pod := range pods {
		switch w, ok, err := wantOf(pod); {
		case err != nil:
			klog.FromContext(ctx).V(4).Info("pod of a gang had an invalid request", "pod", klog.KObj(pod), "err", err)
		case ok:
			out = append(out, w)
		}
	}
	return out
}

// requiredLabel is the label of which the nodes of a group must have one value.
func requiredLabel(group fwk.PodGroupInfo) (string, bool) {
	if g := group.GetPodGroup(); g != nil {
		if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
			return c.Topology[0].Key, true
		}
	} else if g := group.GetCompositePodGroup(); g != nil {
		if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
			return c.Topology[0].Key, true
		}
	}
	return "", false
}

// domainOf is the value of the required label that the group's pods that run already have; empty where there are none.
func domainOf(lister fwk.SharedLister, group fwk.PodGroupInfo, label string, required bool) (string, error) {
	if !required {
		return "", nil
	}
	for _, child := range group.GetChildren() {
		if value, err := domainOf(lister, child, label, true); value != "" || err != nil {
			return value, err
		}
	}
	if group.GetPodGroup() == nil {
		return "", nil
	}
	state, err := lister.PodGroupStates().Get(group.GetNamespace(), group.GetName())
	if err != nil {
		return "", fmt.Errorf("look up group %s/%s: %w", group.GetNamespace(), group.GetName(), err)
	}
	running := state.ScheduledPods()
	if len(running) == 0 {
		return "", nil
	}
	pod := running[0] // they were all put into one domain
	info, err := lister.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return "", fmt.Errorf("look up the node of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	value, ok := info.Node().Labels[label]
	if !ok {
		return "", fmt.Errorf("node %q of pod %s/%s has no label %q, which its group requires", pod.Spec.NodeName,
			pod.Namespace, pod.Name, label)
	}
	return value, nil
}
