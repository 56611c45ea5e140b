// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// backsOff waits until a container that has ended so often waits to be started again.
func (p *pod) backsOff(restarts int32) {
	p.e.Helper()
	p.until("back-off", func(o *corev1.Pod) error {
		for _, s := range o.Status.ContainerStatuses {
			if s.RestartCount >= restarts && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(o))
	})
}

// crash ends the program of the pod's one container, which waits for that, and returns when it runs again (true) or
// when kubelet waits with its next start (false). ids are its instances so far, the last one first.
func (p *pod) crash(ids []string) bool {
	p.e.Helper()
	p.tell("main")
	again := false
	p.until("crash", func(o *corev1.Pod) error {
		s := o.Status.ContainerStatuses[0]
		again = s.State.Running != nil && containerID(s) != ids[0]
		if again || s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" {
			return nil
		}
		return fmt.Errorf("%s", describe(o))
	})
	return again
}

// A container that crashes again and again keeps its share of the GPU while it waits for its next start, and no other
// pod gets it. Each of its instances is capped.
func TestCrashLoopKeepsItsClaim(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := e.pinned("crashes", 6, 60, "gpuload --json --alloc 61GiB; "+untilTold("1GiB")+"; exit 3")
	spec.restart = corev1.RestartPolicyAlways
	p := e.create(spec)
	p.running()
	first := e.wantHeld(p, "main", share(60*gib, 0))
	instance := func() {
		if l := p.loads("main", 2); l[0].Error == nil || l[1].Error != nil {
			t.Errorf("61 GiB and 1 GiB of its 60: %v", l)
		}
		if g := e.wantHeld(p, "main", share(60*gib, 0)); g.ID != first.ID ||
			g.Shares[0].GPU != first.Shares[0].GPU {
			t.Errorf("this instance has %+v, the first had %+v", g, first)
		}
	}
	instance()
	ids := []string{p.id("main")}
	var waits grant
	for waits.State != "Reserved" { // the first start again comes at once, others where the test was slow
		if len(ids) > 6 {
			t.Fatalf("kubelet starts it again and again: %s", describe(p.get()))
		}
		if !p.crash(ids) {
			waits = e.grantOf(p, "main")
		}
		if waits.State != "Reserved" {
			p.running()
			ids = slices.Insert(ids, 0, p.id("main"))
		}
	}
	if waits.ID != first.ID || waits.Memory != 60*gib || len(waits.PIDs) > 0 {
		t.Errorf("while it waits it has %+v, before it had %+v", waits, first)
	}
	for _, id := range ids {
		if caps := e.node.capsOf(t, id); len(caps) > 0 {
			t.Errorf("the driver holds %v for an instance that has ended", caps)
		}
	}
	other := e.create(e.pinned("other", 6, 30, hold))
	other.event("not enough free for 30GiB of one GPU")
	p.until("next instance", func(o *corev1.Pod) error {
		if s := o.Status.ContainerStatuses[0]; s.State.Running != nil && !slices.Contains(ids, containerID(s)) {
			return nil
		}
		return fmt.Errorf("%s", describe(o))
	})
	instance()
	if o := other.get(); len(other.seen) > 0 {
		t.Errorf("the other pod ran: %s", describe(o))
	}
}

