// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A privileged pod with a claim does not start, and the event says why. It starts once its namespace allows it.
func TestDRAPrivileged(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("small", "10Gi", gpu.UUID)
	spec := byClaim("strong", "small", hold)
	use := spec.edit
	spec.edit = func(p *corev1.Pod) {
		use(p)
		yes := true
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	}
	strong := e.create(spec)
	strong.event("kerf:", `privileged container "main"`, "kerf.dev/allow-privileged=true")
	if r := e.kubectl("", "label", "namespace", e.namespace, "kerf.dev/allow-privileged=true"); r.err != nil {
		t.Fatal(r)
	}
	t.Cleanup(func() { e.kubectl("", "label", "namespace", e.namespace, "kerf.dev/allow-privileged-") })
	strong.running() // kubelet tries again
	e.wantHeld(strong, "main", share(10*gib, 0))
}
