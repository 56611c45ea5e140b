// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// The agent creates an instance as soon as the pod has its sandbox, and waits for no image: it is there for a pod whose
// image never comes, and no container was ever made.
func TestMIGInstanceBeforeTheImage(t *testing.T) {
	e := withScheduler(t)
	e.cutNode()
	spec := one("early", instance("3g.40gb"), hold)
	spec.containers[0].image = "kerf.test/nowhere:1"
	p := e.create(spec)
	p.event("MIGInstanceReady", "3g.40gb", "Kerf created")
	p.event("ErrImageNeverPull")
	for _, s := range p.get().Status.ContainerStatuses {
		if s.ContainerID != "" || s.State.Waiting == nil {
			t.Errorf("a container without an image: %+v", s)
		}
	}
	eventually(e, "one instance, the pod's", func() error { return e.cutAsBooked(1) })
	p.delete()
	eventually(e, "no instance", func() error { return e.cutAsBooked(0) })
}
