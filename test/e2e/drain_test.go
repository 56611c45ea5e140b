// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// unschedulable cordons the node, or uncordons it.
func (e *testCase) unschedulable(on bool) {
	e.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on)
	if _, err := e.client.CoreV1().Nodes().Patch(background(), e.node.env["NODE_NAME"], types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		e.Fatalf("set unschedulable to %t: %v", on, err)
	}
}

// A drain evicts the pods and leaves the agent. Until then they keep their caps, and no pod gets what they had before
// the node is uncordoned.
func TestDrain(t *testing.T) {
	e := beginWithAgent(t)
	first := e.create(one("first", gibs(8), hold))
	first.running()
	before, agent := e.heldBy(first), e.agentPIDs()
	t.Cleanup(func() { e.unschedulable(false) })
	e.unschedulable(true)
	second := e.create(one("second", gibs(8), hold))
	second.event("unschedulable")
	e.wantSame(before, first)
	e.neverUncapped(first)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: first.name, Namespace: e.namespace}}
	if err := e.client.PolicyV1().Evictions(e.namespace).Evict(background(), eviction); err != nil {
		t.Fatal(err)
	}
	eventually(e, "the end of the evicted pod", first.goneError)
	first.released()
	if now := e.agentPIDs(); !slices.Equal(now, agent) || len(agent) == 0 {
		t.Errorf("the agent has processes %v, before the drain %v", now, agent)
	}
	if o := second.get(); runs(o) {
		t.Errorf("it runs on a cordoned node: %s", describe(o))
	}
	e.unschedulable(false)
	second.running()
	e.wantHeld(second, "main", share(8*gib, 0))
}
