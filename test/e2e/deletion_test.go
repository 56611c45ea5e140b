// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hookRuns tells whether the hook program runs on the node.
func (e *testCase) hookRuns() bool {
	e.Helper()
	return strings.TrimSpace(e.node.in(e.node.busybox(), "pidof", "kerf-hook").out) != ""
}

// hideHook takes the agent's socket from hooks, which then wait for it, until showHook or the test's end.
func (e *testCase) hideHook() {
	e.Helper()
	if r := e.node.in("mv", "/run/kerf/hook.sock", "/run/kerf/hook.away"); r.err != nil {
		e.Fatal(r)
	}
	e.Cleanup(e.showHook)
}

func (e *testCase) showHook() {
	e.Helper()
	if r := e.node.in("/bin/sh", "-c",
		"[ ! -e /run/kerf/hook.away ] || mv /run/kerf/hook.away /run/kerf/hook.sock"); r.err != nil {
		e.Fatal(r)
	}
}

// usable waits until the whole of a GPU can be had, which a pod proves.
func (e *testCase) usable(uuid string) {
	e.Helper()
	p := e.create(e.pinnedTo(uuid, one("next", gibs(79), hold)))
	p.running()
	e.wantHeld(p, "main", share(79*gib, 0))
}

// A pod that is deleted before it runs gives back what it had, at every stage: no grant, no limit and no hook stays,
// and another pod gets its GPU. TestDeletion has the stages that delay no other pod, and runs in parallel with other
// tests.
func TestDeletionOnTheWay(t *testing.T) {
	stages := []struct {
		name string
		spec func(*testCase) podSpec
		// begin is how far it comes by itself, with so many grants held; reach brings it to the stage, and back lets go
		// on what was held up for that.
		begin func(*testCase, *pod)
		held  int
		reach func(*testCase, *pod)
		back  func(*testCase)
	}{
		{
			name: "PreStart waits", held: 1,
			spec:  func(*testCase) podSpec { return later("p", corev1.RestartPolicyAlways) },
			begin: func(_ *testCase, p *pod) { p.runs("before") },
			reach: func(e *testCase, p *pod) {
				e.freeze()
				p.tell("before")
				p.said("main", "Pulled") // kubelet asks the agent now whether it may start
			},
			back: (*testCase).thaw,
		},
		{
			name: "the hook waits", held: 1,
			spec:  func(*testCase) podSpec { return later("p", corev1.RestartPolicyAlways) },
			begin: func(_ *testCase, p *pod) { p.runs("before") },
			reach: func(e *testCase, p *pod) {
				e.hideHook()
				p.tell("before")
				eventually(e, "a hook that waits", func() error {
					if !e.hookRuns() {
						return errors.New("none runs")
					}
					return nil
				})
				e.freeze() // between inject and arm
				e.showHook()
			},
			back: (*testCase).thaw,
		},
		{
			name: "a sidecar", held: 2,
			spec: func(*testCase) podSpec {
				s := one("p", gibs(3), "exec gpuload --json --alloc 2GiB --hold 1h")
				s.init = []container{{name: "side", run: "exec gpuload --json --alloc 1GiB --hold 1h", limits: gibs(2),
					sidecar: true}}
				return s
			},
			begin: func(_ *testCase, p *pod) { p.running(); p.loads("main", 1); p.loads("side", 1) },
		},
		{
			name: "whole GPUs", held: 1,
			spec: func(*testCase) podSpec {
				return one("p", wholeGPUs(8),
					"exec gpuload --json --alloc 70GiB --hold 1h")
			},
			begin: func(_ *testCase, p *pod) { p.running(); p.loads("main", 1) },
		},
	}
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			e := beginWithAgent(t)
			full := e.allOffers()
			p := e.create(stage.spec(e))
			stage.begin(e, p)
			if all := e.grantsOf(p); len(all) != stage.held {
				t.Errorf("%d grants, want %d: %+v", len(all), stage.held, all)
			}
			if stage.reach != nil {
				stage.reach(e, p)
			}
			began := time.Now()
			now := int64(1)
			if err := e.client.CoreV1().Pods(p.namespace).Delete(background(), p.name,
				metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Fatal(err)
			}
			if stage.back != nil {
				p.until("deletion", func(o *corev1.Pod) error {
					if o.DeletionTimestamp == nil {
						return errors.New(describe(o))
					}
					return nil
				})
				time.Sleep(time.Second) // in which kubelet sets about it
				if o, err := p.fetch(); err == nil && runs(o) {
					t.Errorf("it runs without an agent: %s", describe(o))
				}
				if err := e.uncappedError(); err != nil {
					t.Error(err)
				}
				stage.back(e)
			}
			eventually(e, "end of the pod", p.goneError)
			p.released()
			t.Logf("gone and released after %v", time.Since(began).Round(100*time.Millisecond))
			e.waitForAgent()
			eventually(e, "the end of hooks", func() error {
				if e.hookRuns() {
					return errors.New("one runs")
				}
				return nil
			})
			e.offersBecome(full)
			for _, s := range e.node.processes(t) {
				for _, id := range p.seen {
					if strings.Contains(s.Cgroup, id) {
						t.Errorf("the driver knows %+v", s)
					}
				}
			}
			e.usable(e.node.gpus(t)[0].UUID)
		})
	}
}
