// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Eight pods of one group start together or not at all: while one GPU is taken none of them is bound, and when it is free
// again all are, each on a GPU of its own.
func TestSchedulerGang(t *testing.T) {
	e := withScheduler(t)
	group := "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: gang, namespace: " + e.namespace + "}\n" +
		"spec: {schedulingPolicy: {gang: {minCount: 8}}}\n"
	if err := e.apply(group); err != nil {
		t.Fatal(err)
	}
	first := e.create(byKerf(one("first", gibs(60), hold)))
	first.running()
	var gang []*pod
	for i := range 8 {
		gang = append(gang, e.create(byKerf(podSpec{name: fmt.Sprint("member", i), containers: []container{{run: hold, limits: gibs(60)}}, edit: func(p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
		}})))
	}
	gang[0].event("FailedScheduling", "8 pods need room at once, and there is room for 7 of them")
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
	if out := e.kubectl("", "get", "podgroup", "gang", "-n", e.namespace, "-o", "jsonpath={.status.conditions}").out; !strings.Contains(out, `"status":"True"`) {
		t.Errorf("conditions of the group: %s", out)
	}
}
