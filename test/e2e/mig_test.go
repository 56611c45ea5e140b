// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cutGPUs are the GPUs of the node that the tests of MIG have in MIG mode.
var cutGPUs = []int{6, 7}

func instance(profile string) map[string]string {
	return map[string]string{"kerf.dev/mig-" + profile: "1"}
}

// nowRules applies other rules at once: kubelet brings them to a pod that it has to look at.
func (e *testCase) nowRules(text string) {
	e.Helper()
	e.writeRules(text)
	pods, err := e.agentPods()
	if err != nil {
		e.Fatal(err)
	}
	for _, p := range pods {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"e2e/looked":"%d"}}}`, time.Now().UnixNano())
		if _, err := e.client.CoreV1().Pods(kerfNamespace).Patch(background(), p.Name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{}); err != nil {
			e.Fatalf("have kubelet look at the agent: %v", err)
		}
	}
}

// cutNode has the agent put some GPUs into MIG mode until the test ends.
func (e *testCase) cutNode() {
	e.Helper()
	rules := e.readRules()
	e.Cleanup(func() {
		e.nowRules(cutRules(e, rules, "{index: [6, 7], migEnabled: false}", ""))
		eventually(e, "an end of MIG mode", func() error { return e.modes(false) })
		e.writeRules(rules)
	})
	e.nowRules(cutRules(e, rules, "{index: [6, 7], migEnabled: true}", ""))
	e.untilCut()
}

// cutRules are the rules with a layout, and what else is said in the pool.
func cutRules(e *testCase, rules, layout, more string) string {
	e.Helper()
	const line = "    placementPolicy: pack\n"
	if strings.Count(rules, line) != 1 {
		e.Fatalf("the rules have not one %q: %q", line, rules)
	}
	return strings.Replace(rules, line, line+"    migIdleTTL: 1s\n    migLayouts: ["+layout+"]\n"+more, 1)
}

// untilCut waits until the GPUs are in MIG mode, and kubelet offers what can be had of them.
func (e *testCase) untilCut() {
	e.Helper()
	eventually(e, "MIG mode", func() error { return e.modes(true) })
	eventually(e, "MIG profiles that kubelet offers", func() error {
		for resource, want := range map[string]int64{"kerf.dev/mig-1g.10gb": 14, "kerf.dev/mig-3g.40gb": 4,
			"kerf.dev/mig-7g.80gb": 2, "kerf.dev/gpu": 6} {
			if all, usable, err := e.capacity(resource); err != nil || all != want || usable != want {
				return fmt.Errorf("%s: capacity %d, allocatable %d, want %d: %w", resource, all, usable, want,
					errors.Join(err))
			}
		}
		return nil
	})
}

// modes compares the GPUs' MIG modes with the expected modes of the managed GPUs.
func (e *testCase) modes(on bool) error {
	for i, g := range e.inDriver() {
		if g.MIG != (on && slices.Contains(cutGPUs, i)) {
			return fmt.Errorf("GPU %d: MIG mode %t", i, g.MIG)
		}
	}
	s, err := e.status()
	if err == nil && !s.Ready {
		err = fmt.Errorf("the agent is not ready: %q", s.NotReady)
	}
	return err
}

// cutGPU is a GPU as the driver has it.
type cutGPU struct {
	MIG       bool     `json:"mig"`
	Instances []string `json:"mig_instances"`
}

func (e *testCase) inDriver() []cutGPU {
	e.Helper()
	r := e.node.in(e.node.program("gpusim"), "gpus", "--dir", e.node.env["GPUSIM_DIR"], "-o", "json")
	var out []cutGPU
	if err := json.Unmarshal([]byte(r.out), &out); err != nil {
		e.Fatalf("gpusim gpus: %v: %v", err, r)
	}
	return out
}

// cutAsBooked compares the driver's instances with those that the agent tells of, of which each must have a grant.
func (e *testCase) cutAsBooked(grants int) error {
	e.Helper()
	here, told, granted, err := e.bothSides()
	if err != nil {
		return err
	}
	if !slices.Equal(here, told) || !slices.Equal(here, granted) || len(here) != grants {
		return fmt.Errorf("the driver has %q, the agent %q, grants have %q, want %d of each", here, told, granted,
			grants)
	}
	return nil
}

// bothSides are the UUIDs of the instances that the driver has, of those that the agent tells of, and of those of these
// that have a grant.
func (e *testCase) bothSides() (here, told, granted []string, err error) {
	e.Helper()
	for _, g := range e.inDriver() {
		here = append(here, g.Instances...)
	}
	gpus, err := e.cutGPUs()
	if err != nil {
		return nil, nil, nil, err
	}
	for _, g := range gpus {
		for _, in := range g.MIGState.Instances {
			told = append(told, in.UUID)
			if in.Grant != "" {
				granted = append(granted, in.UUID)
			}
		}
	}
	for _, list := range [][]string{here, told, granted} {
		slices.Sort(list)
	}
	return here, told, granted, nil
}

// toldGPU is a GPU with its MIG instances as the agent reports them.
type toldGPU struct {
	UUID     string `json:"uuid"`
	MIGState struct {
		Instances []struct {
			UUID    string `json:"uuid"`
			Profile string `json:"profile"`
			Start   int    `json:"start"`
			Grant   string `json:"grant"`
			Holder  string `json:"requestedBy"`
		} `json:"instances"`
	} `json:"migState"`
}

func (e *testCase) cutGPUs() ([]toldGPU, error) {
	r := e.kerf("status", "-o", "json")
	var s struct {
		GPUs []toldGPU `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		return nil, fmt.Errorf("kerf status: %w: %v", err, r)
	}
	return s.GPUs, nil
}

