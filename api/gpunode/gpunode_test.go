// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gib = 1 << 30

// earlier is the object of testdata/earlier.json in the present form.
func earlier() Object {
	zero := 0
	return Object{
		Metadata: Metadata{Name: "n1", ResourceVersion: "41", Generation: 3},
		Spec: Spec{CordonedGPUs: []Cordon{{UUID: "GPU-1", Reason: "fan", By: "ops",
			Since: "2026-09-01T10:00:00Z"}}},
		Status: Status{
			AgentVersion: "v0.1.0", DriverVersion: "615.71.09", Pool: "default",
			Conditions: []Condition{
				{Type: ConditionReady, Status: False, Reason: "NotReady", Message: "no NRI\nno driver"},
				{Type: ConditionDriverReady, Status: True, Reason: "DriverAnswers"},
			},
			Config: &Config{SHA256: "abababababababab", Errors: []string{`pools[0].mode: "x" is no mode`},
				LastKnownGood: "apiVersion: kerf.dev/v1alpha1\n",
				Pending: []PendingSettings{{GPU: "GPU-1", Settings: []string{"powerLimitWatts as it is -> 300W"},
					BlockedBy: []string{"ns/p"}, Current: map[string]string{"powerLimitWatts": "as it is"}}},
				Excluded: []Excluded{{GPU: "GPU-9", Index: 9, Model: "T4"}}},
			Summary: Summary{GPUs: 2, Grants: 2, Free: "60GiB", LargestFree: "60GiB", Levels: "driver,reactive",
				Unhealthy: 1, Config: "abababababab,rejected,pending"},
			GPUs: []GPU{
				{UUID: "GPU-0", Model: "NVIDIA H100 80GB HBM3", PCI: "0000:01:00.0", Product: "0x233010DE",
					Board: "0x16C110DE", NUMANode: &zero, NVLinkClique: &zero, CapacityBytes: 80 * gib,
					AllocatableBytes: 79 * gib, FreeBytes: 60 * gib, FreePercent: 75, GrantedBytes: 15 * gib,
					GrantedPercent: 25, BurstBytes: 4 * gib, Health: "healthy", MaxShares: 4,
					Overcommit: &Overcommit{MemoryPercent: 150, ComputePercent: 150}, Mode: ModeExcluded,
					Levels: []string{"driver", "reactive"}, LevelReason: "r", MinEnforcement: "driver"},
				{UUID: "GPU-1", Index: 1, CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib, Whole: true, MIG: true,
					SwitchableTo: "shared", Health: "lost", HealthReason: "off the bus", Cordoned: "fan (ops)",
					MIGState: &MIGState{MemorySlices: 8, Profiles: []string{"1g.10gb"}, LayoutFromPool: true,
						Geometry: []MIGProfile{{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 9 * gib,
							MaxInstances: 7, MemorySlices: 1, PlacementStarts: []int{0, 6}, Decoders: 1, Encoders: 2,
							JPEGs: 3, OFAs: 4}},
						Instances: []MIGInstance{
							{Profile: "1g.10gb", MemorySlices: 1, Managed: true, Ready: true, Grant: "k-2",
								RequestedBy: "pod ns/p"},
							{Profile: "1g.10gb", Start: 6, MemorySlices: 1, Ready: true, PendingReason: "w"},
						},
						MaxInstances:  []MIGCount{{Profile: "1g.10gb", Count: 7}},
						PendingReason: "GPU is busy", Error: "reset failed"}},
			},
			Grants: []Grant{
				{ID: "k-1", PodUID: "u", Namespace: "ns", Pod: "p", Container: "main", Profile: "small",
					State: StateActive, Level: "driver", Backend: "driver",
					Shares: []Share{{GPU: "GPU-0", MemoryBytes: 10 * gib, Percent: 25}}},
				{ID: "k-2", State: StateReserved, Level: "hardware",
					Shares: []Share{{GPU: "GPU-1", MemoryBytes: 9 * gib, Whole: true, MIGProfile: "1g.10gb"}}},
			},
			Fingerprint: "0123456789abcdef0123456789abcdef",
			PendingPods: []PendingPod{{PodUID: "w", Namespace: "ns", Pod: "w", Reason: "9GiB free"}},
			TerminatingPods: []TerminatingPod{{PodUID: "e", Namespace: "ns", Pod: "e", Reason: "lost",
				Since: "2026-09-01T10:00:00Z"}},
		},
	}
}

