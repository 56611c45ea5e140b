// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// A pool that wants shares of time held strictly is warned of where it lists nothing that holds them.
func TestIdleRule(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - "
	for pool, warned := range map[string]bool{
		"{name: a, computePolicy: strict, backends: [driver, reactive]}": true,
		"{name: a, computePolicy: strict, backends: [driver]}":           true,
		"{name: a, computePolicy: strict}":                               false,
		"{name: a, computePolicy: strict, backends: [driver, libkerf]}":  false,
		"{name: a, computePolicy: strict, backends: [driver, mps]}":      false,
		"{name: a, computePolicy: strict, mode: whole}":                  false,
		"{name: a, computePolicy: fair, backends: [driver, reactive]}":   false,
		"{name: a, computePolicy: strict, backends: [driver, mps], gpuRules: [{index: [0], maxSharesPerGPU: 2}, " +
			"{index: [1], backends: " +
			"[driver, reactive]}]}": true,
		"{name: a, computePolicy: strict, backends: [driver, mps], gpuRules: [{index: [1], backends: [driver, " +
			"libkerf]}]}": false,
	} {
		c, err := config.Decode([]byte(head + pool + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", pool, err)
		}
		p, err := c.PoolFor(nil)
		if err != nil {
			t.Fatalf("%s: %v", pool, err)
		}
		if got := idleRule(c, p); (got != "") != warned || warned && !strings.Contains(got, "libkerf and mps do") {
			t.Errorf("%s: warned %q", pool, got)
		}
	}
}

func TestMPSRule(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - "
	for pool, warned := range map[string]bool{
		"{name: a, backends: [driver, mps, reactive]}": true,
		"{name: a, backends: [driver, libkerf]}":       false,
		"{name: a, mode: whole}":                       false,
		"{name: a, backends: [driver, libkerf], gpuRules: [{index: [1], backends: [driver, mps]}]}": true,
	} {
		c, err := config.Decode([]byte(head + pool + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", pool, err)
		}
		p, err := c.PoolFor(nil)
		if err != nil {
			t.Fatalf("%s: %v", pool, err)
		}
		if got := mpsRule(c, p, "no mounts"); (got != "") != warned || warned &&
			(!strings.Contains(got, "no mounts") || !strings.Contains(got, "as a service")) {
			t.Errorf("%s: warned %q", pool, got)
		}
		if got := mpsRule(c, p, ""); got != "" {
			t.Errorf("%s where MPS holds pods: warned %q", pool, got)
		}
	}
}
