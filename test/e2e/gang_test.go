// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withGangs is withScheduler on an API server with PodGroups.
func withGangs(t *testing.T) *testCase {
	t.Helper()
	e := withScheduler(t)
	if !e.serves("scheduling.k8s.io/v1beta1", "PodGroup") {
		t.Skip("gangs need Kubernetes 1.37: the API server does not serve PodGroup of scheduling.k8s.io/v1beta1")
	}
	return e
}

// serves reports whether the API server serves a kind.
func (e *testCase) serves(groupVersion, kind string) bool {
	e.Helper()
	list, err := e.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	if apierrors.IsNotFound(err) {
		return false
	}
	if err != nil {
		e.Fatal(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
}

// Eight pods of one group start together or not at all. While another pod has one GPU, none of them is bound. When that
// GPU is free again, all are bound, each on its own GPU.
func TestSchedulerGang(t *testing.T) {
	e := withGangs(t)
	first := e.create(byKerf(one("first", gibs(60), hold)))
	first.running()
	gang := e.gang(8, "")
	gang[0].event("FailedScheduling", "8 pods must fit at once, and 7 of them fit")
	for _, p := range gang {
		if o, err := p.fetch(); err != nil || o.Spec.NodeName != "" {
			t.Errorf("pod %s of a gang without room is on node %q: %v", p.name, o.Spec.NodeName, err)
		}
	}
	first.delete()
	used := map[string]bool{}
	for _, p := range gang {
		used[e.asPlanned(p)] = true
	}
	if len(used) != 8 {
		t.Errorf("they are on %d GPUs", len(used))
	}
	if out := e.kubectl("", "get", "podgroup", "gang", "-n", e.namespace, "-o",
		"jsonpath={.status.conditions}").out; !strings.Contains(out, `"status":"True"`) {
		t.Errorf("conditions of the group: %s", out)
	}
}

// gang makes a group of so many pods of 60 GiB each, which are placed all or none. The priority class is that of the
// group too: without one it would have none, whatever its pods have.
func (e *testCase) gang(pods int, class string) []*pod {
	e.Helper()
	group := "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: gang, namespace: " + e.namespace +
		"}\n" +
		fmt.Sprintf("spec: {priorityClassName: %q, schedulingPolicy: {gang: {minCount: %d}}}\n", class, pods)
	if err := e.apply(group); err != nil {
		e.Fatal(err)
	}
	var all []*pod
	for i := range pods {
		all = append(all, e.create(byKerf(podSpec{name: fmt.Sprint("member", i),
			containers: []container{{run: hold, limits: gibs(60)}}, edit: func(p *corev1.Pod) {
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
				p.Spec.PriorityClassName = class
			}})))
	}
	return all
}

// A gang that matters more takes the place of as few pods as it has pods itself, and of none that lie two on a GPU; the
// others run on.
func TestSchedulerGangPreempts(t *testing.T) {
	const single, members = 6, 3
	e := withGangs(t)
	important := e.importance()
	var low, pairs []*pod
	for i := range single { // GPUs with one pod each
		low = append(low, e.create(byKerf(one(fmt.Sprint("low", i), gibs(45), hold))))
	}
	for _, p := range low {
		p.running()
	}
	for i := range 2 * (8 - single) { // and with two each
		pairs = append(pairs, e.create(byKerf(one(fmt.Sprint("pair", i), gibs(35), hold))))
	}
	used := map[string]int{}
	for _, p := range pairs {
		used[e.asPlanned(p)]++
	}
	if len(used) != 8-single {
		t.Fatalf("the pairs lie on %v", used)
	}
	on := map[string]*pod{}
	for _, p := range low {
		on[e.asPlanned(p)] = p
	}
	gang := e.gang(members, important)
	for _, p := range gang {
		gpu := e.asPlanned(p)
		if on[gpu] == nil {
			t.Errorf("pod %s of the gang took GPU %s, where two had to give way or another one of the gang is", p.name,
				gpu)
		}
		delete(on, gpu)
	}
	if gone := gaveWay(low); len(gone) != members {
		t.Errorf("%q gave way, want %d of them", gone, members)
	}
	if gone := gaveWay(pairs); len(gone) != 0 {
		t.Errorf("%q gave way", gone)
	}
	for _, p := range on { // those whose GPU is still free
		if o := p.running(); o.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was started again", p.name)
		}
	}
}
