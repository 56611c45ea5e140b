// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// A static pod is forgotten when the runtime has not had it twice; other pods are the API server's to tell of.
func TestForgottenStaticPods(t *testing.T) {
	const static, other, ordinary = "ae60b3b93f367910ce890665438c01a2", "949ac707e95cfa55180f58c6f7ff5c32",
		"5cd9a93c-6ea8-4210-b5ab-16ae4982dd4c"
	grants := []sharing.ContainerRef{
		{PodUID: static, Container: "a"}, {PodUID: static, Container: "b"}, {PodUID: other, Container: "a"},
		{PodUID: ordinary, Container: "a"},
	}
	steps := []struct {
		name  string
		there map[string]bool
		gone  []string
	}{
		{"both are there", map[string]bool{static: true, other: true}, nil},
		{"one is not", map[string]bool{other: true}, nil},
		{"it comes back", map[string]bool{static: true, other: true}, nil},
		{"it is not there again", map[string]bool{other: true}, nil},
		{"and still is not, and neither is the other", nil, []string{static}},
		{"both", nil, []string{static, other}},
	}
	var missing map[string]bool
	for _, step := range steps {
		var gone []string
		gone, missing = forgotten(grants, step.there, missing)
		if diff := cmp.Diff(step.gone, gone); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
