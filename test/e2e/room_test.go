// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crowd is a GPU that parallel tests fill: it is the last that those would be put on.
const crowd = 7

// pinned asks for GiB of one GPU.
func (e *testCase) pinned(name string, gpu, n int, run string) podSpec {
	e.Helper()
	s := one(name, gibs(n), run)
	s.annotations = map[string]string{"kerf.dev/gpu-uuid": e.node.gpus(e.T)[gpu].UUID}
	return s
}

// A pod that is larger than any GPU gets a message with the numbers, and that this node can never grant it. A pod that
// is larger than the node does not come to it.
func TestTooLargeForever(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	gpu := e.create(one("gpu", gibs(100), hold))
	node := e.create(one("node", gibs(700), hold))
	spec := one("over", gibs(400), hold)
	spec.annotations = map[string]string{"kerf.dev/gpu-count": "4"}
	over := e.create(spec)
	gpu.event("FailedCreatePodSandBox", "gpu-memory-gib=100 in container main", "no GPU has 100GiB (largest: 79.1GiB)",
		"request at most 79GiB of each GPU", "this node will never give it", "GPU 0-7", "79.1GiB")
	over.event("FailedCreatePodSandBox", "400GiB over 4 GPUs", "100GiB", "this node will never give it")
	node.event("FailedScheduling", "Insufficient kerf.dev/gpu-memory-gib")
	for _, p := range []*pod{gpu, over, node} {
		if o := p.get(); o.Status.Phase != corev1.PodPending || len(p.seen) > 0 {
			t.Errorf("%s: %s", p.name, describe(o))
		}
		if all := e.grantsOf(p); len(all) > 0 {
			t.Errorf("%s waits and holds %+v", p.name, all)
		}
	}
}

// Pods for which there is no room now wait, say so with the numbers, hold nothing meanwhile, and run when there is
// room, whatever their restart policy.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	holder := e.create(e.pinned("holder", crowd, 60, hold))
	holder.running()
	var waiting []*pod
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyAlways} {
		s := e.pinned("waits-"+strings.ToLower(string(policy)), crowd, 20, hold)
		s.restart = policy
		if policy == corev1.RestartPolicyAlways { // two containers, of which one would fit
			s.containers = append(s.containers, container{name: "second", run: hold, limits: gibs(1)})
		}
		waiting = append(waiting, e.create(s))
	}
	for _, p := range waiting {
		text := p.event("FailedCreatePodSandBox", "not enough free for 20GiB of one GPU",
			"kubelet tries again until enough is free")
		if !strings.Contains(text, fmt.Sprintf("GPU %d", crowd)) || !strings.Contains(text, "20GiB requested") {
			t.Errorf("the event does not tell the numbers: %s", text)
		}
		if o := p.get(); o.Status.Phase != corev1.PodPending || len(p.seen) > 0 {
			t.Errorf("%s", describe(o))
		}
		if all := e.grantsOf(p); len(all) > 0 {
			t.Errorf("%s waits and holds %+v", p.name, all)
		}
	}
	e.wantHeld(holder, "main", share(60*gib, 0))
	holder.delete()
	freed := time.Now()
	for _, p := range waiting {
		p.running()
		t.Logf("%s ran %v after room appeared", p.name, time.Since(freed).Round(100*time.Millisecond))
		e.wantHeld(p, "main", share(20*gib, 0))
	}
	e.wantHeld(waiting[2], "second", share(gib, 0))
}

// Of pods that come at once for what fits twice, two get it. It runs alone: another test's pod on that GPU would
// take part in the race.
func TestRaceForTheLastRoom(t *testing.T) {
	e := beginWithAgent(t)
	const gpu, each = 4, 30
	var pods []*pod
	for i := range 6 {
		pods = append(pods, e.create(e.pinned(fmt.Sprintf("racer-%d", i), gpu, each, hold)))
	}
	var ran []*pod
	eventually(e, "two that run, and four that know why not", func() error {
		ran = nil
		told := 0
		for _, p := range pods {
			o, err := p.fetch()
			if err != nil {
				return err
			}
			texts, err := p.events()
			switch {
			case err != nil:
				return err
			case o.Status.Phase == corev1.PodRunning:
				ran = append(ran, p)
			case strings.Contains(strings.Join(texts, "\n"), "not enough free for 30GiB of one GPU"):
				told++
			}
		}
		if len(ran)+told < len(pods) {
			return fmt.Errorf("%d run, %d are reported", len(ran), told)
		}
		return nil
	})
	if len(ran) != 2 {
		t.Errorf("%d of them run", len(ran))
	}
	for _, p := range ran {
		e.wantHeld(p, "main", share(each*gib, 0))
	}
	var booked uint64
	for _, p := range pods {
		for _, g := range e.grantsOf(p) {
			booked += g.Memory
		}
	}
	if booked != 2*each*gib {
		t.Errorf("%d bytes are booked for all six", booked)
	}
}
