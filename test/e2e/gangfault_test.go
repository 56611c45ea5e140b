// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A gang that has lost a pod to a faulty GPU ends on all its nodes: its agent ends the pod, and kerf-scheduler the
// others, which no agent may. A gang that is large enough without it goes on, and so does who is in none.
func TestSchedulerGangFault(t *testing.T) {
	e := withGangs(t)
	h := e.hollowNodes(2, 2)
	h.by = schedulerName
	e.withHealth("{onFault: evict, gracePeriod: 1s}")
	e.variant("evict-over-cap.yaml")
	for name, least := range map[string]int{"train": 3, "elastic": 2} {
		if err := e.apply(fmt.Sprintf("apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: %s, "+
			"namespace: %s}\n"+
			"spec: {schedulingPolicy: {gang: {minCount: %d}}}\n", name, e.namespace, least)); err != nil {
			t.Fatal(err)
		}
	}
	gpu := e.node.gpus(t)[4]
	gang := func(name string) (here *pod, there []*pod) {
		in := func(i int, edit func(*corev1.Pod)) podSpec {
			s := one(fmt.Sprintf("%s-%d", name, i), gibs(10), hold)
			s.edit = func(p *corev1.Pod) {
				edit(p)
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			}
			return s
		}
		first := byKerf(in(0, func(*corev1.Pod) {}))
		first.annotations = map[string]string{"kerf.dev/gpu-uuid": gpu.UUID}
		here = e.create(first)
		for i := range 2 {
			there = append(there, e.create(in(i+1, func(p *corev1.Pod) { h.confine(p, i) })))
		}
		return here, there
	}
	train, trains := gang("train")
	elastic, elastics := gang("elastic")
	alone := h.pod("alone", gibs(10), 0)
	train.running()
	elastic.running()
	for _, p := range append(append([]*pod{alone}, trains...), elastics...) {
		h.where(p)
	}
	t.Cleanup(func() { e.resetGPU(4) })
	began := time.Now()
	e.node.set(t, "gpu=4 xid=48")
	for _, p := range append([]*pod{train, elastic}, trains...) {
		eventually(e, "end of "+p.name, p.goneError)
	}
	t.Logf("the gang had ended %v after the fault, with a grace of 1s", time.Since(began).Round(10*time.Millisecond))
	for _, p := range trains {
		p.event("GangMemberFailed", "its gang train",
			"GPU of node "+e.node.env["NODE_NAME"]+" ended pod train-0", "XID 48")
	}
	for _, p := range append([]*pod{alone}, elastics...) {
		if o := p.get(); o.DeletionTimestamp != nil {
			t.Errorf("%s was ended, too", p.name)
		}
	}
}
