// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
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

// A pod with admin access sees all GPUs, while others use them, and has no grant. It takes nothing of a GPU.
func TestDRAAdmin(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	const label = "resource.kubernetes.io/admin-access"
	if r := e.kubectl("", "label", "namespace", e.namespace, label+"=true"); r.err != nil {
		t.Fatal(r)
	}
	t.Cleanup(func() { e.kubectl("", "label", "namespace", e.namespace, label+"-") })
	e.template("most", "70Gi", gpu.UUID)
	user := e.create(byClaim("user", "most", hold))
	user.running()
	if err := e.apply(fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: admin, namespace: %s}
spec:
  spec:
    devices:
      requests:
      - name: gpus
        exactly:
          deviceClassName: monitor.kerf.dev
          adminAccess: true
`, e.namespace)); err != nil {
		t.Fatal(err)
	}
	monitor := e.create(byClaim("monitor", "admin", hold))
	monitor.running()
	out, errOut, err := monitor.exec("main", "/bin/sh", "-c", "ls /dev")
	if n := strings.Count(out, "nvidia") - strings.Count(out, "nvidia-") -
		strings.Count(out, "nvidiactl"); err != nil ||
		n != 8 {
		t.Errorf("it has %d GPUs of 8: %q, %q, %v", n, out, errOut, err)
	}
	for _, g := range e.picture().Grants {
		if g.Pod == "monitor" {
			t.Errorf("it has a grant: %+v", g)
		}
	}
	e.wantHeld(user, "main", share(70*gib, 0))
}
