// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

var (
	inst  = sharing.Instance{Profile: "3g", ID: 3, Start: 4, Size: 3}
	other = sharing.Instance{Profile: "3g", ID: 3, Start: 1, Size: 3}
	part  = inst.On("GPU-0")
)

// A GPU is as healthy as the least healthy of what the watch, the faults of its instances and the planner of MIG say.
func TestHealthOfGPUs(t *testing.T) {
	ok, lost, xid := State{Health: sharing.HealthOK}, State{sharing.HealthLost, "XID 79"},
		State{sharing.HealthUnhealthy, "XID 48"}
	unusable := State{sharing.HealthUnhealthy, "half an instance"}
	all := func(gpu, shared State) map[sharing.GPURef]State {
		return map[sharing.GPURef]State{{UUID: "GPU-0"}: gpu, part: shared, {UUID: "GPU-1"}: ok}
	}
	for name, c := range map[string]struct {
		do   func(t *Table)
		want map[sharing.GPURef]State
	}{
		"healthy":          {func(*Table) {}, all(ok, ok)},
		"a GPU is lost":    {func(t *Table) { t.Observe(lost, sharing.GPURef{UUID: "GPU-0"}, part) }, all(lost, lost)},
		"an instance":      {func(t *Table) { t.SetInstance("GPU-0", inst, xid) }, all(ok, xid)},
		"another instance": {func(t *Table) { t.SetInstance("GPU-0", other, xid) }, all(ok, ok)},
		"one that recovers": {func(t *Table) { t.SetInstance("GPU-0", inst, xid); t.SetInstance("GPU-0", inst, ok) },
			all(ok, ok)},
		"both": {
			func(t *Table) {
				t.SetInstance("GPU-0", inst, xid)
				t.Observe(lost, sharing.GPURef{UUID: "GPU-0"}, part)
			}, all(lost, lost),
		},
		"the GPU recovers, the instance does not": {
			func(t *Table) {
				t.Observe(lost, sharing.GPURef{UUID: "GPU-0"}, part)
				t.SetInstance("GPU-0", inst, xid)
				t.Observe(ok, sharing.GPURef{UUID: "GPU-0"}, part)
			}, all(ok, xid),
		},
		"unusable": {func(t *Table) { t.SetUnusable(map[sharing.GPUID]string{"GPU-0": unusable.Reason}) },
			all(unusable, unusable)},
		"unusable and lost": {func(t *Table) {
			t.SetUnusable(map[sharing.GPUID]string{"GPU-0": "x"})
			t.Observe(lost, sharing.GPURef{UUID: "GPU-0"}, part)
		}, all(lost, lost)},
		"usable again": {
			func(t *Table) { t.SetUnusable(map[sharing.GPUID]string{"GPU-0": "x"}); t.SetUnusable(nil) }, all(ok, ok),
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable()
			table.Observe(ok, sharing.GPURef{UUID: "GPU-0"}, part, sharing.GPURef{UUID: "GPU-1"})
			c.do(table)
			if diff := cmp.Diff(c.want, table.All()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// SetUnusable tells a change from none.
func TestUnusableChanges(t *testing.T) {
	table, why := NewTable(), map[sharing.GPUID]string{"GPU-0": "x"}
	if table.SetUnusable(nil) || !table.SetUnusable(why) || table.SetUnusable(why) || !table.SetUnusable(nil) {
		t.Error("a change is not distinguished from none")
	}
}

// A fault of an instance is that of the grant that has it, and no grant can have the instance.
func TestFaultOfAnInstance(t *testing.T) {
	table := NewTable()
	table.SetInstance("GPU-0", inst, State{sharing.HealthUnhealthy, "XID 48"})
	for name, c := range map[string]struct {
		has  sharing.Share
		want bool
		own  int
	}{
		"the instance":       {sharing.Share{GPU: sharing.GPURef{UUID: "GPU-0"}, MIG: inst}, true, 1},
		"a share of it":      {sharing.Share{GPU: part}, true, 0},
		"another instance":   {sharing.Share{GPU: sharing.GPURef{UUID: "GPU-0"}, MIG: other}, false, 0},
		"a share of the GPU": {sharing.Share{GPU: sharing.GPURef{UUID: "GPU-0"}}, false, 0},
		"another GPU":        {sharing.Share{GPU: sharing.GPURef{UUID: "GPU-1"}, MIG: inst}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if _, is := table.Fault(c.has); is != c.want {
				t.Errorf("fault: %v", is)
			}
			if got := table.instances().Parts(sharing.Placement{c.has}); len(got) != c.own {
				t.Errorf("parts %v", got)
			}
		})
	}
	if diff := cmp.Diff([]mig.Granted{{Instance: inst, Who: "a fault (XID 48)"}},
		table.Unavailable("GPU-0")); diff != "" {
		t.Error(diff)
	}
}
