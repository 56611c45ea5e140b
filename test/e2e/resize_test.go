// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// An administrator changes the memory of a running pod through the API server, up and down. What is not possible
// changes nothing, and an event of the pod has the reason.
func TestResizedByAdministrator(t *testing.T) {
	e := beginWithAgent(t)
	p := e.create(one("resized", gibs(5), hold))
	p.running()
	eventually(e, "its grant in the GPUNode", func() error {
		s, err := e.gpuNode()
		if err == nil && !slices.ContainsFunc(s.Grants, func(g nodeGrant) bool { return g.Pod == p.name }) {
			err = fmt.Errorf("grants %+v", s.Grants)
		}
		return err
	})
	resize := func(memory string, more ...string) result {
		return e.node.in(append([]string{e.node.program("kerf"), "--kubeconfig", e.node.env["KUBECONFIG"], "resize",
			e.namespace + "/" + p.name + "/main", "--memory", memory}, more...)...)
	}
	for _, step := range []struct {
		memory string
		want   uint64
	}{{"8GiB", 8 * gib}, {"4GiB", 4 * gib}} {
		if r := resize(step.memory); r.err != nil || !strings.Contains(r.out, "/main: "+step.memory+", was ") {
			t.Fatalf("kerf resize --memory %s: %v", step.memory, r)
		}
		e.wantHeld(p, "main", share(step.want, 0))
	}
	if r := resize("500GiB", "--timeout", "2s"); r.err == nil || !strings.Contains(r.errOut, "GPUMemoryResizeFailed") {
		t.Errorf("more than a GPU has: %v", r)
	}
	eventually(e, "the reason in an event", func() error {
		return p.saidError("The memory of container main stays 4GiB instead of 500GiB")
	})
	e.wantHeld(p, "main", share(4*gib, 0))
}
