// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestDRAAdmission: the API server rejects a claim that no node would take. describe says which device a pod lacks, or
// which claim it should have.
func TestDRAAdmission(t *testing.T) {
	e := beginWithDRA(t)
	const claim = `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: rejected, namespace: NAMESPACE}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: share.kerf.dev, capacity: {requests: {AMOUNT}}}
    config:
    - opaque:
        driver: gpu.kerf.dev
        parameters: {apiVersion: gpu.kerf.dev/v1alpha1, kind: GPUParameters, FIELD}
`
	for name, tt := range map[string]struct{ amount, field, rejected string }{
		"percent alone": {`percent: "25"`, "minEnforcement: driver", "percent alone is not enough"},
		"zero":          {"memory: 0", "minEnforcement: driver", "memory 0 is out of range"},
		"unknown field": {"memory: 10Gi", "memroy: 10Gi", "have no field memroy"},
	} {
		text := strings.NewReplacer("NAMESPACE", e.namespace, "AMOUNT", tt.amount, "FIELD", tt.field).Replace(claim)
		eventually(e, "rejection of "+name, func() error { // the API server takes a moment to know the policy
			err := e.apply(text)
			if err == nil || !strings.Contains(err.Error(), tt.rejected) {
				e.kubectl(text, "delete", "--ignore-not-found", "-f", "-")
				return fmt.Errorf("%w, want %q", err, tt.rejected)
			}
			return nil
		})
	}
	gpu := e.node.gpus(t)[0]
	e.template("huge", "500Gi", gpu.UUID)
	waits := e.create(byClaim("waits", "huge", hold))
	waits.unplaced()
	r := e.node.in(e.node.program("kerf"), "--kubeconfig", e.node.env["KUBECONFIG"], "describe", "pod", "waits", "-n",
		e.namespace)
	amount := e.create(one("amount", gibs(10), hold))
	amount.unplaced()
	said := e.node.in(e.node.program("kerf"), "--kubeconfig", e.node.env["KUBECONFIG"], "describe", "pod",
		"amount", "-n",
		e.namespace)
	if want := "deviceClassName share.kerf.dev, capacity.requests {memory: 10Gi}"; !strings.Contains(said.out, want) {
		t.Errorf("no %q in: %s", want, said)
	}
	for _, want := range []string{"500GiB (claim waits-gpu-", "none of 1 nodes has the devices of its claims",
		"FailedScheduling"} {
		if !strings.Contains(r.out+r.errOut, want) {
			t.Errorf("no %q in: %s", want, r)
		}
	}
}
