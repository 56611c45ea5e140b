// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// A plan is drawn as the GPU is and as it is after it, with what stays under one letter; what was done is drawn as it
// is.
func TestMIGPlans(t *testing.T) {
	s := FromNode(&nodeapi.GetNodeResponse{Gpus: []*nodeapi.GPU{
		{Uuid: "GPU-0", Index: 0, Model: "H100", Mig: true, MigState: &nodeapi.MIGState{Capable: true, Enabled: true,
			MemorySlices: 8,
			Instances: []*nodeapi.MIGInstance{
				{Profile: "1g.10gb", Start: 1, MemorySlices: 1},
				{Profile: "2g.20gb", Start: 2, MemorySlices: 2, Managed: true, Ready: true, RequestedBy: "pod a/b"},
				{Profile: "1g.10gb", Start: 6, MemorySlices: 1, Managed: true, Ready: true},
			}}},
		{Uuid: "GPU-1", Index: 1, Model: "H100"},
		{Uuid: "GPU-2", Index: 2, Model: "H100", MigState: &nodeapi.MIGState{Capable: true, MemorySlices: 8}},
	}})
	plans := []*nodeapi.MIGPlan{
		{
			Gpu: "GPU-0", MemorySlices: 8, Steps: []string{"destroy 1g.10gb at 6", "create 3g.40gb at 4"},
			PendingReason: "waits for pod a/b\x1b[2J",
			InstancesAfter: []*nodeapi.MIGInstance{
				{Profile: "1g.10gb", Start: 1, MemorySlices: 1, Ready: true},
				{Profile: "2g.20gb", Start: 2, MemorySlices: 2, Managed: true, Ready: true},
				{Profile: "3g.40gb", Start: 4, MemorySlices: 4, Managed: true, Ready: true},
			},
		},
		{Gpu: "GPU-1", Index: 1, MemorySlices: 4, Steps: []string{"set MIG mode on", "create 4g at 0"},
			InstancesAfter: []*nodeapi.MIGInstance{{Profile: "4g", MemorySlices: 4, Managed: true, Ready: true}}},
		{Gpu: "GPU-2", Index: 2},
		{Gpu: "GPU-9", Index: 9, PendingReason: "this GPU cannot do MIG"},
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
	got, err := JSON(MIGPlanned([]*nodeapi.MIGPlan{
		{Gpu: "GPU-0", Index: 1, MemorySlices: 8, Steps: []string{"create 3g.40gb at 4"}, PendingReason: "why",
			InstancesAfter: []*nodeapi.MIGInstance{{Profile: "3g.40gb", Start: 4, MemorySlices: 4, Managed: true,
				Ready: true}}},
		{Gpu: "GPU-1"},
	}, true), false)
	const want = `[{"gpu":"GPU-0","index":1,"done":true,"steps":["create 3g.40gb at 4"],"pendingReason":"why","memorySlices":8,` +
		`"instancesAfter":[{"profile":"3g.40gb","start":4,"memorySlices":4,"managed":true,"ready":true,"uuid":"","grant":"","requestedBy":""}]},` +
		`{"gpu":"GPU-1","index":0,"done":true,"steps":[],"pendingReason":"","memorySlices":0,"instancesAfter":[]}]
`
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, cmp.Diff(want, string(got)))
	}
}
