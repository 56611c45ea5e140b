// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createReplicas makes a ReplicaSet, whose controller replaces pods that have failed.
func (e *testCase) createReplicas(name string, n int32, s podSpec) {
	e.Helper()
	labels := map[string]string{"replicas": name}
	s.name, s.restart = name, corev1.RestartPolicyAlways
	object := s.object(e.namespace)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.namespace},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: s.annotations},
				Spec:       object.Spec,
			},
		},
	}
	if _, err := e.client.AppsV1().ReplicaSets(e.namespace).Create(background(), set,
		metav1.CreateOptions{}); err != nil {
		e.Fatalf("create ReplicaSet %s: %v", name, err)
	}
	e.Cleanup(func() { // before end, which waits for the pods
		err := e.client.AppsV1().ReplicaSets(e.namespace).Delete(background(), name, metav1.DeleteOptions{})
		if err != nil {
			e.Errorf("delete ReplicaSet %s: %v", name, err)
		}
	})
}

// replicas waits until n pods of a ReplicaSet run, none of them in a container of the pods but, and returns them.
func (e *testCase) replicas(name string, n int, but ...*pod) []*pod {
	e.Helper()
	var running []*pod
	eventually(e, fmt.Sprintf("%d running pods of ReplicaSet %s", n, name), func() error {
		list, err := e.client.CoreV1().Pods(e.namespace).List(background(),
			metav1.ListOptions{LabelSelector: "replicas=" + name})
		if err != nil {
			return err
		}
		running = nil
		var states []string
		for _, o := range list.Items {
			states = append(states, o.Name+": "+describe(&o))
			old := func(p *pod) bool { return slices.Contains(p.seen, containerID(o.Status.ContainerStatuses[0])) }
			if runs(&o) && !slices.ContainsFunc(but, old) && o.Status.Phase == corev1.PodRunning &&
				o.DeletionTimestamp == nil {
				p := e.known(&o)
				p.seen = append(p.seen, containerID(o.Status.ContainerStatuses[0]))
				running = append(running, p)
			}
		}
		if len(running) != n {
			return fmt.Errorf("there are\n  %s", strings.Join(states, "\n  "))
		}
		return nil
	})
	return running
}

// known is the test's pod of that name, also when a controller has made it.
func (e *testCase) known(o *corev1.Pod) *pod {
	for _, p := range e.pods {
		if p.name == o.Name && p.namespace == o.Namespace {
			return p
		}
	}
	p := &pod{e: e, name: o.Name, namespace: o.Namespace}
	e.pods = append(e.pods, p)
	return p
}

func names(pods []*pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.name)
	}
	return strings.Join(all, " ")
}
