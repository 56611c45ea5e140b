// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
)

// A change fails, and so does its undo. The GPU is unhealthy with the reason, also after a restart of the agent.
// Programs on it go on, the other GPUs are granted as before, and the GPU recovers when its driver does.
func TestMIGUndoThatFails(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1s")
	neighbour := m.run(flags("--mig 1g --name neighbour"), load("--alloc 1GiB --hold 1h"))
	neighbour.loads(1)
	before := m.wantCut(0, 1)
	m.set("gpu=0", "error.ci-create=insufficient-resources", "error.gi-destroy=unknown-error")
	m.refused(flags("--mig 2g"))
	sick := func() {
		t.Helper()
		m.wantHealth(0, "unhealthy")
		if why := m.state().GPUs[0].Reason; !strings.Contains(why, "undo") {
			t.Errorf("the reason is %q", why)
		}
		if said := m.refused(flags("--mig 1g")); !strings.Contains(said, "undo") {
			t.Errorf("a request gets %q", said)
		}
		for _, ask := range []string{"--memory 5GiB", "--gpus 1"} {
			if r := m.run(flags(ask), load("--alloc 1GiB")).wait(); r.code != 0 {
				t.Errorf("%s, of the other GPUs: %v", ask, r)
			}
		}
		if !neighbour.running() {
			t.Error("the neighbour does not run any more")
		}
	}
	sick()
	m.restartAgent()
	sick()
	m.set("gpu=0", "error.ci-create=none", "error.gi-destroy=none")
	m.wantHealth(0, "healthy")
	after := m.wantCut(0, 1)
	for at, uuid := range before {
		if after[at] != uuid {
			t.Errorf("the neighbour was at %v, and there is %v", before, after)
		}
	}
	if r := m.run(flags("--mig 2g"), load("--alloc 1GiB")).wait(); r.code != 0 {
		t.Errorf("an instance again: %v", r)
	}
	neighbour.end()
	m.wantCut(0, 0)
}
