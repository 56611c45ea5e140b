// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// A container that crun creates has the same cap as one of runc.
func TestCrun(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	s := one("crun", gibs(2), "gpuload --json --alloc 3GiB --step 64MiB; "+hold)
	s.runtimeClass = "crun"
	p := e.create(s)
	p.running()
	if l := p.loads("main", 1)[0]; l.Error == nil || l.Allocated >= 2*gib {
		t.Errorf("the program got %v", l)
	}
	g := e.wantHeld(p, "main", share(2*gib, 0))
	if caps := p.caps("main"); caps[g.Fragments[0].GPU] != 2*gib {
		t.Errorf("the driver has %v", caps)
	}
	p.delete()
	p.released()
}
