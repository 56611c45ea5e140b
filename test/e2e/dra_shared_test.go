// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// claimOf makes a ResourceClaim of a device of one GPU, which several pods can name.
func (e *testCase) claimOf(name, class, gpu, capacity string) {
	e.Helper()
	text := fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: %s}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: %s
        selectors:
        - cel: {expression: "device.attributes['gpu.kerf.dev'].uuid == '%s'"}
%s`, name, e.namespace, class, gpu, capacity)
	if err := e.apply(text); err != nil {
		e.Fatal(err)
	}
}

// byName is a pod with containers that use an existing ResourceClaim.
func byName(spec podSpec, claim string) podSpec {
	before := spec.edit
	spec.edit = func(p *corev1.Pod) {
		if before != nil {
			before(p)
		}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}
	}
	return spec
}

// Two containers of one pod and a second pod have one whole GPU at once. It stays theirs when the first pod ends, and
// when agent and kubelet restart. It is free once both pods have ended.
func TestDRAWholeShared(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.claimOf("whole", "whole.kerf.dev", gpu.UUID, "")
	spec := byName(one("first", nil, hold), "whole")
	use := spec.edit
	spec.edit = func(p *corev1.Pod) {
		side := *p.Spec.Containers[0].DeepCopy()
		side.Name = "side"
		p.Spec.Containers = append(p.Spec.Containers, side)
		use(p)
	}
	first, second := e.create(spec), e.create(byName(one("second", nil, hold), "whole"))
	first.running()
	second.running()
	check := func(pods map[string]*pod) {
		t.Helper()
		for container, p := range pods {
			if g := e.grantOf(p, container); g.Level != "exclusive" || len(g.Shares) != 1 ||
				g.Shares[0].GPU != gpu.UUID {
				t.Errorf("%s of %s has %+v", container, p.name, g)
			}
		}
	}
	check(map[string]*pod{"main": first, "side": first})
	check(map[string]*pod{"main": second})
	e.killAgentOfDRA()
	e.node.restart(t, "kubelet")
	first.delete()
	first.released()
	check(map[string]*pod{"main": second})
	e.template("small", "10Gi", gpu.UUID)
	next := e.create(byClaim("next", "small", hold))
	next.unplaced()
	second.delete()
	second.released()
	next.running()
	e.wantHeld(next, "main", share(10*gib, 0))
}

// A second pod of a claim of a share waits on its node while the first one runs. It takes over the share when that
// ends.
func TestDRATakeover(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.claimOf("share", "share.kerf.dev", gpu.UUID, "        capacity: {requests: {memory: 10Gi}}\n")
	first := e.create(byName(one("first", nil, hold), "share"))
	first.running()
	e.wantHeld(first, "main", share(10*gib, 0))
	second := e.create(byName(one("second", nil, hold), "share"))
	second.event("has the ResourceClaim and has not ended")
	first.delete()
	second.running()
	e.wantHeld(second, "main", share(10*gib, 0))
	first.released()
}