// Kerf creates an instance for each pod, and each pod sees its own alone and cannot exceed it. Pods come and go, an
// agent too, while their neighbor runs on in its own, and none is left behind. kerf-scheduler places some of them, and
// the agent follows its placements.
func TestMIG(t *testing.T) {
	e := withScheduler(t)
	rules := e.readRules()
	e.cutNode()
	if said := e.refused(one("capped", map[string]string{"kerf.dev/mig-1g.10gb": "1", "kerf.dev/gpu-memory-gib": "4"},
		hold)); !strings.Contains(said, "one kind") {
		t.Errorf("a cap on top of an instance: %s", said)
	}
	neighbour := e.create(byKerf(one("neighbour", instance("2g.20gb"), "exec gpuload --json --alloc 15GiB --hold 1h")))
	plan := neighbour.running().Annotations[planOf]
	neighbour.event("MIGInstanceReady", "2g.20gb", "Kerf created")
	g := e.grantOf(neighbour, "main")
	if f := g.Shares; len(f) != 1 || plan != fmt.Sprintf("%s/%s@%d", f[0].GPU, f[0].Profile, f[0].Start) {
		t.Errorf("the neighbour was planned on %q and has %+v", plan, f)
	}
	if l := neighbour.loads("main", 1)[0]; l.Error != nil || g.Level != "hardware" {
		t.Errorf("the neighbour: %v, %+v", l, g)
	}
	before, uuid := neighbour.id("main"), e.visible(neighbour)
	e.nodeTells(neighbour)
	e.imageWithInstance(1)
	for round := range 3 {
		hard := one("hard-"+strconv.Itoa(round), gibs(12), look2)
		hard.annotations = map[string]string{"kerf.dev/min-enforcement": "hardware"}
		specs := []podSpec{
			one("small-"+strconv.Itoa(round), instance("1g.10gb"), look2),
			one("large-"+strconv.Itoa(round), instance("3g.40gb"), look2), hard,
		}
		var pods []*pod
		for i, s := range specs {
			switch {
			case round == 0 && i > 0: // the pods of the others are to come to kubelet at once
				s = byKerf(s)
			// a container made in the moment in which the agent dies has no grant: it does not start, and is made again
			case round == 1:
				s.restart = corev1.RestartPolicyOnFailure
			}
			pods = append(pods, e.create(s))
		}
		if round == 1 {
			for _, p := range pods { // kubelet refuses for good what it has to admit while a plugin is away
				p.until("admitted by kubelet", func(o *corev1.Pod) error {
					if o.Status.StartTime == nil {
						return errors.New(describe(o))
					}
					return nil
				})
			}
			e.killAgent()
		}
		for i, p := range pods {
			p.phase(corev1.PodSucceeded)
			e.sawOne(p, []uint64{9, 39, 19}[i]*gib)
			p.delete()
		}
		eventually(e, "a ledger that is as the driver is", func() error { return e.cutAsBooked(1) })
		if neighbour.id("main") != before || e.visible(neighbour) != uuid {
			t.Errorf("round %d: the neighbour was %s on %s, and is %s on %s", round, before, uuid, neighbour.id("main"),
				e.visible(neighbour))
		}
	}
	// A GPU that is to leave MIG mode waits for its pods, and every view says so.
	e.nowRules(cutRules(e, rules, "{index: [6, 7], migEnabled: false}", ""))
	e.nodeWaits(neighbour)
	neighbour.delete()
	eventually(e, "no instance", func() error { return e.cutAsBooked(0) })
	eventually(e, "an end of MIG mode", func() error { return e.modes(false) })
}

