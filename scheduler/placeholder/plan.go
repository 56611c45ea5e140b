// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package placeholder asks a node autoscaler for nodes that it would not add by itself.
//
// Karpenter and cluster-autoscaler add up what a node offers. If a pod fits the total of a node and no single GPU of
// it, they see room and add no node. For such a pod there is a placeholder: a pod with the same requests that excludes
// these nodes. No scheduler places it. It is deleted just before its pod gets a node, and when the
// pod is gone.
//
// A placeholder excludes nodes by anti-affinity to the pods of kerf-agent there, which get a label for it. Karpenter
// accepts neither the names nor the host names of nodes in a pod's affinity.
//
// It promises at most one placeholder for each pod. A new node is excluded only after its agent has reported GPUs that
// have no room for the pod. So one pod brings one node at a time.
package placeholder

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// labelFor, of a placeholder of kerf-scheduler: the UID of its pod.
	labelFor = sharing.Domain + "/placeholder-for"
	// annotationFor, of a placeholder of kerf-scheduler: NAMESPACE/NAME of its pod.
	annotationFor = sharing.Domain + "/placeholder-for-pod"
	// excludes, and the UID of a pod, is the label of agents on nodes that the placeholder of this pod excludes.
	excludes = "placeholder." + sharing.Domain + "/"
	// scheduler is the schedulerName of placeholders. There is none of this name.
	scheduler = "kerf-placeholder"
	// image is never pulled.
	image = "registry.k8s.io/pause:3.10"
)

// Need is a pod. An autoscaler adds no node for it by itself, because these nodes have enough free in total.
type Need struct {
	Pod   *corev1.Pod
	Nodes []string
}

// steps are what is to be done at the API server.
type steps struct {
	// create are placeholders, each with the pod that it is for.
	create []creation
	// remove are placeholders of pods that need none any more.
	remove []*corev1.Pod
	// mark and unmark are labels that agents get and lose.
	mark, unmark []mark
}

type creation struct{ placeholder, of *corev1.Pod }

type mark struct {
	agent *corev1.Pod
	label string
}

// plan compares what is needed with what there is. The pods are those of the agents' namespace. done says that a pod
// needs no node any more.
func plan(pods []*corev1.Pod, needs []Need, done, isAgent func(*corev1.Pod) bool) steps {
	var out steps
	present, wanted := map[types.UID]bool{}, map[string]bool{}
	for _, p := range pods {
		uid := p.Labels[labelFor]
		if uid == "" {
			continue
		}
		if done(p) {
			out.remove = append(out.remove, p)
			continue
		}
		wanted[excludes+uid] = true
		present[types.UID(uid)] = isUnschedulable(p)
	}
	for _, n := range needs {
		label := excludes + string(n.Pod.UID)
		wanted[label] = true
		for _, p := range pods {
			if _, has := p.Labels[label]; !has && isAgent(p) && slices.Contains(n.Nodes, p.Spec.NodeName) {
				out.mark = append(out.mark, mark{p, label})
			}
		}
		if !present[n.Pod.UID] {
			out.create = append(out.create, creation{placeholderOf(n.Pod), n.Pod})
		}
	}
	for _, p := range pods {
		for _, label := range slices.Sorted(maps.Keys(p.Labels)) {
			if isAgent(p) && len(label) > len(excludes) && label[:len(excludes)] == excludes && !wanted[label] {
				out.unmark = append(out.unmark, mark{p, label})
			}
		}
	}
	return out
}

// isUnschedulable reports whether the pod has the status that an autoscaler looks for. A placeholder without it is
// created again, which sets it.
func isUnschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
}

// nameOf is the name of a pod's placeholder.
func nameOf(p *corev1.Pod) string { return "placeholder-" + string(p.UID) }

// placeholderOf asks for what the pod requests, on nodes without a marked agent.
func placeholderOf(p *corev1.Pod) *corev1.Pod {
	uid := string(p.UID)
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(p), Labels: map[string]string{labelFor: uid},
			Annotations: map[string]string{annotationFor: p.Namespace + "/" + p.Name}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, NodeSelector: p.Spec.NodeSelector, Tolerations: p.Spec.Tolerations,
			InitContainers: containersOf(p.Spec.InitContainers), Containers: containersOf(p.Spec.Containers),
			AutomountServiceAccountToken:  new(bool),
			TerminationGracePeriodSeconds: new(int64),
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: excludes + uid, Operator: metav1.LabelSelectorOpExists}}},
				}}}},
		},
	}
	if a := p.Spec.Affinity; a != nil {
		out.Spec.Affinity.NodeAffinity = a.NodeAffinity
	}
	return out
}

// containersOf are containers with the same requests and nothing else.
func containersOf(of []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range of {
		out = append(out, corev1.Container{Name: c.Name, Image: image, Resources: c.Resources,
			RestartPolicy: c.RestartPolicy})
	}
	return out
}
