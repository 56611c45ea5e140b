// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// failpointsMap is where the agent under test reads its failpoints from, at each start of its process.
const failpointsMap = "e2e-failpoints"

// failpointsFromMap is what is put into the agent's DaemonSet for that, and noFailpoints takes it out again.
const (
	failpointsFromMap = `{"spec":{"template":{"spec":{"containers":[{"name":"agent","env":[{"name":"KERF_FAILPOINTS",` +
		`"valueFrom":{"configMapKeyRef":{"name":"` + failpointsMap + `","key":"spec","optional":true}}}]}]}}}}`
	noFailpoints = `{"spec":{"template":{"spec":{"containers":[{"name":"agent","env":[{"name":"KERF_FAILPOINTS","$patch":"delete"}]}]}}}}`
)

// takeFailpoints makes the agent one that takes failpoints, until the test ends.
func (e *testCase) takeFailpoints() {
	e.Helper()
	e.writeFailpoints("")
	e.patchAgent(failpointsFromMap)
	e.Cleanup(func() {
		e.patchAgent(noFailpoints)
		_ = e.client.CoreV1().ConfigMaps(kerfNamespace).Delete(background(), failpointsMap, metav1.DeleteOptions{})
		e.waitForAgent()
	})
}

// patchAgent changes the agent's DaemonSet, whose controller then replaces the pod.
func (e *testCase) patchAgent(patch string) {
	e.Helper()
	_, err := e.client.AppsV1().DaemonSets(kerfNamespace).Patch(background(), agentName, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		e.Fatalf("patch the agent: %v", err)
	}
}

// writeFailpoints sets what the agent's next process does.
func (e *testCase) writeFailpoints(spec string) {
	e.Helper()
	m := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {spec: %q}\n",
		failpointsMap, kerfNamespace, spec)
	if err := e.apply(m); err != nil {
		e.Fatal(err)
	}
}

// startWithFailpoints replaces the agent by one with these failpoints, whose next process has none.
func (e *testCase) startWithFailpoints(spec string) {
	e.Helper()
	e.writeFailpoints(spec)
	eventually(e, "an agent with the failpoints "+spec, func() error {
		e.replaceAgent()
		for _, pid := range e.agentPIDs() {
			if env := e.node.in("cat", "/proc/"+pid+"/environ").out; !strings.Contains(env, "KERF_FAILPOINTS="+spec+
				"\x00") {
				return errors.New("kubelet started it with what it knew before")
			}
		}
		return nil
	})
	e.writeFailpoints("")
}

// settled waits until a pod runs or has failed.
func (p *pod) settled() *corev1.Pod {
	p.e.Helper()
	return p.until("running or failed", func(o *corev1.Pod) error {
		if runs(o) || o.Status.Phase == corev1.PodFailed {
			return nil
		}
		return errors.New(describe(o))
	})
}

// An agent that is killed at any instant of a container's start delays it, and the container then runs with its
// cap, also where it gets no second start. What ran before keeps its own, and nothing is booked twice. While the agent
// answers NRI's CreateContainer, this runtime goes on without the answer: then the container is refused, and who gets
// no second start fails with the reason.
func TestAgentKilledAtEachStep(t *testing.T) {
	e := beginWithAgent(t)
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	bystander.running()
	before := e.heldBy(bystander)
	e.takeFailpoints()
	for _, c := range []struct {
		point string
		// mayFail is set where a container can be within CreateContainer when the agent dies.
		mayFail bool
		// two pods start at a time, of which one gets no second start, so that the agent dies for either while the
		// other is anywhere in its own start.
		two bool
	}{
		{point: "nri-run-pod"},
		{point: "nri-create", mayFail: true, two: true},
		{point: "inject-after-record", mayFail: true, two: true},
		{point: "nri-after-inject", mayFail: true, two: true},
		{point: "hook-after-record"},
		{point: "hook-after-caps"},
		{point: "hook-after-arm"},
		{point: "hook-after-arm", mayFail: true, two: true},
	} {
		e.startWithFailpoints(c.point + "=1*exit")
		armed := e.agentInstances()
		const run = "exec gpuload --json --alloc 4GiB --hold 1h"
		var pods []*pod
		if c.two {
			never, always := e.pair(c.point, 5, run)
			pods = []*pod{never, always}
		} else {
			pods = []*pod{e.create(one("alone-"+c.point, gibs(5), run))}
		}
		o := pods[0].settled()
		switch {
		case runs(o):
			e.wantHeld(pods[0], "main", share(5*gib, 0))
		case c.mayFail && strings.Contains(describe(o), "made without its grant"):
			t.Logf("%s: restartPolicy Never: %s", c.point, describe(o))
		default:
			t.Errorf("%s: %s", c.point, describe(o))
		}
		for _, p := range pods[1:] {
			p.running()
			e.wantHeld(p, "main", share(5*gib, 0))
		}
		if err := e.uncappedError(); err != nil {
			t.Errorf("%s: %v", c.point, err)
		}
		if now := e.agentInstances(); now == armed {
			t.Errorf("%s: the agent was not killed", c.point)
		}
		e.wantSame(before, bystander)
		for _, p := range pods {
			p.startDeletion()
		}
	}
	if l := bystander.loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the bystander's load: %v", l)
	}
}

// An NRI plugin that is slow refuses in time, before the runtime goes on without it, and the next try finds the
// work done; so also a pod without a second start runs.
func TestSlowPlugin(t *testing.T) {
	e := beginWithAgent(t)
	e.takeFailpoints()
	e.startWithFailpoints("nri-run-pod=1*sleep(3s);nri-after-inject=1*sleep(3s)")
	instance := e.agentInstances()
	never := e.create(one("never", gibs(5), "exec gpuload --json --alloc 4GiB --hold 1h"))
	never.event("reserving GPUs for pod", "not done after")
	never.event("giving container main", "not done after")
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
	o := never.running()
	if n := o.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("it was started %d times more", n)
	}
	e.wantHeld(never, "main", share(5*gib, 0))
	if now := e.agentInstances(); now != instance {
		t.Errorf("the agent is now %s, was %s", now, instance)
	}
}
