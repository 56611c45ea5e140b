// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// later is a pod whose container with a share starts when the test tells the one before it: kubelet has admitted
// the pod by then.
func later(name string, restart corev1.RestartPolicy) podSpec {
	return podSpec{
		name: name, restart: restart,
		init:       []container{{name: "before", run: "until [ -e /tmp/go ]; do sleep 0.05; done"}},
		containers: []container{{run: "exec gpuload --json --alloc 4GiB --hold 1h", limits: gibs(5)}},
	}
}

// While there is no agent, no container with a share starts, and running containers keep their caps. When the agent
// returns, the waiting containers start, also those with restartPolicy Never. The exception is a pod that a user bound
// by hand meanwhile.
func TestAgentAway(t *testing.T) {
	e := beginWithAgent(t)
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	spec := one("ends", gibs(5), "gpuload --json --alloc 4GiB; until [ -e /tmp/go ]; do sleep 0.05; done")
	spec.restart = corev1.RestartPolicyAlways
	ends := e.create(spec)
	never, always := e.create(later("never", corev1.RestartPolicyNever)),
		e.create(later("always", corev1.RestartPolicyAlways))
	bystander.running()
	ends.running()
	never.runs("before")
	always.runs("before")
	before, caps := e.heldBy(bystander), bystander.caps("main")
	first := ends.id("main")
	e.sendAway()
	// kubelet judges at once what comes to it while a device plugin is away, and for good: a scheduler sends nothing.
	waits := e.create(one("waits", gibs(2), hold))
	bound := one("bound", gibs(2), hold)
	bound.edit = func(p *corev1.Pod) { p.Spec.NodeName = e.node.env["NODE_NAME"] }
	byHand := e.create(bound)
	ends.tell("main")
	never.tell("before")
	always.tell("before")
	for _, p := range []*pod{never, always, ends} {
		p.event("Failed", "device plugin PreStartContainer rpc failed")
	}
	never.notStarted("main")
	always.notStarted("main")
	if s := ends.status("main"); s.State.Running != nil || containerID(s) != first {
		t.Errorf("a container started without an agent: %s", describe(ends.get()))
	}
	if now := bystander.caps("main"); fmt.Sprint(now) != fmt.Sprint(caps) {
		t.Errorf("the bystander's caps are %v without an agent, were %v", now, caps)
	}
	if o := byHand.phase(corev1.PodFailed); o.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("bound by hand while no agent is there: %s", describe(o))
	}
	if o := waits.get(); o.Spec.NodeName != "" {
		t.Errorf("a scheduler has sent a pod to a node without an agent: %s", describe(o))
	}
	e.bringBack()
	waits.running()
	for _, p := range []*pod{never, always, ends} {
		p.running()
		e.wantHeld(p, "main", share(5*gib, 0))
	}
	if n := never.status("main").RestartCount + always.status("main").RestartCount; n != 0 {
		t.Errorf("containers that waited for the agent were restarted %d times", n)
	}
	e.wantSame(before, bystander)
}

// An agent that does not answer holds containers up, as one that is away. When it goes on, they start. (kubelet
// admits no pod meanwhile: it waits without limit for a device plugin's answer.)
func TestAgentFrozen(t *testing.T) {
	e := beginWithAgent(t)
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	never, always := e.create(later("never", corev1.RestartPolicyNever)),
		e.create(later("always", corev1.RestartPolicyAlways))
	bystander.running()
	never.runs("before")
	always.runs("before")
	before := e.heldBy(bystander)
	e.freeze()
	never.tell("before") // its end costs NRI the plugin
	always.tell("before")
	never.said("main", "Pulled") // kubelet asks the agent now whether it may start
	always.said("main", "Pulled")
	time.Sleep(3 * time.Second)
	never.notStarted("main")
	always.notStarted("main")
	e.thaw()
	for _, p := range []*pod{never, always} {
		if o := p.running(); p.status("main").RestartCount != 0 {
			t.Errorf("it was restarted: %s", describe(o))
		}
		e.caughtUp(p)
		e.wantHeld(p, "main", share(5*gib, 0))
	}
	e.waitForAgent()
	e.wantSame(before, bystander)
}

