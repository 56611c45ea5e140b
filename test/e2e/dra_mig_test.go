// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// deviceTemplate makes a ResourceClaimTemplate of one device of a class on a GPU. more is part of the CEL expression.
func (e *testCase) deviceTemplate(name, class, gpu, more string) {
	e.Helper()
	e.templateOf(name, class, "device.attributes['gpu.kerf.dev'].uuid == '"+gpu+"'"+more, "")
}

// migFollowsClaims has claims switch the MIG mode of idle GPUs until the test ends.
func (e *testCase) migFollowsClaims() {
	e.Helper()
	rules := e.readRules()
	e.Cleanup(func() {
		for _, p := range e.pods { // while the pool can leave MIG mode
			p.startDeletion()
		}
		for _, p := range e.pods {
			eventually(e, "end of "+p.name, p.goneError)
		}
		e.nowRules(rules)
		eventually(e, "no GPU in MIG mode", func() error { return e.modes(false) })
	})
	e.writeRules(e.changedRules(keepsModes, "    migIdleTTL: 1s\n"))
	eventually(e, "devices of MIG instances", func() error {
		devices, err := e.devicesOfNode()
		n := 0
		for _, d := range devices {
			if strings.HasSuffix(d.Name, "-mig-3g-40gb-0") || strings.HasSuffix(d.Name, "-mig-3g-40gb-4") {
				n++
			}
		}
		if err != nil || n != 16 {
			return fmt.Errorf("%d of 3g.40gb among %d devices: %w", n, len(devices), errors.Join(err))
		}
		return nil
	})
}

// Claims of MIG instances with the stock scheduler, on a node without a GPU in MIG mode. The GPU switches for the
// first, and Kerf creates each instance when its pod starts. No third instance fits, and no share. A restart of the
// agent disturbs nothing. When the instances are gone, the GPU leaves MIG mode for a share.
func TestDRAMIG(t *testing.T) {
	e := beginWithDRA(t)
	e.migFollowsClaims()
	gpu := e.node.gpus(t)[0]
	e.deviceTemplate("half", "mig.kerf.dev", gpu.UUID, " && device.attributes['gpu.kerf.dev'].profile == '3g.40gb'")
	e.template("share", "4Gi", gpu.UUID)
	const run = "exec gpuload --json --alloc 30GiB --hold 1h"
	first, second := e.create(byClaim("first", "half", run)), e.create(byClaim("second", "half", run))
	for _, p := range []*pod{first, second} {
		p.running()
		if l, g := p.loads("main", 1)[0], e.grantOf(p, "main"); l.Error != nil || g.Level != "hardware" ||
			len(g.Shares) != 1 || g.Shares[0].GPU != gpu.UUID {
			t.Errorf("%s: %v, grant %+v", p.name, l, g)
		}
		if s := p.claimStatus(); s.Level != "hardware" || s.GPU != gpu.UUID {
			t.Errorf("the claim of %s says %+v", p.name, s)
		}
	}
	if n := e.inMIGMode(); n != 1 {
		t.Errorf("%d GPUs in MIG mode", n)
	}
	third, share := e.create(byClaim("third", "half", run)), e.create(byClaim("share", "share", hold))
	third.unplaced()
	share.unplaced()
	before := e.agentInstances()
	e.signalAgent("KILL")
	eventually(e, "the agent's next start", func() error {
		if now := e.agentInstances(); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return e.agentReady()
	})
	for _, p := range []*pod{first, second} {
		if o := p.running(); o.Status.ContainerStatuses[0].RestartCount != 0 ||
			e.grantOf(p, "main").Level != "hardware" {
			t.Errorf("%s was disturbed: %s", p.name, describe(o))
		}
	}
	first.delete()
	third.running()
	for _, p := range []*pod{second, third} {
		p.delete()
	}
	share.running()
	if g := e.grantOf(share, "main"); g.Level != "driver" || e.inMIGMode() != 0 {
		t.Errorf("grant %+v, %d GPUs in MIG mode", g, e.inMIGMode())
	}
}

// taintOf is the effect of the taint of an unhealthy GPU on its devices; empty without one. It is an error if the
// devices differ.
func (e *testCase) taintOf(gpu string) (string, error) {
	devices, err := e.devicesOfNode()
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	for _, d := range devices {
		if !strings.HasPrefix(d.Name, strings.ToLower(gpu)) {
			continue
		}
		effect := ""
		for _, taint := range d.Taints {
			if taint.Key == "gpu.kerf.dev/unhealthy" {
				effect = string(taint.Effect)
			}
		}
		found[effect] = true
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the devices of GPU %s have the taints %v", gpu, found)
	}
	for effect := range found {
		return effect, nil
	}
	return "", nil
}

// wantTaint waits for the taint of the GPU's devices.
func (e *testCase) wantTaint(gpu, want string) {
	e.Helper()
	eventually(e, fmt.Sprintf("taint %q of the devices", want), func() error {
		if effect, err := e.taintOf(gpu); err != nil || effect != want {
			return fmt.Errorf("the taint is %q: %w", effect, errors.Join(err))
		}
		return nil
	})
}

// wantPodHealth waits until the pod's status says so of its GPU.
func (p *pod) wantPodHealth(want string) {
	p.e.Helper()
	eventually(p.e, "health "+want+" in the status of "+p.name, func() error {
		o := p.get()
		for _, c := range o.Status.ContainerStatuses {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if string(d.Health) == want {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("it says %+v", o.Status.ContainerStatuses)
	})
}

// An XID taints the devices of its GPU. New claims stay off it, its pod runs on, and the pod's status says that the GPU
// is unhealthy. After a reset, the GPU takes claims again. If the pool evicts, Kubernetes ends the pod.
func TestDRAHealth(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[2]
	e.template("small", "4Gi", gpu.UUID)
	t.Cleanup(func() { e.resetGPU(2) })
	user := e.create(byClaim("user", "small", hold))
	user.running()
	user.wantPodHealth("Healthy")
	e.node.set(t, "gpu=2 xid=48")
	e.wantTaint(gpu.UUID, string(resourceapi.DeviceTaintEffectNoSchedule))
	user.wantPodHealth("Unhealthy")
	later := e.create(byClaim("later", "small", hold))
	later.unplaced()
	user.running()
	e.resetGPU(2)
	e.wantTaint(gpu.UUID, "")
	later.running()
	user.wantPodHealth("Healthy")

	e.writeRules(e.changedRules(draRules, draRules+"    health: {onFault: evict, gracePeriod: 1h}\n"))
	e.node.set(t, "gpu=2 xid=48")
	e.wantTaint(gpu.UUID, string(resourceapi.DeviceTaintEffectNoExecute))
	for _, p := range []*pod{user, later} {
		eventually(e, "eviction of "+p.name, p.goneError)
	}
}
