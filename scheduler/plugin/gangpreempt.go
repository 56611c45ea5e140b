// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// preemptGang preempts less important pods for a gang, all of which then fits, and returns where its pods will be;
// nil if that is impossible. All plugins check the result before any pod ends.
func (p *preemptor) preemptGang(ctx context.Context, group fwk.PodGroupInfo, wants []scheduler.PodRequest,
	schedule fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	no := fwk.NewStatus(fwk.Unschedulable)
	gang := group.GetUnscheduledPods()
	if schedule == nil || slices.ContainsFunc(gang, func(pod *corev1.Pod) bool {
		return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	}) {
		return nil, no
	}
	all, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if g := group.GetPodGroup(); g != nil && g.Spec.Priority != nil {
		for i := range wants {
			wants[i].Priority = *g.Spec.Priority
		}
	}
	pods := map[string]*corev1.Pod{}
	var names, going []string
	var candidates []scheduler.Victim
	for _, info := range all {
		if !admits(ctx, info.Node(), gang) {
			continue
		}
		names = append(names, info.Node().Name)
		for _, other := range info.GetPods() {
			v := p.victim(ctx, other.GetPod())
			// One of another gang goes only where there is no other way: the rest of its gang may be of no use then.
			v.Protected = v.Protected || other.GetPod().Spec.SchedulingGroup != nil
			pods[v.UID], candidates = other.GetPod(), append(candidates, v)
			if other.GetPod().DeletionTimestamp != nil {
				going = append(going, v.UID)
			}
		}
	}
	slices.Sort(names)
	p.core.mu.Lock()
	victims, coming := p.core.state.GangVictims(wants, names, candidates, going, p.core.now())
	p.core.mu.Unlock()
	if coming {
		return &fwk.PodGroupPostFilterResult{NominatingInfos: nominated(gang)},
			fwk.NewStatus(fwk.Success, "pods are giving way")
	}
	if len(victims) == 0 {
		return nil, no
	}
	leave := make([]*corev1.Pod, len(victims))
	for i, v := range victims {
		leave[i] = pods[v.UID]
	}
	places, status := p.tryWithout(ctx, leave, going, schedule)
	if !status.IsSuccess() {
		return nil, status
	}
	for _, victim := range leave {
		if err := p.evict(ctx, gang[0], victim, victim.Spec.NodeName); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	return &fwk.PodGroupPostFilterResult{NominatingInfos: places}, fwk.NewStatus(fwk.Success, "pods are giving way")
}

// tryWithout has the whole gang scheduled as if the pods were gone, and changes nothing: the nodes of its pods.
func (p *preemptor) tryWithout(ctx context.Context, leave []*corev1.Pod, going []string,
	schedule fwk.PodGroupSchedulingFunc) (places map[types.NamespacedName]*fwk.NominatingInfo, status *fwk.Status) {
	snapshot := p.handle.MutableSnapshotSharedLister()
	if err := snapshot.StartMutations(); err != nil {
		return nil, fwk.AsStatus(err)
	}
	think := func(uids []string) {
		p.core.mu.Lock()
		p.core.state.Without(uids)
		p.core.mu.Unlock()
	}
	defer func() {
		think(nil)
		if err := snapshot.EndMutations(); err != nil {
			status = fwk.AsStatus(err)
		}
	}()
	away := slices.Clone(going)
	for _, pod := range leave {
		away = append(away, string(pod.UID))
		if err := snapshot.RemovePod(klog.FromContext(ctx), pod, pod.Spec.NodeName); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	think(away)
	found, status := schedule(ctx)
	if !status.IsSuccess() {
		return nil, status
	}
	places = map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, a := range found.ProposedAssignments {
		if pod := a.GetPod(); a.GetNodeName() != "" {
			places[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = &fwk.NominatingInfo{
				NominatedNodeName: a.GetNodeName(), NominatingMode: fwk.ModeOverride}
		}
	}
	return places, nil
}

// nominated are the nodes that a gang's pods were promised before.
func nominated(gang []*corev1.Pod) map[types.NamespacedName]*fwk.NominatingInfo {
	out := map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, pod := range gang {
		if node := pod.Status.NominatedNodeName; node != "" {
			out[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = &fwk.NominatingInfo{
				NominatedNodeName: node, NominatingMode: fwk.ModeOverride}
		}
	}
	return out
}

// admits is true for a node whose labels and taints admit every pod of the gang, so that no pod is preempted in vain.
// The trial of the gang finds other obstacles.
func admits(ctx context.Context, node *corev1.Node, gang []*corev1.Pod) bool {
	for _, pod := range gang {
		if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
			return false
		}
		for i := range node.Spec.Taints {
			taint := &node.Spec.Taints[i]
			if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations,
				func(t corev1.Toleration) bool {
					return t.ToleratesTaint(klog.FromContext(ctx), taint, false)
				}) {
				return false
			}
		}
	}
	return true
}
