// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/report"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/status"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

const gib = sharing.GiB

// ledgerState is the ledger state of a node of four GPUs: two linked, one lost, one of unknown NUMA node.
func ledgerState() status.LedgerState {
	gpu := func(id string, index, numa int, links ...sharing.GPUID) status.BookedGPU {
		return status.BookedGPU{
			View: ledger.View{
				GPU: sharing.GPU{
					UUID: sharing.GPUID(id), Index: index, Model: "M", Hardware: sharing.Hardware{PCI: "0000:0" + id,
						NUMA: numa}, Memory: 80 * gib, Reserved: gib,
					NVLinks: links, Health: sharing.HealthOK,
				},
				FreeMemory: 79 * gib, FreePercent: 100,
			},
			Levels: []sharing.Level{sharing.LevelDriver, sharing.LevelUserspace},
		}
	}
	b := status.LedgerState{
		DriverVersion: "615.1", AgentVersion: "v1", Pool: "default",
		GPUs: []status.BookedGPU{gpu("a", 0, 0, "b"), gpu("b", 1, 0), gpu("c", 2, 1), gpu("d", 3, -1)},
	}
	b.GPUs[0].FreeMemory, b.GPUs[0].FreePercent, b.GPUs[0].GrantedMemory, b.GPUs[0].GrantedPercent,
		b.GPUs[0].BurstMemory = 60*gib, 75, 15*gib, 25, 4*gib
	b.GPUs[1].GPU.Overcommit, b.GPUs[1].FreeMemory = sharing.Overcommit{Memory: 150, Compute: 150}, 118*gib
	b.GPUs[1].MinLevel = sharing.LevelUserspace
	b.GPUs[3].Levels, b.GPUs[3].LevelReason = []sharing.Level{sharing.LevelExclusive, sharing.LevelNone},
		"driver: too old"
	lost := &b.GPUs[2]
	lost.GPU.Health, lost.GPU.HealthReason, lost.FreeMemory, lost.FreePercent, lost.Levels = sharing.HealthLost,
		"off the bus", 0, 0, nil
	b.Grants = []status.Grant{
		{
			Grant: ledger.Grant{Reservation: ledger.Reservation{ID: "k-2", Owner: ledger.Owner{PID: 7},
				Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Memory: 5 * gib}}}},
			Level: sharing.LevelNone,
		},
		{
			Grant: ledger.Grant{
				Reservation: ledger.Reservation{
					ID: "k-1", Owner: ledger.Owner{PodUID: "u", Namespace: "ns", PodName: "p", Container: "main"},
					Request:   sharing.Request{Profile: "small"},
					Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Memory: 10 * gib, Percent: 25}},
				},
				Active: &ledger.Attachment{State: ledger.Active},
			},
			Level: sharing.LevelDriver, Backend: sharing.BackendDriver,
		},
	}
	return b
}

