// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// cutNode is what a test has of a node with two GPUs in MIG mode that loses power: on one instances come with demand,
// the other has a layout.
type cutNode struct {
	*testCase
	onDemand, laidOut int
	// before are the pods before the reboot, after those that came in their place.
	before, after []*pod
}

// layoutSize is how many instances the layout has.
const layoutSize = 3

// powered are the pods' ReplicaSets, what each asks for, and what it takes of that.
var powered = map[string]struct{ profile, alloc string }{"cut": {"2g.20gb", "15GiB"}, "laid-out": {"1g.10gb", "8GiB"}}

// cutForReboot has the agent manage MIG on the node until the test ends, with pods on both GPUs.
func (e *testCase) cutForReboot() *cutNode {
	e.Helper()
	c := &cutNode{testCase: e, onDemand: 6, laidOut: 7}
	rules := e.readRules()
	e.Cleanup(func() {
		defer e.writeRules(rules)
		e.nowRules(cutRules(e, rules, "{index: [6, 7], migEnabled: false}", ""))
		eventually(e, "an end of MIG mode", func() error { return e.modes(false) })
	})
	e.nowRules(cutRules(e, rules, "{index: [6], migEnabled: true}, {index: [7], migEnabled: true, instances: "+
		"{3g.40gb: 1, "+
		"1g.10gb: 2}}", ""))
	eventually(e, "MIG mode", func() error { return e.modes(true) })
	eventually(e, "the layout, and MIG profiles that kubelet offers", func() error {
		_, usable, err := e.capacity("kerf.dev/mig-2g.20gb")
		return errors.Join(c.asLaidOut(), offersSome(usable, err))
	})
	for name, ask := range powered {
		e.createReplicas(name, 1, one(name, instance(ask.profile), "exec gpuload --json --alloc "+ask.alloc+
			" --hold 1h"))
	}
	for name := range powered {
		c.before = append(c.before, e.replicas(name, 1)...)
	}
	return c
}

func offersSome(usable int64, err error) error {
	if err == nil && usable == 0 {
		err = errors.New("kubelet offers none")
	}
	return err
}

// asLaidOut returns nil while the driver has the layout.
func (c *cutNode) asLaidOut() error {
	if g := c.inDriver()[c.laidOut]; !g.MIG || len(g.Instances) != layoutSize {
		return fmt.Errorf("the GPU with a layout: %+v", g)
	}
	return nil
}

// leaveOpen begins the creation of an instance that does not end: the driver is at the first call, and the journal has
// it.
func (c *cutNode) leaveOpen() {
	c.Helper()
	c.node.set(c.T, fmt.Sprintf("gpu=%d latency.gi-create=1h", c.onDemand))
	c.createReplicas("under-way", 1, one("under-way", instance("4g.40gb"),
		"exec gpuload --json --alloc 30GiB --hold 1h"))
	eventually(c, "a journal with a call under way", func() error {
		data, err := c.journal()
		if err == nil && !strings.Contains(string(data), `"op":"create-gi"`) {
			err = fmt.Errorf("it is %s", data)
		}
		return err
	})
}

// journal is that of the GPU whose instances come with demand.
func (c *cutNode) journal() ([]byte, error) {
	c.Helper()
	return os.ReadFile(c.node.path("/var/lib/kerf/state/mig/" + c.node.gpus(c.T)[c.onDemand].UUID + ".json"))
}

// rebooted makes the driver slow, which has forgotten all instances and modes, and demands that the layout is there
// when kubelet first has something to offer.
func (c *cutNode) rebooted() {
	c.Helper()
	if g := c.inDriver()[c.laidOut]; g.MIG || len(g.Instances) > 0 {
		c.Fatalf("the driver has not forgotten what it had, or the agent was before us: %+v", g)
	}
	if _, err := c.journal(); err != nil {
		c.Fatalf("the journal has not outlived the reboot: %v", err)
	}
	c.node.set(c.T, fmt.Sprintf("gpu=%d latency.gi-create=1s", c.laidOut))
	eventually(c, "instances that kubelet offers", func() error { return c.kubeletOffers("kerf.dev/mig-1g.10gb") })
	if err := c.asLaidOut(); err != nil {
		c.Errorf("kubelet offers instances, and there is not yet what they are of: %v", err)
	}
}

// runsAgain demands that each pod, also the one whose instance was never ready, has its own instance again. Ledger and
// driver must agree, and no other instance may exist but the layout's.
func (c *cutNode) runsAgain() {
	c.Helper()
	names := map[string]string{"under-way": "4g.40gb"}
	for name, ask := range powered {
		names[name] = ask.profile
	}
	var devices []string
	for name, profile := range names {
		p := c.replicas(name, 1, c.before...)[0]
		c.after = append(c.after, p)
		if l := p.loads("main", 1)[0]; l.Error != nil {
			c.Errorf("%s after the reboot: %v", p.name, l)
		}
		g := c.grantOf(p, "main")
		if g.Level != "hardware" || len(g.Shares) != 1 || g.Shares[0].Profile != profile {
			c.Errorf("%s after the reboot: %+v, want %s", p.name, g, profile)
		}
		devices = append(devices, c.visible(p))
	}
	eventually(c, "a ledger that is as the driver is", func() error {
		here, _, _, err := c.bothSides()
		// Of the layout one is in use, and the others are on the GPU where instances come with demand.
		if want := layoutSize + len(devices) - 1; err == nil && len(here) != want {
			err = fmt.Errorf("the driver has %q, want %d instances", here, want)
		}
		return errors.Join(err, c.asLaidOut(), c.toldAsCut(slices.Clone(devices)))
	})
}
