// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// The API server rejects obvious errors, and fields that a tenant must not write, with the remedy.
func TestPoliciesRefuse(t *testing.T) {
	t.Parallel()
	e := begin(t)
	limit := func(name, amount string) podSpec { return one("refused", map[string]string{name: amount}, hold) }
	annotated := func(key, value string) podSpec {
		s := one("refused", gibs(1), hold)
		s.annotations = map[string]string{key: value}
		return s
	}
	tests := map[string]struct {
		pod  podSpec
		want string
	}{
		"memory with a unit": {limit("kerf.dev/gpu-memory-gib", "10Gi"), "write 10, the unit is GiB"},
		"unknown resource": {limit("kerf.dev/gpu-memory", "10"),
			"kerf.dev/gpu-memory, which is no resource of Kerf"},
		"too many percent": {limit("kerf.dev/gpu-percent", "7k"), "write 25 for a quarter of one GPU"},
		"scheduler's placing": {annotated("scheduling.kerf.dev/main", "GPU-0"),
			"only the scheduler may write annotations"},
	}
	for name, tt := range tests {
		if said := e.refused(tt.pod); !strings.Contains(said, tt.want) {
			t.Errorf("%s: refused with %q, want %q in it", name, said, tt.want)
		}
	}
}