func TestOf(t *testing.T) {
	zero, one := 0, 1
	gpu := func(id string, index int, numa, clique *int) api.GPU {
		return api.GPU{
			UUID: id, Index: index, Model: "M", PCI: "0000:0" + id, NUMANode: numa, NVLinkClique: clique,
			CapacityBytes: 80 << 30, AllocatableBytes: 79 << 30, FreeBytes: 79 << 30, FreePercent: 100,
			Health: "healthy",
			Levels: []string{"driver", "userspace"},
		}
	}
	want := api.Status{
		AgentVersion: "v1", DriverVersion: "615.1", Pool: "default",
		Conditions: []api.Condition{{Type: "Ready", Status: "True", Reason: "AgentReady"},
			{Type: "DriverReady", Status: "True", Reason: "DriverAnswers", Message: "driver 615.1"},
			{Type: "ConfigApplied", Status: "True", Reason: "Applied"}},
		Summary: api.Summary{GPUs: 4, Grants: 2, Free: "257GiB", LargestFree: "79GiB",
			Levels: "exclusive,driver,userspace,none", Unhealthy: 1},
		GPUs: []api.GPU{gpu("a", 0, &zero, &zero), gpu("b", 1, &zero, &zero), gpu("c", 2, &one, nil),
			gpu("d", 3, nil, nil)},
		Grants: []api.Grant{
			{
				ID: "k-1", PodUID: "u", Namespace: "ns", Pod: "p", Container: "main", Profile: "small", State: "Active",
				Level: "driver", Backend: "driver",
				Shares: []api.Share{{GPU: "a", MemoryBytes: 10 << 30, Percent: 25}},
			},
			{ID: "k-2", State: "Reserved", Level: "none", Shares: []api.Share{{GPU: "a", MemoryBytes: 5 << 30}}},
		},
	}
	a := &want.GPUs[0]
	a.FreeBytes, a.FreePercent, a.GrantedBytes, a.GrantedPercent, a.BurstBytes = 60<<30, 75, 15<<30, 25, 4<<30
	want.GPUs[1].Overcommit, want.GPUs[1].FreeBytes = &api.Overcommit{MemoryPercent: 150, ComputePercent: 150}, 118<<30
	want.GPUs[1].MinEnforcement = "userspace"
	want.GPUs[3].Levels, want.GPUs[3].LevelReason = []string{"exclusive", "none"}, "driver: too old"
	c := &want.GPUs[2]
	c.FreeBytes, c.FreePercent, c.Health, c.HealthReason, c.Levels = 0, 0, "lost", "off the bus", nil
	got := Of(ledgerState())
	if len(got.Fingerprint) != 32 {
		t.Errorf("fingerprint %q", got.Fingerprint)
	}
	want.Fingerprint = got.Fingerprint
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The status has the hash of the applied config, and the whole text if the cluster's config differs.
func TestConfig(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	step := change.Step{GPU: "a", What: []string{"powerLimitWatts as it is -> 300W"}, For: []string{"ns/p"},
		Has: map[string]string{"powerLimitWatts": "as it is"}}
	waits := []api.PendingSettings{{GPU: "a", Settings: step.What, BlockedBy: step.For, Current: step.Has}}
	for name, tt := range map[string]struct {
		change  func(*status.LedgerState)
		want    *api.Config
		summary string
	}{
		"the built-in one": {func(*status.LedgerState) {}, nil, ""},
		"one": {func(b *status.LedgerState) { b.Config.SHA256 = hash }, &api.Config{SHA256: hash},
			"abababababab"},
		"settings wait": {
			func(b *status.LedgerState) { b.Config.SHA256, b.Waiting = hash, []change.Step{step} },
			&api.Config{SHA256: hash, Pending: waits}, "abababababab,pending",
		},
		"a newer one is refused": {
			func(b *status.LedgerState) {
				b.Config.SHA256, b.ConfigErrors, b.ConfigText = hash, []string{"wrong"}, "text"
			},
			&api.Config{SHA256: hash, Errors: []string{"wrong"}, LastKnownGood: "text"}, "abababababab,rejected",
		},
		"a large one": {
			func(b *status.LedgerState) {
				b.Config.SHA256, b.ConfigErrors, b.ConfigText = hash, []string{"wrong"},
					strings.Repeat("x", mostDocument+1)
			},
			&api.Config{SHA256: hash, Errors: []string{"wrong"}}, "abababababab,rejected",
		},
		"the first one is refused": {
			func(b *status.LedgerState) { b.ConfigErrors = []string{"wrong"} }, &api.Config{Errors: []string{"wrong"}},
			"rejected",
		},
		"GPUs that are left out": {
			func(b *status.LedgerState) {
				b.Config.SHA256, b.Excluded = hash, []sharing.GPU{{UUID: "z", Index: 4, Model: "M"}}
			},
			&api.Config{SHA256: hash, Excluded: []api.Excluded{{GPU: "z", Index: 4, Model: "M"}}}, "abababababab",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := ledgerState()
			tt.change(&b)
			got := Of(b)
			if d := cmp.Diff(tt.want, got.Config); d != "" || got.Summary.Config != tt.summary {
				t.Errorf("in short %q (-want +got):\n%s", got.Summary.Config, d)
			}
		})
	}
}

func TestUnplaced(t *testing.T) {
	b := ledgerState()
	for range 200 {
		b.Unplaced = append(b.Unplaced, unplaced.Pod{Ref: sharing.ContainerRef{PodUID: "u", Namespace: "ns", Pod: "p",
			Container: "main"}, Reason: "not enough free"})
	}
	s := Of(b)
	if len(s.PendingPods) != mostUnplaced ||
		s.PendingPods[0] != (api.PendingPod{PodUID: "u", Namespace: "ns", Pod: "p", Reason: "not enough free"}) {
		t.Errorf("%d: %+v", len(s.PendingPods), s.PendingPods[0])
	}
}

func TestEnding(t *testing.T) {
	b := ledgerState()
	for range 200 {
		b.Ending = append(b.Ending, health.Ending{Ref: sharing.ContainerRef{PodUID: "u", Namespace: "ns", Pod: "p"},
			Reason: "lost", Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)})
	}
	s := Of(b)
	if len(s.TerminatingPods) != mostEnding || s.TerminatingPods[0] != (api.TerminatingPod{PodUID: "u", Namespace: "ns",
		Pod: "p", Reason: "lost",
		Since: "2026-01-02T03:04:05Z"}) {
		t.Errorf("%d: %+v", len(s.TerminatingPods), s.TerminatingPods[0])
	}
}

