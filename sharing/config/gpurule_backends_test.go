// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU's own list goes before the profile's, and that before the pool's; only what the first rule says that fits
// counts.
func TestBackendsOn(t *testing.T) {
	t.Parallel()
	c := decode(t, head+`spec:
  pools:
  - name: a
    minEnforcement: reactive
    backends: [driver, libkerf, reactive]
    gpuRules:
    - {index: [0], backends: [driver, mps, reactive], minEnforcement: userspace}
    - {index: [1], minEnforcement: driver}
    - {index: [0, 2], maxSharesPerGPU: 2}
    - {index: [3], backends: [driver]}
  - name: b
    nodeSelector: {p: b}
  profiles:
  - {name: plain, percent: 10}
  - {name: watched, percent: 10, backends: [driver, reactive]}
`)
	driver, mps, pool, watched := []sharing.Backend{sharing.BackendDriver}, []sharing.Backend{sharing.BackendDriver,
		sharing.BackendMPS, sharing.BackendReactive}, []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf,
		sharing.BackendReactive}, []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive}
	for index, tt := range map[int]struct {
		list, profile []sharing.Backend
		level         sharing.Level
	}{
		0: {mps, mps, sharing.LevelUserspace},
		1: {pool, watched, sharing.LevelDriver},
		2: {pool, watched, sharing.LevelUnknown},
		3: {driver, driver, sharing.LevelUnknown},
		4: {pool, watched, sharing.LevelUnknown},
	} {
		p := c.Pools()[0]
		s := p.Of(sharing.GPU{Index: index})
		if s.MinLevel != tt.level {
			t.Errorf("GPU %d: level %v, want %v", index, s.MinLevel, tt.level)
		}
		for profile, want := range map[string][]sharing.Backend{"": tt.list, "plain": tt.list, "gone": tt.list,
			"watched": tt.profile} {
			got := c.BackendsOn(s, p, profile)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("profile %q on GPU %d (-want +got):\n%s", profile, index, d)
			}
			got[0] = sharing.BackendNone // it is a copy
		}
	}
	for b, want := range map[sharing.Backend]bool{sharing.BackendDriver: true, sharing.BackendMPS: true,
		sharing.BackendLibkerf: true, sharing.BackendReactive: true} {
		if got := c.Lists(c.Pools()[0], b); got != want {
			t.Errorf("the first pool lists %v: %v", b, got)
		}
		if got := c.Lists(c.Pools()[1], b); got != slices.Contains(DefaultBackends(), b) {
			t.Errorf("the second pool lists %v: %v", b, got)
		}
	}
}

func TestRuleBackendMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools:
  - name: a
    minEnforcement: userspace
    overcommit: {memory: 1.5}
    gpuRules:
    - {index: [0], backends: []}
    - {index: [1], backends: [mps, driver]}
    - {index: [2], backends: [driver, mps, mps, libkerf, reactive, reactive], minEnforcement: reactive}
    - {index: [3], backends: [driver, lipkerf], minEnforcement: exclusive}
    - {index: [4], minEnforcement: driver}
    - {index: [5], minEnforcement: driver, overcommit: {memory: 1}}
    - {index: [6], mode: whole, backends: [driver], minEnforcement: userspace}
    - {index: [7], excluded: true, backends: [driver]}
    - {index: [8], mode: mig, backends: [driver], minEnforcement: userspace}
  - name: b
    nodeSelector: {x: b}
    mode: whole
    gpuRules:
    - {index: [0], backends: [driver, reactive]}
    - {index: [1], backends: [driver, reactive], mode: shared}
`))
	checkLines(t, err, []string{
		"line 9: spec.pools[0].gpuRules[0].backends is an empty list; begin with driver, or leave the field out",
		`line 10: spec.pools[0].gpuRules[1].backends "mps" does not begin with driver`,
		`line 11: spec.pools[0].gpuRules[2].backends[2] "mps" is named twice`,
		`line 11: spec.pools[0].gpuRules[2].backends[5] "reactive" is named twice`,
		`line 11: spec.pools[0].gpuRules[2].minEnforcement "reactive" is less than the userspace that the pool ` +
			`demands of every grant; write userspace or more`,
		`line 12: spec.pools[0].gpuRules[3].backends[1] "lipkerf" is not a backend of this version; did you mean ` +
			`libkerf?`,
		`line 12: spec.pools[0].gpuRules[3].minEnforcement "exclusive" is not a level of a fraction; write none, ` +
			`reactive, userspace or driver, or mode: whole or mig`,
		`line 13: spec.pools[0].gpuRules[4].minEnforcement "driver" cannot be had where memory is overcommitted`,
		"line 15: spec.pools[0].gpuRules[6].backends is for fractions, and mode whole gives none; leave it out",
		"line 15: spec.pools[0].gpuRules[6].minEnforcement is for fractions, and mode whole gives none; leave it out",
		"line 16: spec.pools[0].gpuRules[7].excluded leaves the GPUs to others, and settings follow",
		"line 22: spec.pools[1].gpuRules[0].backends is for fractions, and mode whole gives none; leave it out",
	})
	_, err = New(Spec{Pools: []Pool{{Name: "a", GPURules: []GPURule{
		{Settings: GPUSettings{Backends: "driver,lipkerf", MinLevel: sharing.LevelHardware}},
	}}}})
	checkLines(t, err, []string{"spec.pools[0].gpuRules[0].backends[1] is not a backend",
		`spec.pools[0].gpuRules[0].minEnforcement "hardware" is not a level of a fraction`})
}

// What holds for a GPU is compared and kept with its list.
func TestBackendList(t *testing.T) {
	t.Parallel()
	for _, list := range [][]sharing.Backend{nil, {sharing.BackendDriver},
		{sharing.BackendDriver, sharing.BackendLibkerf, sharing.BackendMPS, sharing.BackendReactive}} {
		s := GPUSettings{Backends: BackendListOf(list...), MinLevel: sharing.LevelUserspace}
		if d := cmp.Diff(list, s.Backends.List()); d != "" {
			t.Errorf("%v (-want +got):\n%s", list, d)
		}
		text, err := json.Marshal(s)
		var again GPUSettings
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if err != nil || again != s {
			t.Errorf("%s reads as %+v, %v", text, again, err)
		}
	}
	if BackendListOf(sharing.BackendDriver, sharing.BackendMPS, sharing.BackendLibkerf) == BackendListOf(
		sharing.BackendDriver, sharing.BackendLibkerf, sharing.BackendMPS) {
		t.Error("the order makes no difference")
	}
}

// A config with such rules is written as it is read.
func TestRuleBackendsEncode(t *testing.T) {
	t.Parallel()
	c := decode(t, head+"spec:\n  pools:\n  - name: a\n    gpuRules: [{index: [0], backends: [driver, libkerf, mps], "+
		"minEnforcement: none}]\n")
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c.Spec(), decode(t, string(text)).Spec()); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, text)
	}
}
