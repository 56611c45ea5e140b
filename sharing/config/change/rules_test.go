// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

func decoded(t *testing.T, spec string) config.Config {
	t.Helper()
	c, err := config.Decode([]byte("apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n" + spec))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRules(t *testing.T) {
	t.Parallel()
	before := decoded(t, `  prices: {currency: EUR, perKWh: 0.3}
  pools:
  - {name: a, nodeSelector: {x: a}, onOverCap: warn, mode: shared, powerLimitWatts: 200, allowedProfiles: [s, gone]}
  - {name: b}
  profiles: [{name: s, memory: 1GiB}, {name: gone, percent: 5}, {name: other, percent: 5}]
`)
	after := decoded(t, `  prices: {currency: EUR, perKWh: 0.4}
  pools:
  - {name: a, nodeSelector: {x: c}, onOverCap: kill, mode: mig, powerLimitWatts: 300, allowedProfiles: [s],
    idle: {timeout: 2h, action: warn}, migLayouts: [{migEnabled: true}]}
  - {name: b, onUnmanagedProcess: kill}
  profiles: [{name: s, memory: 2GiB, onOverCap: evict, namespaces: [x], allowPrivileged: true},
    {name: gone, percent: 5}, {name: other, percent: 6}]
`)
	got, err := change.Rules(before, after, before.Pools()[0], after.Pools()[0])
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range got {
		lines = append(lines, fmt.Sprintf("%s (%s) %s", r.Difference, r.Profile, r.Effect))
	}
	want := []string{
		"+ idle.timeout: 2h0m0s () at once", "+ idle.action: warn () at once", "~ onOverCap: warn -> kill () at once",
		"~ allowedProfiles: [s, gone] -> [s] () new grants", "~ prices.perKWh: 0.3 -> 0.4 () at once",
		"- profiles[gone].name: gone (gone) new grants", "- profiles[gone].percent: 5 (gone) new grants",
		"~ profiles[s].memory: 1GiB -> 2GiB (s) new grants", "+ profiles[s].namespaces: [x] (s) new grants",
		"+ profiles[s].onOverCap: evict (s) at once",
		"+ profiles[s].allowPrivileged: true (s) new grants",
	}
	slices.Sort(want)
	slices.Sort(lines)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if moved, err := change.Rules(before, before, before.Pools()[0], before.Pools()[1]); err != nil || len(moved) == 0 {
		t.Errorf("a node that changes its pool: %v, %v", moved, err)
	}
	if same, err := change.Rules(after, after, after.Pools()[1], after.Pools()[1]); err != nil || len(same) > 0 {
		t.Errorf("a config and itself: %v, %v", same, err)
	}
}

// Every field of a pool and of a profile has a described effect: an added one is not reported as something else.
func TestRulesKnowEachField(t *testing.T) {
	t.Parallel()
	pool, profile := change.EffectsOfPool(), change.EffectsOfProfile()
	var seen int
	for _, f := range config.Describe().Fields {
		if f.Name != "spec" {
			continue
		}
		for _, list := range f.Type.Fields {
			effects := map[string]map[string]change.Effect{"pools": pool, "profiles": profile}[list.Name]
			if effects == nil {
				continue
			}
			for _, field := range list.Type.Of.Fields {
				seen++
				if _, known := effects[field.Name]; !known {
					t.Errorf("nothing says when a change of %s[].%s counts", list.Name, field.Name)
				}
			}
		}
	}
	if seen != len(pool)+len(profile) {
		t.Errorf("%d fields, and %d effects", seen, len(pool)+len(profile))
	}
}

func TestNewGrants(t *testing.T) {
	t.Parallel()
	before := config.Pool{Mode: config.ModeShared, MaxSharesPerGPU: 8}
	after := config.Pool{Mode: config.ModeShared, MaxSharesPerGPU: 4, GPURules: []config.GPURule{
		{Indexes: []int{1}, Settings: config.GPUSettings{Mode: config.ModeWhole, MaxSharesPerGPU: 8}},
		{Indexes: []int{2}, Settings: config.GPUSettings{Excluded: true}},
	}}
	var uses []change.Use
	for i := range 3 {
		uses = append(uses, change.Use{GPU: sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", i)), Index: i},
			Users: []string{"ns/a"}[i%2:]})
	}
	got := change.NewGrants(before, after, uses)
	want := []change.Step{
		{GPU: "GPU-0", Index: 0, What: []string{"maxSharesPerGPU 8 -> 4"}, For: []string{"ns/a"}},
		{GPU: "GPU-1", Index: 1, What: []string{"mode shared -> whole"}, For: []string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := change.NewGrants(before, before, uses); len(none) > 0 {
		t.Errorf("nothing differs: %v", none)
	}
}
