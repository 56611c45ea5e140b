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
	c, err := config.Decode([]byte("apiVersion: kerf.dev/v1alpha1\nkind: SharingConfig\nspec:\n" + spec))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRules(t *testing.T) {
	t.Parallel()
	before := decoded(t, `  prices: {currency: EUR, kWh: 0.3}
  pools:
  - {name: a, nodeSelector: {x: a}, overCap: warn, mode: shared, powerLimitWatts: 200, profiles: [s, gone]}
  - {name: b}
  profiles: [{name: s, memory: 1GiB}, {name: gone, percent: 5}, {name: other, percent: 5}]
`)
	after := decoded(t, `  prices: {currency: EUR, kWh: 0.4}
  pools:
  - {name: a, nodeSelector: {x: c}, overCap: kill, mode: mig, powerLimitWatts: 300, profiles: [s], idle: {after: 2h, do: notify}, mig: [{enabled: true}]}
  - {name: b, strangers: kill}
  profiles: [{name: s, memory: 2GiB, overCap: evict, namespaces: [x], privileged: true}, {name: gone, percent: 5}, {name: other, percent: 6}]
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
		"+ idle.after: 2h0m0s () at once", "+ idle.do: notify () at once", "~ overCap: warn -> kill () at once",
		"~ profiles: [s, gone] -> [s] () new claims", "~ prices.kWh: 0.3 -> 0.4 () at once",
		"- profiles[gone].name: gone (gone) new claims", "- profiles[gone].percent: 5 (gone) new claims",
		"~ profiles[s].memory: 1GiB -> 2GiB (s) new claims", "+ profiles[s].namespaces: [x] (s) new claims", "+ profiles[s].overCap: evict (s) at once",
		"+ profiles[s].privileged: true (s) new claims",
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
		t.Errorf("a document and itself: %v, %v", same, err)
	}
}

// Every field of a pool and of a profile has an effect that somebody wrote down: one that is added is not told as something else.
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
					t.Errorf("nobody says when a change of %s[].%s counts", list.Name, field.Name)
				}
			}
		}
	}
	if seen != len(pool)+len(profile) {
		t.Errorf("%d fields, and %d effects", seen, len(pool)+len(profile))
	}
}

func TestNewClaims(t *testing.T) {
	t.Parallel()
	before := config.Pool{Mode: config.ModeShared, Sharers: 8}
	after := config.Pool{Mode: config.ModeShared, Sharers: 4, GPUs: []config.GPURule{
		{Indexes: []int{1}, Settings: config.GPUSettings{Mode: config.ModeWhole, Sharers: 8}}, {Indexes: []int{2}, Settings: config.GPUSettings{Exclude: true}},
	}}
	var uses []change.Use
	for i := range 3 {
		uses = append(uses, change.Use{GPU: sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", i)), Index: i}, Users: []string{"ns/a"}[i%2:]})
	}
	got := change.NewClaims(before, after, uses)
	want := []change.Step{
		{GPU: "GPU-0", Index: 0, What: []string{"sharers 8 -> 4"}, For: []string{"ns/a"}},
		{GPU: "GPU-1", Index: 1, What: []string{"mode shared -> whole"}, For: []string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := change.NewClaims(before, before, uses); len(none) > 0 {
		t.Errorf("nothing differs: %v", none)
	}
}