// An object that the agent of the earlier release wrote reads as one of the present form.
func TestReadEarlier(t *testing.T) {
	text, err := os.ReadFile("testdata/earlier.json")
	if err != nil {
		t.Fatal(err)
	}
	var got Object
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(earlier(), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What this package writes, it reads.
func TestReadPresent(t *testing.T) {
	want := earlier()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Object
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Both forms of a cordon count, and the list wins.
func TestReadSpec(t *testing.T) {
	got, err := ReadSpec([]byte(`{"cordonedGPUs":[{"uuid":"b","reason":"new"}],
		"cordoned":{"a":{"reason":"old"},"b":{"reason":"older"}}}`))
	want := Spec{CordonedGPUs: []Cordon{{UUID: "a", Reason: "old"}, {UUID: "b", Reason: "new"}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, text := range []string{"", "null", "{}"} {
		if got, err := ReadSpec([]byte(text)); err != nil || len(got.CordonedGPUs) != 0 {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := ReadSpec([]byte(`{"cordoned":1}`)); err == nil {
		t.Error("a spec that cannot be read is no error")
	}
}

// A patch has both forms, and removes what is no longer cordoned.
func TestSpecPatch(t *testing.T) {
	before := Spec{CordonedGPUs: []Cordon{{UUID: "a"}, {UUID: "b", Reason: "old"}}}
	after := before.Without("a").With(Cordon{UUID: "b", Reason: "fan"})
	text, err := json.Marshal(SpecPatch(before, after))
	want := `{"cordoned":{"a":null,"b":{"reason":"fan"}},"cordonedGPUs":[{"uuid":"b","reason":"fan"}]}`
	if err != nil || string(text) != want {
		t.Errorf("%v: %s", err, text)
	}
}

// A cordon leaves a drain of the driver as it is, and the patch has the drain only if that changes.
func TestDriverDrain(t *testing.T) {
	d := &DriverDrain{Reason: "580 to 590", By: "ops", Since: "2026-09-01T10:00:00Z"}
	drained := Spec{}.Draining(d)
	if got := drained.With(Cordon{UUID: "a"}).Without("a"); got.DriverDrain != d {
		t.Errorf("a cordon ends the drain: %+v", got)
	}
	for name, tt := range map[string]struct {
		before, after Spec
		want          string
	}{
		"begin": {Spec{}, drained, `{"cordoned":{},"cordonedGPUs":[],"driverDrain":{"reason":"580 to 590","by":"ops",` +
			`"since":"2026-09-01T10:00:00Z"}}`},
		"end":  {drained, drained.Draining(nil), `{"cordoned":{},"cordonedGPUs":[],"driverDrain":null}`},
		"same": {drained, drained.Without("a"), `{"cordoned":{},"cordonedGPUs":[]}`},
	} {
		text, err := json.Marshal(SpecPatch(tt.before, tt.after))
		if err != nil || string(text) != tt.want {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
	spec, err := ReadSpec([]byte(`{"driverDrain":{"reason":"","by":"","since":""}}`))
	if err != nil || spec.DriverDrain == nil || spec.DriverDrain.Text() != unexplained ||
		d.Text() != "580 to 590 (ops)" {
		t.Errorf("read %+v: %v", spec.DriverDrain, err)
	}
}

// A resized container has one entry, and entries of pods that are gone leave.
func TestResized(t *testing.T) {
	entry := func(uid string, gib int64) GrantMemory {
		return GrantMemory{PodUID: uid, Container: "main", Namespace: "ns", Pod: "p", MemoryGiB: gib}
	}
	before := Spec{GrantMemory: []GrantMemory{entry("a", 10), entry("gone", 5), entry("b", 7)}}
	status := Status{Grants: []Grant{{PodUID: "a", Container: "main"}, {PodUID: "b", Container: "main"}}}
	after := before.Resized(entry("a", 12), status)
	if d := cmp.Diff([]GrantMemory{entry("b", 7), entry("a", 12)}, after.GrantMemory); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(SpecPatch(Spec{}, Spec{GrantMemory: []GrantMemory{entry("a", 12)}}))
	want := `{"cordoned":{},"cordonedGPUs":[],"grantMemory":[{"podUID":"a","container":"main","namespace":"ns",` +
		`"pod":"p","memoryGiB":12}]}`
	if err != nil || string(text) != want {
		t.Errorf("%v: %s", err, text)
	}
}

// A condition keeps its time while its status stays.
func TestObserve(t *testing.T) {
	before := []Condition{{Type: "a", Status: True, LastTransitionTime: "1"},
		{Type: "b", Status: True, LastTransitionTime: "1"}}
	s := Status{Conditions: []Condition{{Type: "a", Status: True}, {Type: "b", Status: False}, {Type: "c"}}}
	s.Observe(7, before, "2")
	want := Status{ObservedGeneration: 7, Conditions: []Condition{
		{Type: "a", Status: True, LastTransitionTime: "1", ObservedGeneration: 7},
		{Type: "b", Status: False, LastTransitionTime: "2", ObservedGeneration: 7},
		{Type: "c", LastTransitionTime: "2", ObservedGeneration: 7}}}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