func TestNotReady(t *testing.T) {
	b := ledgerState()
	for range 20 {
		b.PodsNotReady = append(b.PodsNotReady, "something")
	}
	s := Of(b)
	if c := s.Condition(api.ConditionReady); s.Ready() || strings.Count(c.Message, "something") != mostReasons {
		t.Errorf("condition %+v", c)
	}
}

// A drained driver differs from a missing one.
func TestDriverReleased(t *testing.T) {
	b := ledgerState()
	b.DriverVersion = ""
	if s := Of(b); s.DriverReleased() {
		t.Errorf("a missing driver: %+v", s.Condition(api.ConditionDriverReady))
	}
	b.DriverReleased = true
	s := Of(b)
	if c := s.Condition(api.ConditionDriverReady); !s.DriverReleased() || c.Status != api.False {
		t.Errorf("a released driver: %+v", c)
	}
}

// The fingerprint tells who holds what, and nothing else.
func TestFingerprint(t *testing.T) {
	base := Of(ledgerState())
	for name, tc := range map[string]struct {
		change func(*status.LedgerState)
		same   bool
	}{
		"another order": {func(b *status.LedgerState) { b.Grants[0], b.Grants[1] = b.Grants[1], b.Grants[0] },
			true},
		"a container that ended":  {func(b *status.LedgerState) { b.Grants[1].Active = nil }, true},
		"a process of no pod":     {func(b *status.LedgerState) { b.Grants = b.Grants[1:] }, true},
		"another pod of the name": {func(b *status.LedgerState) { b.Grants[1].Owner.PodUID = "v" }, false},
		"another container":       {func(b *status.LedgerState) { b.Grants[1].Owner.Container = "side" }, false},
		"another GPU": {func(b *status.LedgerState) {
			b.Grants[1].Placement[0].GPU = sharing.GPURef{
				UUID: "b"}
		}, false},
		"another size":    {func(b *status.LedgerState) { b.Grants[1].Placement[0].Memory++ }, false},
		"another percent": {func(b *status.LedgerState) { b.Grants[1].Placement[0].Percent++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := ledgerState()
			tc.change(&b)
			if got := Of(b).Fingerprint; (got == base.Fingerprint) != tc.same {
				t.Errorf("%q, before %q", got, base.Fingerprint)
			}
		})
	}
	if got := api.Fingerprint(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// The status has sizes and starts of the possible MIG instances, so that a planner needs no other source.
func TestGeometry(t *testing.T) {
	b := ledgerState()
	b.GPUs[1].MIG = mig.State{Able: true, On: true, Units: 8, Profiles: []string{"1g.10gb"}, Geometry: []mig.Profile{
		{ID: 19, Name: "1g.10gb", Compute: 1, Memory: 9 * gib, MaxInstances: 7, Engines: mig.Engines{Decoders: 1,
			Encoders: 2,
			JPEGs:    3, OFAs: 4}, Size: 1, Starts: []int{0, 6}},
	}}
	want := &api.MIGState{MemorySlices: 8, Profiles: []string{"1g.10gb"}, Geometry: []api.MIGProfile{
		{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 9 << 30, MaxInstances: 7, MemorySlices: 1,
			PlacementStarts: []int{0, 6}, Decoders: 1,
			Encoders: 2, JPEGs: 3, OFAs: 4},
	}}
	if d := cmp.Diff(want, Of(b).GPUs[1].MIGState); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Who reads a GPUNode knows what a GPU gives by these words, without the configuration's.
func TestWordsOfWhatAGPUGives(t *testing.T) {
	for mode, word := range map[config.Mode]string{config.ModeShared: api.ModeShared,
		config.ModeWhole: api.ModeWhole, config.ModeMIG: api.ModeMIG} {
		if mode.String() != word {
			t.Errorf("mode %s is called %q", mode, word)
		}
	}
}

// The report of a GPU that uses the system's memory has no amount of it.
func TestSystemMemory(t *testing.T) {
	b := status.LedgerState{GPUs: []status.BookedGPU{{View: ledger.View{GPU: sharing.GPU{UUID: "a",
		Hardware: sharing.Hardware{SystemMemory: true}}, FreePercent: 100}}}}
	s := Of(b)
	if s.Summary.Free != api.Unknown || s.Summary.LargestFree != api.Unknown {
		t.Errorf("summary %+v", s.Summary)
	}
	text, err := json.Marshal(s.GPUs[0])
	if err != nil || strings.Contains(string(text), "Bytes") || !strings.Contains(string(text), `"systemMemory":true`) {
		t.Errorf("%s, %v", text, err)
	}
	got := report.GPU(s.GPUs[0], 0)
	if err := got.GPU.Validate(); err != nil || !got.GPU.SystemMemory || got.FreePercent != 100 {
		t.Errorf("read as %+v, %v", got, err)
	}
}
