// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestAgentKeepsTheSpecOfItsGPUNode: an agent writes the status and the metadata of its GPUNode, and never what an
// administrator decided.
func TestAgentKeepsTheSpecOfItsGPUNode(t *testing.T) {
	s := newAPIServer(t, values{})
	named := func(name string, spec values) values {
		v := values{"metadata": values{"name": name}}
		if spec != nil {
			v["spec"] = spec
		}
		return v
	}
	created := func(v values) request {
		return request{Operation: "CREATE", Resource: "gpunodes", User: "agent", Object: v}
	}
	updated := func(old, spec values) request {
		return request{Operation: "UPDATE", Resource: "gpunodes", User: "agent", Object: named(ownNode, spec),
			Old: named(ownNode, old)}
	}
	byAdmin := func(r request) request { r.User = "admin"; return r }
	ofStatus := func(r request) request { r.Resource = "gpunodes/status"; return r }
	cordon := values{"cordonedGPUs": []any{values{"uuid": "GPU-1"}}}
	const spec, other = "may not change the spec of a GPUNode", "of its own node alone"
	for name, c := range map[string]struct {
		request
		denied string
	}{
		"create":                   {created(named(ownNode, nil)), ""},
		"create with a spec":       {created(named(ownNode, cordon)), spec},
		"create another":           {created(named("n2", nil)), other},
		"keep none":                {updated(nil, nil), ""},
		"keep it":                  {updated(cordon, cordon), ""},
		"add one":                  {updated(nil, cordon), spec},
		"remove it":                {updated(cordon, nil), spec},
		"change it":                {updated(cordon, values{}), spec},
		"an administrator adds it": {byAdmin(updated(nil, cordon)), ""},
		"the status":               {ofStatus(updated(cordon, cordon)), ""},
	} {
		if err := s.ask(t, c.request).wants(c.denied, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
