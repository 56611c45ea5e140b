// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	doc := func(spec string) config.Config {
		t.Helper()
		c, err := config.Decode([]byte("apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n" + spec))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := doc(`  pools:
  - {name: a, onOverCap: warn, backends: [driver]}
  - {name: b, nodeSelector: {x: ""}, gpuRules: [{index: [0], excluded: true}]}
  profiles: [{name: s, memory: 1024MiB}]
`)
	after := doc(`  profiles: [{memory: 1GiB, name: s, percent: 10}]
  pools:
  - {backends: [driver, reactive], name: a, onOverCap: kill}
  - {name: c, nodeSelector: {x: c}}
`)
	got, err := change.Between(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range got {
		lines = append(lines, d.String())
	}
	want := []string{
		"~ pools[a].backends: [driver] -> [driver, reactive]", "~ pools[a].onOverCap: warn -> kill",
		"- pools[b].gpuRules[0].excluded: true", "- pools[b].gpuRules[0].index: [0]", "- pools[b].name: b",
		`- pools[b].nodeSelector.x: ""`,
		"+ pools[c].name: c", "+ pools[c].nodeSelector.x: c", "+ profiles[s].percent: 10",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if same, err := change.Between(before, before); len(same) > 0 || err != nil {
		t.Errorf("a config and itself: %v, %v", same, err)
	}
}