// A container that was made while NRI had no plugin has no GPU. The hook refuses it and says why, and where
// kubelet makes another, that one runs.
func TestDroppedPlugin(t *testing.T) {
	e := beginWithAgent(t)
	spec := func(name string, restart corev1.RestartPolicy) podSpec {
		return podSpec{
			name: name, restart: restart,
			containers: []container{{name: "first", run: hold}, {run: "exec gpuload --json --alloc 4GiB --hold 1h",
				limits: gibs(5)}},
			edit: func(p *corev1.Pod) { // kubelet goes on to the next container when this has ended
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
					PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
						Command: []string{"/bin/sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done"},
					}}}
			},
		}
	}
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		dropped := false
		for try := 0; try < 3 && !dropped; try++ {
			p := e.create(spec(fmt.Sprintf("%s-%d", dnsName(string(policy)), try), policy))
			p.said("first", "Started")
			e.freeze()
			p.tell("first")
			p.said("main", "Pulled") // kubelet asks the agent now whether it may start
			e.node.do(t, "kill", "containerd", "STOP")
			e.thaw()
			// The agent answers kubelet, which then calls the runtime. A busy machine needs more time, so each try has
			// more.
			time.Sleep(700 * time.Millisecond << (2 * try))
			e.signalAgent("STOP")
			e.node.do(t, "kill", "containerd", "CONT")
			err := pollFor(10*time.Second, "the hook", func() error {
				if !e.hookRuns() {
					return errors.New("it does not run")
				}
				return nil
			})
			if err == nil {
				p.notStarted("main")
			}
			e.thaw()
			o := p.until("start or refusal", func(o *corev1.Pod) error {
				for _, s := range o.Status.ContainerStatuses {
					if s.Name == "main" && (s.State.Running != nil || s.State.Terminated != nil &&
						policy == corev1.RestartPolicyNever) {
						return nil
					}
				}
				return errors.New(describe(o))
			})
			texts, everr := p.events()
			said := strings.Join(texts, "\n")
			dropped = err == nil && strings.Contains(said, "made without its grant")
			t.Logf("%s, try %d: dropped %t (%v, %v), %s\n%s", policy, try, dropped, err, everr, describe(o), said)
			if runs(o) {
				e.waitForAgent()
				e.caughtUp(p)
				e.wantHeld(p, "main", share(5*gib, 0))
			}
			if dropped && runs(o) != (policy == corev1.RestartPolicyAlways) {
				t.Errorf("restartPolicy %s: %s", policy, describe(o))
			}
			if err := e.uncappedError(); err != nil {
				t.Error(err)
			}
			p.delete()
			e.waitForAgent()
		}
		if !dropped {
			t.Errorf("restartPolicy %s: no container was made without the plugin", policy)
		}
	}
}

// A pod's resources become free after its processes have ended, and not before, even if the agent was away when the pod
// was deleted.
func TestDeletedWhileAway(t *testing.T) {
	e := beginWithAgent(t)
	gone, forced := e.create(one("gone", gibs(60), hold)),
		e.create(one("forced", gibs(60), "exec gpuload --json --alloc 50GiB --hold 1h"))
	gone.running()
	forced.running()
	forced.loads("main", 1)
	grant, id := e.grantOf(gone, "main"), gone.id("main")
	e.sendAway()
	gone.delete()
	eventually(e, "end of the limits with their cgroup", func() error {
		if caps := e.node.capsOf(t, id); len(caps) > 0 {
			return fmt.Errorf("the driver holds %v", caps)
		}
		return nil
	})
	e.bringBack()
	eventually(e, "release", func() error {
		for _, g := range e.picture().Grants {
			if g.ID == grant.ID {
				return fmt.Errorf("the agent has %+v", g)
			}
		}
		return nil
	})
	again := e.create(e.pinnedTo(grant.Shares[0].GPU, one("again", gibs(60), hold)))
	again.running()

	held := e.grantOf(forced, "main")
	e.node.do(t, "kill", "kubelet", "KILL")
	now := int64(0)
	if err := e.client.CoreV1().Pods(forced.namespace).Delete(background(), forced.name,
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "deletion", forced.goneError)
	time.Sleep(2 * time.Second) // in which the agent hears of it, and looks at its leases several times
	if g := e.grantByID(held.ID); g == nil || g.Memory != 60*gib || g.State != held.State {
		t.Errorf("the grant of a pod whose process still runs is %+v, was %+v", g, held)
	}
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
	e.node.do(t, "up")
	eventually(e, "end of the process, and then of the grant", func() error {
		g := e.grantByID(held.ID) // before the processes are looked at
		for _, s := range e.node.processes(t) {
			if !strings.Contains(s.Cgroup, held.ContainerID) {
				continue
			}
			if g == nil {
				return final("the grant has ended, and the process runs: %+v", s)
			}
			return fmt.Errorf("%+v", s)
		}
		if g != nil {
			return fmt.Errorf("the agent has %+v", *g)
		}
		return nil
	})
	e.waitForAgent()
}

// grantByID is nil where the agent has no such grant.
func (e *testCase) grantByID(id string) *grant {
	e.Helper()
	for _, g := range e.picture().Grants {
		if g.ID == id {
			return &g
		}
	}
	return nil
}

// pinnedTo makes a pod wish for one GPU.
func (e *testCase) pinnedTo(uuid string, s podSpec) podSpec {
	s.annotations = map[string]string{"kerf.dev/gpu-uuid": uuid}
	return s
}
