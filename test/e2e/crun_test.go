// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// holdsItsCap runs a pod that allocates more than its cap.
func (e *testCase) holdsItsCap(change func(*podSpec)) {
	e.Helper()
	s := one("capped", gibs(2), "gpuload --json --alloc 3GiB --step 64MiB; "+hold)
	change(&s)
	p := e.create(s)
	p.running()
	if l := p.loads("main", 1)[0]; l.Error == nil || l.Allocated >= 2*gib {
		e.Errorf("the program got %v", l)
	}
	g := e.wantHeld(p, "main", share(2*gib, 0))
	if caps := p.caps("main"); caps[g.Shares[0].GPU] != 2*gib {
		e.Errorf("the driver has %v", caps)
	}
	p.delete()
	p.released()
}

// A container that crun creates has the same cap as one of runc.
func TestCrun(t *testing.T) {
	t.Parallel()
	beginWithAgent(t).holdsItsCap(func(s *podSpec) { s.runtimeClass = "crun" })
}

// So has a container whose pod has a user namespace.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	beginWithAgent(t).holdsItsCap(func(s *podSpec) {
		s.edit = func(p *corev1.Pod) { p.Spec.HostUsers = new(bool) }
	})
}
