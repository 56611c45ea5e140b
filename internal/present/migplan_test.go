// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// A plan is drawn as the GPU is and as it is after it, with what stays under one letter; what was done is drawn as it
// is.
func TestMIGPlans(t *testing.T) {
	s := FromNode(&nodev1.GetNodeResponse{Gpus: []*nodev1.GPU{
		{Uuid: "GPU-0", Index: 0, Model: "H100", Mig: true, MigState: &nodev1.MIG{Able: true, On: true, Units: 8,
			Pieces: []*nodev1.MIGInstance{
				{Profile: "1g.10gb", Start: 1, Size: 1},
				{Profile: "2g.20gb", Start: 2, Size: 2, Ours: true, Ready: true, Holder: "pod a/b"},
				{Profile: "1g.10gb", Start: 6, Size: 1, Ours: true, Ready: true},
			}}},
		{Uuid: "GPU-1", Index: 1, Model: "H100"},
		{Uuid: "GPU-2", Index: 2, Model: "H100", MigState: &nodev1.MIG{Able: true, Units: 8}},
	}})
	plans := []*nodev1.MIGPlan{
		{
			Gpu: "GPU-0", Units: 8, Steps: []string{"destroy 1g.10gb at 6", "create 3g.40gb at 4"},
			Waits: "waits for pod a/b\x1b[2J",
			After: []*nodev1.MIGInstance{
				{Profile: "1g.10gb", Start: 1, Size: 1, Ready: true},
				{Profile: "2g.20gb", Start: 2, Size: 2, Ours: true, Ready: true},
				{Profile: "3g.40gb", Start: 4, Size: 4, Ours: true, Ready: true},
			},
		},
		{Gpu: "GPU-1", Index: 1, Units: 4, Steps: []string{"set MIG mode on", "create 4g at 0"},
			After: []*nodev1.MIGInstance{{Profile: "4g", Size: 4, Ours: true, Ready: true}}},
		{Gpu: "GPU-2", Index: 2},
		{Gpu: "GPU-9", Index: 9, Waits: "this GPU cannot do MIG"},
	}
	const want = `GPU 0  GPU-0
  now   [.#bb..c.]
  then  [.#bbdddd]
  #  1g.10gb  at 1  not made by Kerf
  b  2g.20gb  at 2  pod a/b
  c  1g.10gb  at 6  free, goes
  d  3g.40gb  at 4  is made
  destroy 1g.10gb at 6
  create 3g.40gb at 4
  left undone: waits for pod a/b?[2J
GPU 1  GPU-1
  now   [....]
  then  [aaaa]
  a  4g  at 0  is made
  set MIG mode on
  create 4g at 0
GPU 9  GPU-9
  left undone: this GPU cannot do MIG
`
	if d := cmp.Diff(want, MIGPlans(s, plans, false)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	const done = `GPU 0  GPU-0
  now   [.#bb..c.]
  #  1g.10gb  at 1  not made by Kerf
  b  2g.20gb  at 2  pod a/b
  c  1g.10gb  at 6  free
  done: destroy 1g.10gb at 6
  done: create 3g.40gb at 4
  left undone: waits for pod a/b?[2J
`
	if d := cmp.Diff(done, MIGPlans(s, plans[:1], true)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := MIGPlans(s, plans[2:3], false); got != "Nothing is to be done.\n" {
		t.Errorf("%q", got)
	}
}

func TestMIGPlanned(t *testing.T) {
	got, err := JSON(MIGPlanned([]*nodev1.MIGPlan{
		{Gpu: "GPU-0", Index: 1, Units: 8, Steps: []string{"create 3g.40gb at 4"}, Waits: "why",
			After: []*nodev1.MIGInstance{{Profile: "3g.40gb", Start: 4, Size: 4, Ours: true, Ready: true}}},
		{Gpu: "GPU-1"},
	}, true), false)
	const want = `[{"gpu":"GPU-0","index":1,"done":true,"steps":["create 3g.40gb at 4"],"waits":"why","units":8,` +
		`"after":[{"profile":"3g.40gb","start":4,"size":4,"ours":true,"ready":true,"uuid":"","grant":"","holder":""}]},` +
		`{"gpu":"GPU-1","index":0,"done":true,"steps":[],"waits":"","units":0,"after":[]}]
`
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, cmp.Diff(want, string(got)))
	}
}
