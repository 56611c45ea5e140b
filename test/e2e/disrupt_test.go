// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the disruptive tests have in common: ways to take the agent away, and what must hold meanwhile.

// agentPIDs are the agent's processes, as the node numbers them.
func (e *testCase) agentPIDs() []string {
	e.Helper()
	return strings.Fields(e.node.in(e.node.busybox(), "pidof", agentName).out)
}

// sendAway takes the node's label, and with it the agent, until bringBack or the test's end.
func (e *testCase) sendAway() {
	e.Helper()
	e.label(`null`)
	e.Cleanup(e.bringBack)
	eventually(e, "the agent's end", func() error {
		if pods, err := e.agentPods(); err != nil || len(pods) > 0 {
			return fmt.Errorf("%d pods of the agent: %w", len(pods), errors.Join(err))
		}
		if pids := e.agentPIDs(); len(pids) > 0 {
			return fmt.Errorf("processes %s of the agent", pids)
		}
		return nil
	})
}

// bringBack gives the node an agent again, and waits for it.
func (e *testCase) bringBack() {
	e.Helper()
	e.label(`"true"`)
	e.waitForAgent()
}

func (e *testCase) label(value string) {
	e.Helper()
	patch := `{"metadata":{"labels":{"kerf.dev/deploy-agent":` + value + `}}}`
	if _, err := e.client.CoreV1().Nodes().Patch(background(), e.node.env["NODE_NAME"], types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		e.Fatalf("label the node: %v", err)
	}
}

// freeze stops the agent's process where it is, until thaw or the test's end.
func (e *testCase) freeze() {
	e.Helper()
	e.signalAgent("STOP")
	e.Cleanup(e.thaw)
}

func (e *testCase) thaw() {
	e.Helper()
	if len(e.agentPIDs()) > 0 {
		e.signalAgent("CONT")
	}
}

// caughtUp waits until an agent that stood still has made good what it left out for the pod: a GPU that did not answer
// it in time, since it stood still itself, takes no limits until it was asked again. The cap on the pod's own GPU was
// there at once.
func (e *testCase) caughtUp(p *pod) {
	e.Helper()
	if err := e.uncappedError(); err != nil {
		e.Error(err)
	}
	eventually(e, "limits of "+p.name+" on all GPUs", func() error {
		caps, cut := p.caps("main"), e.inDriver()
		for i, gpu := range e.node.gpus(e.T) {
			if _, limited := caps[gpu.UUID]; !limited && !cut[i].MIG {
				return fmt.Errorf("there is none on GPU %d: %v", gpu.Index, caps)
			}
		}
		return nil
	})
}

// pair makes a pod for each restart policy that matters: one whose containers kubelet starts again, and one that
// gets no second chance.
func (e *testCase) pair(suffix string, n int, run string) (never, always *pod) {
	e.Helper()
	never = e.create(one("never-"+suffix, gibs(n), run))
	s := one("always-"+suffix, gibs(n), run)
	s.restart = corev1.RestartPolicyAlways
	return never, e.create(s)
}

// uncappedError tells of a process on a GPU that is in a pod's container of this test, and that no limit of the
// driver's holds there. It is for tests whose grants are all shares.
func (e *testCase) uncappedError() error {
	e.Helper()
	limits := e.node.limits(e.T)
	for _, s := range e.node.processes(e.T) {
		mine := slices.ContainsFunc(e.pods, func(p *pod) bool {
			return slices.ContainsFunc(p.seen, func(id string) bool { return strings.Contains(s.Cgroup, id) })
		})
		capped := slices.ContainsFunc(limits, func(l simLimit) bool {
			return l.GPU == s.GPU && l.Hard != nil && strings.HasPrefix(s.Cgroup, l.Cgroup) && s.Bytes <= *l.Hard
		})
		if mine && !capped {
			return fmt.Errorf("process %+v is held by no limit", s)
		}
	}
	return nil
}

// notStarted fails the test if a container of the pod runs or has run.
func (p *pod) notStarted(container string) {
	p.e.Helper()
	if s := p.notRunning(container); s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
		p.e.Errorf("%s/%s was started: %s", p.name, container, describe(p.get()))
	}
}

// notRunning fails the test if a container of the pod runs, or a process of this test is on a GPU without a cap.
func (p *pod) notRunning(container string) corev1.ContainerStatus {
	p.e.Helper()
	s := p.status(container)
	if s.State.Running != nil {
		p.e.Errorf("%s/%s runs: %s", p.name, container, describe(p.get()))
	}
	if err := p.e.uncappedError(); err != nil {
		p.e.Error(err)
	}
	return s
}

// said waits for an event of that reason about one container of the pod.
func (p *pod) said(container, reason string) {
	p.e.Helper()
	eventually(p.e, fmt.Sprintf("event %s of %s/%s", reason, p.name, container), func() error {
		list, err := p.e.client.CoreV1().Events(p.namespace).List(background(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Pod,reason=" + reason + ",involvedObject.name=" + p.name,
		})
		if err != nil {
			return err
		}
		for _, ev := range list.Items {
			if strings.Contains(ev.InvolvedObject.FieldPath, "{"+container+"}") {
				return nil
			}
		}
		return errors.New("there is none")
	})
}
