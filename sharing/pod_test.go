// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	planA = "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	planB = "GPU-00000000-0000-0000-0000-000000000001"
)

func TestPlannedGPUs(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []GPUID
	}{
		"one":                   {planA, []GPUID{planA}},
		"two, in their order":   {planB + "," + planA, []GPUID{planB, planA}},
		"spaces":                {" " + planA + " , " + planB, []GPUID{planA, planB}},
		"empty":                 {"", nil},
		"a comma":               {",", nil},
		"one that is none":      {planA + ",GPU-x", nil},
		"an empty one":          {planA + ",", nil},
		"a tenant's own policy": {"pack", nil},
		"a line break":          {planA + "\n" + planB, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Planned(map[string]string{PlacementAnnotation("main"): tc.value}, "main").GPUs
			if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
	if got := Planned(map[string]string{"scheduling.kerf.dev/other": planA, "kerf.dev/placement-policy": planA},
		"main").GPUs; got != nil {
		t.Errorf("another's placement is taken: %v", got)
	}
	if got := Planned(nil, "main").GPUs; got != nil {
		t.Errorf("no annotations plan %v", got)
	}
}

// What the scheduler writes is read again as it was meant.
func TestPlannedInstance(t *testing.T) {
	placed := Placement{{GPU: GPURef{UUID: planA}, MIG: Instance{Profile: "1g.10gb+me", ID: 20, Start: 6, Size: 1}}}
	tests := map[string]struct {
		value string
		want  Advice
	}{
		"as it is written": {PlacementValue(placed),
			Advice{GPUs: []GPUID{planA}, MIG: InstanceRef{"1g.10gb+me", 6}}},
		"two shares": {PlacementValue(Placement{{GPU: GPURef{UUID: planA}}, {GPU: GPURef{UUID: planB}}}),
			Advice{GPUs: []GPUID{planA, planB}}},
		"at the beginning":     {planA + "/7g.80gb@0", Advice{GPUs: []GPUID{planA}, MIG: InstanceRef{"7g.80gb", 0}}},
		"next to another":      {planB + "," + planA + "/7g.80gb@0", Advice{}},
		"another next to it":   {planA + "/7g.80gb@0," + planB, Advice{}},
		"no start":             {planA + "/7g.80gb", Advice{}},
		"a start that is none": {planA + "/7g.80gb@+1", Advice{}},
		"past every GPU":       {planA + "/7g.80gb@64", Advice{}},
		"no profile":           {planA + "/@0", Advice{}},
		"a path":               {planA + "/../x@0", Advice{}},
	}
	for name, tc := range tests {
		got := Planned(map[string]string{PlacementAnnotation("main"): tc.value}, "main")
		if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: %q: %s", name, tc.value, d)
		}
	}
}

func TestMIGResource(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb": "kerf.dev/mig-1g.10gb", "1g.24gb+me.all": "kerf.dev/mig-1g.24gb.me.all",
		"1g.24gb-me": "kerf.dev/mig-1g.24gb-me",
		"":           "", "MIG 1g.10gb": "", "1c.1g.10gb": "", "1g.10gb/x": "",
	} {
		got, ok := MIGResource(profile)
		if got != want || ok != (want != "") || ok != IsMIGResource(got) {
			t.Errorf("%q: %q, %t", profile, got, ok)
		}
	}
}

func TestNamesForPeople(t *testing.T) {
	for got, want := range map[string]string{
		PlacementAnnotation("main"): "scheduling.kerf.dev/main",
		GrantAnnotation:             "kerf.dev/grant",
		ContainerApp.String():       "app",
		ContainerSidecar.String():   "sidecar",
		ContainerInit.String():      "init",
		ContainerRef{PodUID: "u", Namespace: "ns", Pod: "p", Container: "c"}.String(): "ns/p/c",
		NUMAAffinity{NUMA: 3, Count: 2}.Device():                                      "kerf.dev/numa=3:2",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is read of the scheduler's annotation is GPUs that it named, in their order, or nothing.
func FuzzPlannedGPUs(f *testing.F) {
	f.Add(planA + "," + planB)
	f.Add("," + planA)
	f.Add(strings.ToUpper(planA))
	f.Fuzz(func(t *testing.T, value string) {
		got := Planned(map[string]string{PlacementAnnotation("c"): value}, "c").GPUs
		if got == nil {
			return
		}
		parts := strings.Split(value, ",")
		if len(parts) != len(got) {
			t.Fatalf("%q plans %v", value, got)
		}
		for i, id := range got {
			uuid, _, _ := strings.Cut(strings.TrimSpace(parts[i]), "/")
			want, err := ParseGPUID("f", uuid)
			if err != nil || id != want {
				t.Fatalf("%q plans %v: number %d is %q (%v)", value, got, i, want, err)
			}
		}
	})
}
