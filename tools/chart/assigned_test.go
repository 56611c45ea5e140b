// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestClaimControllerIsOptIn: no controller runs unless both values say so.
func TestClaimControllerIsOptIn(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   bool
	}{
		"nothing":    {values{}, false},
		"dra alone":  {values{"dra": values{"enabled": true}}, false},
		"not dra":    {values{"dra": values{"bindingConditions": values{"enabled": true}}}, false},
		"both":       {values{"dra": values{"enabled": true, "bindingConditions": values{"enabled": true}}}, true},
		"of variant": {binding(), true},
	} {
		got := strings.Contains(made(t, c.values)["agent/18-claims.yaml"], "assign-claims")
		if got != c.want {
			t.Errorf("%s: the controller runs: %t", name, got)
		}
	}
}

// TestClaimControllerAssignsAlone: the controller of claims writes the assigned claims of a GPUNode, and nothing that
// an administrator decided.
func TestClaimControllerAssignsAlone(t *testing.T) {
	s := newAPIServer(t, binding())
	claims := []any{values{"uid": "u", "namespace": "ns", "name": "c", "allocatedAt": "2026-09-01T10:00:00Z",
		"devices": []any{"d"}}}
	cordons := []any{values{"uuid": "GPU-1"}}
	updated := func(old, spec values) request {
		of := func(spec values) values {
			v := values{"metadata": values{"name": ownNode}}
			if spec != nil {
				v["spec"] = spec
			}
			return v
		}
		return request{Operation: "UPDATE", Resource: "gpunodes", User: "claim-controller", Object: of(spec),
			Old: of(old)}
	}
	byAdmin := func(r request) request { r.User = "admin"; return r }
	created := updated(nil, nil)
	created.Operation, created.Old = "CREATE", nil
	const only = "may change only the assigned claims of a GPUNode"
	for name, c := range map[string]struct {
		request
		denied string
	}{
		"assign the first": {updated(nil, values{"assignedClaims": claims}), ""},
		"assign beside a cordon": {updated(values{"cordonedGPUs": cordons},
			values{"cordonedGPUs": cordons, "assignedClaims": claims}), ""},
		"end":              {updated(values{"assignedClaims": claims}, values{"assignedClaims": []any{}}), ""},
		"cordon":           {updated(nil, values{"cordonedGPUs": cordons}), only},
		"uncordon":         {updated(values{"cordonedGPUs": cordons}, values{"assignedClaims": claims}), only},
		"drain":            {updated(values{}, values{"driverDrain": values{"reason": "x"}}), only},
		"resize":           {updated(values{}, values{"grantMemory": []any{values{"podUID": "u"}}}), only},
		"cordon as before": {updated(values{}, values{"cordoned": values{"GPU-1": values{}}}), only},
		"create":           {created, only},
		"an administrator": {byAdmin(updated(nil, values{"cordonedGPUs": cordons})), ""},
	} {
		if err := s.ask(t, c.request).wants(c.denied, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
