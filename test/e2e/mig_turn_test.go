// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In a pool with only mode auto, a pod gets an instance on a node without a GPU in MIG mode: an idle GPU switches.
// While the instance is used, a pod that requests a share is pending, and its message names the pod that it waits for.
// Then the GPU leaves MIG mode for it. All other GPUs stay as they are.
func TestMIGTurns(t *testing.T) {
	e := beginWithAgent(t)
	e.followDemand()
	others := e.create(one("others", wholeGPUs(7), hold))
	others.running()
	r := e.kerf("mig", "status")
	if n := strings.Count(r.out, "  switches to MIG mode with demand, but not now: it is held by pod "+others.namespace+
		"/others\n"); r.err != nil || n != 7 || strings.Count(r.out, "  switches to MIG mode with demand\n") != 1 {
		t.Errorf("before anybody requests an instance, kerf mig status: %v", r)
	}
	inst := e.create(one("inst", instance("3g.40gb"), "exec gpuload --json --alloc 30GiB --hold 1h"))
	inst.running()
	if l, g := inst.loads("main", 1)[0], e.grantOf(inst, "main"); l.Error != nil || g.Level != "hardware" ||
		e.inMIGMode() != 1 {
		t.Errorf("%v, grant %+v, %d GPUs in MIG mode", l, g, e.inMIGMode())
	}
	share := e.create(one("share", gibs(4), "exec gpuload --json --alloc 1GiB --hold 1h"))
	who := "is held by pod " + inst.namespace + "/inst"
	share.event(who)
	if r := e.kerf("mig", "status"); r.err != nil ||
		!strings.Contains(r.out, "  switches back from MIG mode with demand, but not now: it "+who+"\n") {
		t.Errorf("while a pod waits for the GPU, kerf mig status: %v", r)
	}
	if e.picture(); inst.id("main") == "" || e.inMIGMode() != 1 || share.status("main").State.Running != nil {
		t.Errorf("with an instance in use: %s, %d GPUs in MIG mode", describe(share.get()), e.inMIGMode())
	}
	inst.delete()
	share.running()
	if l, g := share.loads("main", 1)[0], e.grantOf(share, "main"); l.Error != nil || g.Level != "driver" ||
		e.inMIGMode() != 0 {
		t.Errorf("%v, grant %+v, %d GPUs in MIG mode", l, g, e.inMIGMode())
	}
	if others.status("main").RestartCount != 0 || !runs(others.get()) {
		t.Errorf("who has the other GPUs: %s", describe(others.get()))
	}
	for _, want := range []string{"changes to MIG mode for pod " + inst.namespace + "/inst",
		"leaves MIG mode for pod " + share.namespace + "/share"} {
		e.nodeEvent("MIGModeChanged", want)
	}
	if r := e.kerf("metrics"); !strings.Contains(r.out, "kerf_mig_mode_changes_total") {
		t.Errorf("no change of mode in the metrics: %v", r.err)
	}
}

// followDemand has the pool say mode auto and no more of MIG than for how short a time things are kept, until the test
// ends.
func (e *testCase) followDemand() {
	e.Helper()
	rules := e.readRules()
	if strings.Count(rules, keepsModes) != 1 {
		e.Fatalf("the rules have not one %q: %q", keepsModes, rules)
	}
	e.Cleanup(func() {
		e.nowRules(rules)
		eventually(e, "no GPU in MIG mode", func() error { return e.modes(false) })
	})
	e.nowRules(strings.Replace(rules, keepsModes, "    migIdleTTL: 1s\n", 1))
	eventually(e, "what each GPU gives in either mode", func() error {
		for resource, want := range map[string]int64{"kerf.dev/mig-3g.40gb": 16, "kerf.dev/gpu": 8} {
			if all, usable, err := e.capacity(resource); err != nil || all != want || usable != want {
				return fmt.Errorf("%s: capacity %d, allocatable %d, want %d: %w", resource, all, usable, want,
					errors.Join(err))
			}
		}
		return nil
	})
	if n := e.inMIGMode(); n != 0 {
		e.Errorf("%d GPUs in MIG mode, and no pod has requested it", n)
	}
}

// inMIGMode is how many GPUs are, by the driver.
func (e *testCase) inMIGMode() int {
	e.Helper()
	n := 0
	for _, g := range e.inDriver() {
		if g.MIG {
			n++
		}
	}
	return n
}

// nodeEvent waits for an event of the node.
func (e *testCase) nodeEvent(reason, text string) {
	e.Helper()
	eventually(e, fmt.Sprintf("event %s of the node with %q", reason, text), func() error {
		list, err := e.client.CoreV1().Events("").List(background(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		if err == nil && !slices.ContainsFunc(list.Items,
			func(ev corev1.Event) bool { return strings.Contains(ev.Message, text) }) {
			err = fmt.Errorf("%d such events, and none with that", len(list.Items))
		}
		return err
	})
}
