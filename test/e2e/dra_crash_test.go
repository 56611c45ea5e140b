// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An agent that is killed at each step of NodePrepareResources delays the pod. It then runs with its cap, and what ran
// before keeps its own. A pod that is deleted while its claim is prepared or unprepared leaves nothing. So does one
// that is deleted while it starts.
func TestDRACrashes(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("small", "10Gi", gpu.UUID)
	bystander := e.create(byClaim("bystander", "small", "exec gpuload --json --alloc 9GiB --hold 1h"))
	bystander.running()
	before := e.heldBy(bystander)
	e.takeFailpoints()
	for _, point := range []string{"claim-after-reserve", "claim-after-record", "claim-after-spec"} {
		e.startWithFailpoints(point + "=1*exit")
		armed := e.agentInstances()
		p := e.create(byClaim(point, "small", "exec gpuload --json --alloc 4GiB --hold 1h"))
		p.running()
		e.wantHeld(p, "main", share(10*gib, 0))
		if e.agentInstances() == armed {
			t.Errorf("%s: the agent was not killed", point)
		}
		e.wantSame(before, bystander)
		p.delete()
		p.released()
	}
	p := e.create(byClaim("ends", "small", hold))
	p.running()
	e.startWithFailpoints("unclaim-after-record=1*exit")
	p.delete()
	p.released()
	e.startWithFailpoints("claim-after-record=1*exit")
	gone := e.create(byClaim("gone", "small", hold))
	gone.delete()
	gone.released()
	bystander.running()
	e.wantSame(before, bystander)
}

// Pods with claims survive a power loss with the agent in a DaemonSet: kubelet asks again until the agent prepares the
// claims. Each has the cap that it had. A pod that may not start again releases its share.
func TestDRAReboot(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("small", "10Gi", gpu.UUID)
	spec := byClaim("always", "small", "exec gpuload --json --alloc 9GiB --hold 1h")
	spec.restart = corev1.RestartPolicyAlways
	always, never := e.create(spec), e.create(byClaim("never", "small", hold))
	always.running()
	never.running()
	before := always.id("main")
	if r := <-e.powerCut(); r.err != nil {
		t.Fatalf("node.sh up: %v", r)
	}
	e.waitForSlices(8)
	always.anotherInstance(before)
	if l := always.loads("main", 1)[0]; l.Error != nil || l.Allocated != 9*gib || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("after the reboot: %v", l)
	}
	e.wantHeld(always, "main", share(10*gib, 0))
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
	never.phase(corev1.PodFailed)
	never.released()
}
