// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// What a profile requests is, taken back as a request, what the profile gives.
func TestAsksOfProfiles(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"memory: 10GiB, percent: 10":  {sharing.ResourceMemory: "10", sharing.ResourcePercent: "10"},
		"memory: 12GiB, gpuCount: 2":  {sharing.ResourceMemory: "12"},
		"memory: 1TiB":                {sharing.ResourceMemory: "1024"},
		"memory: 2048MiB":             {sharing.ResourceMemory: "2"},
		"memory: 1500MiB":             {},
		"memory: 1500MiB, percent: 5": {},
		"percent: 50":                 {sharing.ResourcePercent: "50"},
		"gpuCount: 2":                 {sharing.ResourceGPU: "2"},
	} {
		c, err := Decode([]byte("apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools: [{name: " +
			"default}]\n  profiles: [{name: p, " + text + "}]\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		p, _ := c.Profile("p")
		if d := cmp.Diff(want, sharing.Limits(p.Requests())); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
			continue
		}
		if len(want) == 0 {
			continue
		}
		r, ok, err := sharing.RequestFromResources(want, nil, "main")
		if err != nil || !ok || r.Memory != p.Memory || r.Percent != p.Percent ||
			(r.Kind == sharing.KindWhole) != (p.Memory == 0 && p.Percent == 0) {
			t.Errorf("%s: taken back it is %+v, %v", text, r, err)
		}
	}
}
