// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestAgentKeepsTheSpecOfItsGPUNode: an agent writes the status of its own GPUNode and its metadata, and never what an
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
	cordon := values{"cordonedGPUs": []any{values{"uuid": "GPU-1"}}}
	const spec, other = "may not change the spec of a GPUNode", "of its own node alone"
	for name, c := range map[string]struct {
		request
		denied string
	}{
		"create":                   {request{Operation: "CREATE", Object: named(ownNode, nil)}, ""},
		"create with a spec":       {request{Operation: "CREATE", Object: named(ownNode, cordon)}, spec},
		"create another":           {request{Operation: "CREATE", Object: named("n2", nil)}, other},
		"keep none":                {request{Operation: "UPDATE", Object: named(ownNode, nil), Old: named(ownNode, nil)}, ""},
		"keep it":                  {request{Operation: "UPDATE", Object: named(ownNode, cordon), Old: named(ownNode, cordon)}, ""},
		"add one":                  {request{Operation: "UPDATE", Object: named(ownNode, cordon), Old: named(ownNode, nil)}, spec},
		"remove it":                {request{Operation: "UPDATE", Object: named(ownNode, nil), Old: named(ownNode, cordon)}, spec},
		"change it":                {request{Operation: "UPDATE", Object: named(ownNode, values{}), Old: named(ownNode, cordon)}, spec},
		"an administrator adds it": {request{Operation: "UPDATE", User: "admin", Object: named(ownNode, cordon), Old: named(ownNode, nil)}, ""},
		"the status": {request{Operation: "UPDATE", Resource: "gpunodes/status", Object: named(ownNode, nil),
			Old: named(ownNode, nil)}, ""},
	} {
		if c.User == "" {
			c.User = "agent"
		}
		if c.Resource == "" {
			c.Resource = "gpunodes"
		}
		if err := s.ask(t, c.request).wants(c.denied, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