// A pod whose sandbox has died gets another, and in it what it had.
func TestSandboxDies(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := one("sandbox", gibs(3), hold)
	spec.restart = corev1.RestartPolicyAlways
	p := e.create(spec)
	o := p.running()
	before, id := e.wantHeld(p, "main", share(3*gib, 0)), p.id("main")
	kill := "for p in $(grep -ls " + string(o.UID) +
		" /proc/[0-9]*/cgroup | cut -d/ -f3); do [ $(cat /proc/$p/comm) != pause ] || kill -9 $p; done"
	if r := e.node.in("/bin/sh", "-c", kill); r.err != nil {
		t.Fatalf("kill the sandbox: %v", r)
	}
	p.until("running in another sandbox", func(o *corev1.Pod) error {
		if s := o.Status.ContainerStatuses[0]; containerID(s) == id || s.State.Running == nil {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
	if g := e.wantHeld(p, "main", share(3*gib, 0)); g.ID != before.ID {
		t.Errorf("it had %+v, and has %+v", before, g)
	}
	if caps := e.node.capsOf(t, id); len(caps) > 0 {
		t.Errorf("the driver still holds %v for its first container", caps)
	}
}

// A pod that has come to its end gives its share back at once, while the pod itself is still there.
func TestEndedPodFreesItsClaim(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	for _, c := range []struct {
		run   string
		phase corev1.PodPhase
	}{{"gpuload --json", corev1.PodSucceeded}, {"gpuload --json; exit 3", corev1.PodFailed}} {
		p := e.create(e.pinned("ends-"+strings.ToLower(string(c.phase)), 5, 60, c.run))
		p.phase(c.phase)
		ended := time.Now()
		next := e.create(e.pinned("next-"+strings.ToLower(string(c.phase)), 5, 60, hold))
		next.running()
		e.wantHeld(next, "main", share(60*gib, 0))
		t.Logf("%s: the next ran after %v", c.phase, time.Since(ended).Round(100*time.Millisecond))
		p.released()
		if o := p.get(); o.Status.Phase != c.phase {
			t.Errorf("%s", describe(o))
		}
		next.delete()
		next.released()
	}
}

// Deletion frees what a pod holds, whatever it is about.
func TestDeletion(t *testing.T) {
	t.Parallel()
	stages := []struct {
		name string
		spec func(*testCase) podSpec
		// reach waits until the pod is at the stage.
		reach func(*testCase, *pod)
		held  int // grants at that stage
	}{
		{
			"waiting for room", func(*testCase) podSpec { return one("p", gibs(100), hold) },
			func(_ *testCase, p *pod) { p.event("no GPU has 100GiB") }, 0,
		},
		{
			"creating", func(*testCase) podSpec {
				s := one("p", gibs(2), hold)
				s.containers[0].image = "kerf.test/nowhere:1"
				return s
			},
			func(_ *testCase, p *pod) { p.event("ErrImageNeverPull") }, 1,
		},
		{
			"initialising", func(*testCase) podSpec {
				s := one("p", gibs(2), hold)
				s.init = []container{{name: "before", run: hold, limits: gibs(3)}}
				return s
			},
			func(_ *testCase, p *pod) { p.runs("before") }, 2,
		},
		{
			"running", func(*testCase) podSpec {
				return one("p", gibs(2),
					"exec gpuload --json --alloc 1GiB --hold 1h")
			},
			func(_ *testCase, p *pod) { p.running(); p.loads("main", 1) }, 1,
		},
		{
			"backing off", func(*testCase) podSpec {
				s := one("p", gibs(2), "exit 1")
				s.restart = corev1.RestartPolicyAlways
				return s
			},
			func(_ *testCase, p *pod) { p.backsOff(1) }, 1,
		},
		{
			"completed", func(*testCase) podSpec { return one("p", gibs(2), "exit 0") },
			func(_ *testCase, p *pod) { p.phase(corev1.PodSucceeded); p.released() }, 0,
		},
	}
	e := beginWithAgent(t)
	var pods []*pod
	for _, stage := range stages { // in parallel: what takes time is kubelet's patience
		s := stage.spec(e)
		s.name = dnsName(stage.name)
		pods = append(pods, e.create(s))
	}
	for i, stage := range stages {
		stage.reach(e, pods[i])
		if all := e.grantsOf(pods[i]); len(all) != stage.held {
			t.Errorf("%s: %d grants, want %d: %+v", stage.name, len(all), stage.held, all)
		}
		began := time.Now()
		pods[i].delete()
		pods[i].released()
		t.Logf("%s: gone and released after %v", stage.name, time.Since(began).Round(100*time.Millisecond))
	}
}

// While a pod's program takes its time to end, it holds what it has.
func TestGracefulDeletion(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	s := one("slow", gibs(2),
		"trap 'until [ -e /tmp/go ]; do sleep 0.05; done; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	s.edit = func(p *corev1.Pod) { grace := int64(60); p.Spec.TerminationGracePeriodSeconds = &grace }
	p := e.create(s)
	p.logged("main", "ready")
	p.startDeletion()
	p.until("ending", func(o *corev1.Pod) error {
		if o.DeletionTimestamp == nil {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
	time.Sleep(time.Second)
	e.wantHeld(p, "main", share(2*gib, 0))
	p.tell("main")
	eventually(e, "end of the pod", p.goneError)
	p.released()
}

// A pod that was deleted by force is gone from the API server while its processes still run. What they use is
// free only when they have ended. kubelet is held meanwhile, as on a node that answers no more.
func TestForcedDeletion(t *testing.T) {
	e := beginWithAgent(t)
	p := e.create(one("forced", gibs(2), "exec gpuload --json --alloc 1GiB --hold 1h"))
	p.running()
	p.loads("main", 1)
	e.wantHeld(p, "main", share(2*gib, 0))
	id := p.id("main")
	e.node.do(t, "kill", "kubelet", "STOP")
	goOn := func() { e.node.do(t, "kill", "kubelet", "CONT") }
	t.Cleanup(goOn)
	if err := e.client.CoreV1().Pods(p.namespace).Delete(background(), p.name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "end of the pod at the API server", p.goneError)
	for range 6 { // long enough for every watcher to act
		time.Sleep(500 * time.Millisecond)
		all := e.grantsOf(p)
		if len(all) != 1 || all[0].ContainerID != id || len(all[0].PIDs) == 0 {
			t.Fatalf("its process runs, and the agent shows %+v", all)
		}
		if caps := e.node.capsOf(t, id); caps[all[0].Shares[0].GPU] != 2*gib {
			t.Fatalf("its process runs, and the driver holds %v", caps)
		}
	}
	goOn()
	p.released()
	for _, s := range e.node.processes(t) {
		if strings.Contains(s.Cgroup, id) {
			t.Errorf("its grant is gone, and the driver knows its process: %+v", s)
		}
	}
}
