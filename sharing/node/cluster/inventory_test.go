// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// What a node offers stays what it was while a GPU is lost, gone, or a restarted agent has not seen it yet.
func TestKnownGPUs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inventory.json")
	log := slog.New(slog.DiscardHandler)
	gpu := func(id sharing.GPUID, h sharing.Health) sharing.GPU {
		return sharing.GPU{UUID: id, Hardware: sharing.Hardware{NUMA: 1}, Memory: 80 * sharing.GiB,
			Reserved: 900 * sharing.MiB, Health: h}
	}
	unit := func(id sharing.GPUID, lost bool) deviceplugin.Unit {
		return deviceplugin.Unit{GPU: sharing.GPURef{UUID: id}, NUMA: 1, GiB: 79, Lost: lost}
	}
	mig := gpu("c", sharing.HealthOK)
	mig.MIG = true
	most := map[sharing.GPUID]map[string]int{"c": {"1g.10gb+me": 1, "1g.10gb": 7, "no name": 1}}
	cut := func(lost bool) deviceplugin.Unit {
		return deviceplugin.Unit{GPU: sharing.GPURef{UUID: "c"}, NUMA: 1, Lost: lost, InMIGMode: true,
			MIG: []deviceplugin.Instances{{Resource: "kerf.dev/mig-1g.10gb", Count: 7},
				{Resource: "kerf.dev/mig-1g.10gb.me", Count: 1}}}
	}
	gone := gpu("a", sharing.HealthUnknown)
	gone.HealthReason = "no driver"
	k := loadKnown(file, "boot-1", log)
	for _, step := range []struct {
		name string
		gpus []sharing.GPU
		want []deviceplugin.Unit
	}{
		{"no driver yet", nil, []deviceplugin.Unit{}},
		{"two GPUs and one in MIG mode", []sharing.GPU{gpu("b", sharing.HealthOK), gpu("a", sharing.HealthOK), mig},
			[]deviceplugin.Unit{unit("a", false), unit("b", false), cut(false)}},
		{"one does not answer for now", []sharing.GPU{gpu("a", sharing.HealthSuspect), gpu("b", sharing.HealthUnknown)},
			[]deviceplugin.Unit{unit("a", false), unit("b", false), cut(true)}},
		{"one has a fault", []sharing.GPU{gpu("a", sharing.HealthUnhealthy), gpu("b", sharing.HealthOK)},
			[]deviceplugin.Unit{unit("a", true), unit("b", false), cut(true)}},
		{"one is gone from the list", []sharing.GPU{gpu("b", sharing.HealthOK)},
			[]deviceplugin.Unit{unit("a", true), unit("b", false), cut(true)}},
		{"one that only a grant names", []sharing.GPU{{UUID: "a", Health: sharing.HealthLost, Index: -1},
			gpu("b", sharing.HealthOK)}, []deviceplugin.Unit{unit("a", true), unit("b", false), cut(true)}},
		{"no driver any more", []sharing.GPU{gone, gpu("b", sharing.HealthOK)},
			[]deviceplugin.Unit{unit("a", true), unit("b", false), cut(true)}},
		{"all is well again", []sharing.GPU{gpu("a", sharing.HealthOK), gpu("b", sharing.HealthOK)},
			[]deviceplugin.Unit{unit("a", false), unit("b", false), cut(true)}},
	} {
		if d := cmp.Diff(step.want, k.take(step.gpus, cutRules{most: most})); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
	again := loadKnown(file, "boot-1", log)
	if d := cmp.Diff([]deviceplugin.Unit{unit("a", true), unit("b", false), cut(true)},
		again.take([]sharing.GPU{gpu("b", sharing.HealthOK)}, cutRules{})); d != "" {
		t.Errorf("a restart while one is lost (-want +got):\n%s", d)
	}
	inMemory := loadKnown(file, "boot-1", log)
	if got := inMemory.take([]sharing.GPU{mig}, cutRules{memory: true}); len(got) != 3 || got[2].GiB != 79 ||
		len(got[2].MIG) != 2 {
		t.Errorf("memory of instances, of which nothing is known now: %+v", got)
	}
	none := cutRules{most: map[sharing.GPUID]map[string]int{"c": {}}, memory: true}
	if got := inMemory.take([]sharing.GPU{mig}, none); len(got) != 3 || got[2].GiB != 0 || got[2].MIG != nil {
		t.Errorf("a GPU that gives no instance any more: %+v", got)
	}
	part := sharing.GPU{UUID: "c", Part: sharing.Instance{Profile: "3g.40gb", Size: 4}, Memory: 40 * sharing.GiB,
		Health: sharing.HealthOK}
	shared := loadKnown(file, "boot-1", log)
	rules := cutRules{most: most, memory: true, shared: map[sharing.GPUID]bool{"c": true}}
	if got := shared.take([]sharing.GPU{mig, part}, rules); len(got) != 4 || got[2].GiB != 0 || got[2].MIG != nil ||
		got[3].GiB != 40 || !got[3].InMIGMode {
		t.Errorf("instances that are shared: %+v", got)
	}
	if got := shared.take([]sharing.GPU{mig}, rules); len(got) != 3 {
		t.Errorf("a shared instance that went with its layout: %+v", got)
	}
	other := loadKnown(file, "boot-2", log)
	if got := other.take([]sharing.GPU{gpu("b", sharing.HealthOK)}, cutRules{}); len(got) != 1 {
		t.Errorf("another boot: %+v", got)
	}
	if err := os.WriteFile(file, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := loadKnown(file, "boot-1", log).take(nil, cutRules{}); len(got) != 0 {
		t.Errorf("a damaged file: %+v", got)
	}
}

// What a GPU counts with whose mode demand changes is the same in either mode, while nothing is known of it, and over a
// restart.
func TestKnownGPUsThatChange(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "inventory.json"), slog.New(slog.DiscardHandler)
	plain := sharing.GPU{UUID: "a", Hardware: sharing.Hardware{NUMA: 1}, Memory: 80 * sharing.GiB,
		Reserved: 900 * sharing.MiB, Health: sharing.HealthOK}
	cut := plain
	cut.MIG, cut.Reserved = true, 3*sharing.GiB // a driver may keep more for itself in MIG mode
	rules := cutRules{most: map[sharing.GPUID]map[string]int{"a": {"1g.10gb": 7}},
		turns: map[sharing.GPUID]bool{"a": true}, memory: true}
	want := []deviceplugin.Unit{{GPU: sharing.GPURef{UUID: "a"}, NUMA: 1, GiB: 79,
		MIG: []deviceplugin.Instances{{Resource: "kerf.dev/mig-1g.10gb", Count: 7}}}}
	k := loadKnown(file, "boot-1", log)
	for _, step := range []struct {
		name  string
		gpu   sharing.GPU
		rules cutRules
	}{
		{"as it is", plain, rules}, {"in MIG mode", cut, rules}, {"while stock is taken", cut, cutRules{memory: true}},
		{"with its new mode", plain, cutRules{memory: true}}, {"and back", plain, rules},
	} {
		if d := cmp.Diff(want, k.take([]sharing.GPU{step.gpu}, step.rules)); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
	again := loadKnown(file, "boot-1", log)
	if d := cmp.Diff(want, again.take([]sharing.GPU{cut}, cutRules{memory: true})); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	rules.turns = map[sharing.GPUID]bool{}
	if got := again.take([]sharing.GPU{plain}, rules); len(got) != 1 || got[0].MIG != nil {
		t.Errorf("once its mode is not demand's to change any more: %+v", got)
	}
}

// GPUs that are left to others are not offered, not even as lost ones, and others only as what they give.
func TestUnitsByRules(t *testing.T) {
	t.Parallel()
	k := loadKnown(filepath.Join(t.TempDir(), "inventory.json"), "boot", slog.New(slog.DiscardHandler))
	gpus := []sharing.GPU{{UUID: "a", Index: 0, Memory: 8 * sharing.GiB, Health: sharing.HealthOK},
		{UUID: "b", Index: 1, Memory: 8 * sharing.GiB, Health: sharing.HealthOK}}
	k.take(gpus, cutRules{})
	p := config.Pool{Mode: config.ModeShared,
		GPURules: []config.GPURule{{Indexes: []int{0}, Settings: config.GPUSettings{Mode: config.ModeWhole}}}}
	want := []deviceplugin.Unit{{GPU: sharing.GPURef{UUID: "a"}, GiB: 8, NoShare: true},
		{GPU: sharing.GPURef{UUID: "b"}, GiB: 8, NoWhole: true}}
	if diff := cmp.Diff(want, k.take(gpus, cutRules{gives: givesOf(p)})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := k.take(gpus[1:], cutRules{excluded: gpus[:1]}); len(got) != 1 || got[0].GPU.UUID != "b" {
		t.Errorf("left to others: %+v", got)
	}
	if givesOf(config.Pool{GPURules: []config.GPURule{{Settings: config.GPUSettings{Excluded: true}}}}) != nil {
		t.Error("a rule that says nothing of modes changes what is offered")
	}
}

// A GPU that is overcommitted counts for more in fractions, and for one in whole.
func TestUnitsOvercommitted(t *testing.T) {
	t.Parallel()
	k := loadKnown(filepath.Join(t.TempDir(), "inventory.json"), "boot", slog.New(slog.DiscardHandler))
	g := sharing.GPU{UUID: "a", Memory: 8 * sharing.GiB, Health: sharing.HealthOK,
		Overcommit: sharing.Overcommit{Memory: 150, Compute: 200}}
	want := []deviceplugin.Unit{{GPU: sharing.GPURef{UUID: "a"}, GiB: 12, Percent: 200}}
	if diff := cmp.Diff(want, k.take([]sharing.GPU{g}, cutRules{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again := loadKnown(k.file, "boot", slog.New(slog.DiscardHandler))
	want[0].Lost = true
	if diff := cmp.Diff(want, again.take(nil, cutRules{})); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// A GPU that uses the system's memory counts whole only, also when it is lost before a restart of the agent.
func TestUnitsOfSystemMemory(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "inventory.json"), slog.New(slog.DiscardHandler)
	unit := deviceplugin.Unit{GPU: sharing.GPURef{UUID: "a"}, NoShare: true}
	got := loadKnown(file, "boot-1", log).take([]sharing.GPU{{UUID: "a", Health: sharing.HealthOK,
		Hardware: sharing.Hardware{SystemMemory: true}}}, cutRules{})
	if d := cmp.Diff([]deviceplugin.Unit{unit}, got); d != "" {
		t.Error(d)
	}
	unit.Lost = true
	if d := cmp.Diff([]deviceplugin.Unit{unit}, loadKnown(file, "boot-1", log).take(nil, cutRules{})); d != "" {
		t.Error("after a restart:", d)
	}
}