// nodeWaits looks for what a GPU waits for: in events of the node, its GPUNode, the agent's warnings, and the plan,
// which draws who is in the way.
func (e *testCase) nodeWaits(p *pod) {
	e.Helper()
	who := "pod " + p.namespace + "/" + p.name
	e.nodeEvent("MIGLayoutPending", who)
	eventually(e, "what the GPU waits for in the GPUNode", func() error {
		s, err := e.gpuNode()
		if err != nil {
			return err
		}
		for _, g := range s.GPUs {
			if g.MIGState != nil && strings.Contains(g.MIGState.PendingReason, who) {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.GPUs)
	})
	// a change of another GPU's mode has the agent take stock again meanwhile
	eventually(e, "a warning, and the plan", func() error {
		s, err := e.status()
		if err == nil && !strings.Contains(strings.Join(s.Warnings, "\n"), who) {
			err = fmt.Errorf("warnings: %q", s.Warnings)
		}
		r := e.kerf("mig", "plan")
		err = errors.Join(err, r.err)
		for _, want := range []string{"now   [", "then  [", "2g.20gb", who, "set MIG mode off", "left undone: "} {
			if !strings.Contains(r.out, want) {
				err = errors.Join(err, fmt.Errorf("kerf mig plan does not say %q: %v", want, r))
			}
		}
		return err
	})
}

// nodeTells looks for a pod's instance in the GPUNode, and in the drawing.
func (e *testCase) nodeTells(p *pod) {
	e.Helper()
	g := e.grantOf(p, "main")
	f := g.Shares[0]
	eventually(e, "the instance in the GPUNode", func() error {
		s, err := e.gpuNode()
		if err != nil {
			return err
		}
		for _, gpu := range s.GPUs {
			if gpu.UUID != f.GPU || gpu.MIGState == nil {
				continue
			}
			for _, in := range gpu.MIGState.Instances {
				if in.Profile == f.Profile && in.Start == f.Start && in.Ready && in.Grant == g.ID &&
					strings.Contains(in.RequestedBy, p.name) {
					return nil
				}
			}
			return fmt.Errorf("its GPU: %+v", gpu.MIGState)
		}
		return fmt.Errorf("no MIG state of %s in %+v", f.GPU, s.GPUs)
	})
	if r := e.kerf("mig", "status"); r.err != nil || !strings.Contains(r.out, "pod "+p.namespace+"/"+p.name) ||
		!strings.Contains(r.out, "created on demand") {
		e.Errorf("kerf mig status: %v", r)
	}
	if r := e.kerf("metrics"); !strings.Contains(r.out, `kerf_mig_instances_total{outcome="created"}`) ||
		!strings.Contains(r.out, `kerf_mig_step_duration_seconds_count{outcome="done",step="create-gi"}`) {
		e.Errorf("no cut in the metrics: %v", r.err)
	}
}

// look2 prints what one GPU is to a program, that there is no second one, and which capabilities there are.
const look2 = `gpuload --json --alloc 1GiB; gpuload --json --gpu 1; gpuload --json --alloc 60GiB; ls /dev/nvidia-caps | sed 's/^/cap /'; true`

// visible is the MIG device that a container has, by name.
func (e *testCase) visible(p *pod) string {
	e.Helper()
	out, errOut, err := p.exec("main", "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	if err != nil || !strings.HasPrefix(out, "MIG-") {
		e.Fatalf("exec in %s: %v, %q, %s", p.name, err, out, errOut)
	}
	return strings.TrimSpace(out)
}

// sawOne is content with a container that has one device of at least that size, no other, and the two nodes of its
// instance.
func (e *testCase) sawOne(p *pod, size uint64) {
	e.Helper()
	l := p.loads("main", 3)
	if l[0].Error != nil || l[0].Total == nil || *l[0].Total < size || *l[0].Total > size+2*gib {
		e.Errorf("%s: its own instance: %v, want about %d bytes", p.name, l[0], size)
	}
	if l[1].Error == nil || l[2].Error == nil {
		e.Errorf("%s: a second device: %v, more than it has: %v", p.name, l[1], l[2])
	}
	if n := strings.Count(p.logs("main"), "cap nvidia-cap"); n != 2 {
		e.Errorf("%s: %d capability nodes: %s", p.name, n, p.logs("main"))
	}
}
