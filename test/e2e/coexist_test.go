// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// cordoned are the GPUs that the node's GPUNode says take nothing new, and why.
func (e *testCase) cordoned() (map[string]string, error) {
	var o struct {
		Status struct {
			GPUs []struct{ UUID, Cordoned string }
		}
	}
	r := e.kubectl("", "get", "gpunode", e.node.env["NODE_NAME"], "-o", "json")
	if r.err != nil {
		return nil, fmt.Errorf("kubectl get gpunode: %v", r)
	}
	if err := json.Unmarshal([]byte(r.out), &o); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, g := range o.Status.GPUs {
		if g.Cordoned != "" {
			out[g.UUID] = g.Cordoned
		}
	}
	return out, nil
}

// takesNothing waits until the GPU is cordoned for the other plugin, or not any more.
func (e *testCase) takesNothing(uuid string, want bool) {
	e.Helper()
	eventually(e, fmt.Sprintf("GPU %s to be cordoned: %t", uuid, want), func() error {
		all, err := e.cordoned()
		if err != nil {
			return err
		}
		if len(all) > 1 || len(all) == 1 && all[uuid] == "" {
			return final("others are cordoned: %v", all)
		}
		const remedy = "another device plugin hands it out as " + otherResource +
			"; take the GPU, or the node, from one of both"
		if why := all[uuid]; (why != "") != want || want && why != remedy {
			return fmt.Errorf("it says %q", why)
		}
		return nil
	})
}

// Kerf leaves a GPU to another device plugin by its rules: both hand out their own on one node, and neither what is the
// other's. Where both would hand out one GPU, Kerf gives nothing new of that GPU, says what to do, and goes on with the
// others; who is on it stays.
func TestBesideAnotherPlugin(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	t.Cleanup(func() { e.writeRules(rules) })
	gpus := e.node.gpus(t)
	theirs := gpus[7]
	full := e.allOffers()
	e.writeRules(e.changedRules("- name: default\n", "- name: default\n    gpuRules: [{uuid: ["+theirs.UUID+
		"], excluded: true}]\n"))
	eventually(e, "a GPU less", func() error {
		if have := e.offers()["gpu"][1]; have != 7 {
			return fmt.Errorf("%d are offered", have)
		}
		return nil
	})
	others := e.startOtherPlugin(theirs.UUID)

	whole := e.create(one("theirs", map[string]string{otherResource: "1"},
		"exec gpuload --json --alloc 60GiB --hold 1h"))
	rest := e.create(one("rest", wholeGPUs(6), hold))
	whole.running()
	rest.running()
	if l := whole.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total <= 70*gib {
		t.Errorf("a pod of the other plugin's has not its whole GPU: %v", l)
	}
	if len(whole.caps("main")) != 0 {
		t.Errorf("a pod of the other plugin's is capped: %v", whole.caps("main"))
	}
	spec := one("pinned", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h")
	spec.annotations = map[string]string{"kerf.dev/gpu-uuid": theirs.UUID}
	e.create(spec).event("no GPU of this node can give 10GiB of one GPU")
	ours := e.create(one("ours", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	ours.running()
	// On a GPU that is another's Kerf sets nothing, the least limit neither: what keeps its containers off it are the
	// device files.
	e.wantHeldBut(ours, "main", share(10*gib, 0), theirs.UUID)
	for _, g := range e.picture().Grants {
		if slices.ContainsFunc(g.Shares, func(f fragment) bool { return f.GPU == theirs.UUID }) {
			t.Errorf("Kerf gave the other plugin's GPU: %+v", g)
		}
	}
	if all, err := e.cordoned(); err != nil || len(all) != 0 {
		t.Errorf("no GPU is in dispute, and these are cordoned: %v, %v", all, err)
	}
	rest.delete()
	rest.released()

	on := e.grantOf(ours, "main").Shares[0].GPU
	others.handOut(e, theirs.UUID, on)
	e.takesNothing(on, true)
	before := e.heldBy(ours)
	next := e.create(one("next", gibs(10), hold))
	next.running()
	if gpu := e.wantHeldBut(next, "main", share(10*gib, 0), theirs.UUID).Shares[0].GPU; gpu == on ||
		gpu == theirs.UUID {
		t.Errorf("it lies on GPU %s, which is in dispute", gpu)
	}
	again := one("again", gibs(10), hold)
	again.annotations = map[string]string{"kerf.dev/gpu-uuid": on}
	e.create(again).event("not enough free", "another device plugin hands it out")
	e.wantSame(before, ours)

	others.handOut(e, theirs.UUID)
	e.takesNothing(on, false)
	whole.delete()
	others.handOut(e)
	e.writeRules(rules)
	e.offersBecome(full)
}
