// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// models are the GPUs that the simulator has, with the geometries that real drivers report.
func models(t *testing.T) map[string]GPU {
	t.Helper()
	out := map[string]GPU{}
	for _, name := range []string{"a100x8", "a30x2", "h100x8", "h200x8", "b200x8", "rtxpro6000x4"} {
		m, err := machine.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		g := gpuOf(gpuA)
		for _, p := range m.GPUs[0].Model.Profiles {
			g.Partition.Geometry = append(g.Partition.Geometry, mig.Profile{ID: int(p.ID), Name: p.Name,
				Compute: p.Slices, Memory: p.Memory, MaxInstances: p.Max, Size: p.Size, Starts: p.Starts,
				Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
					OFAs: int(p.OFAs)}})
		}
		out[name] = g
	}
	return out
}

// consume takes what a device consumes; false if there is not enough.
func consume(left map[string]uint64, d Device) bool {
	for _, c := range d.Consumes {
		if left[c.Name] < c.Value {
			return false
		}
	}
	for _, c := range d.Consumes {
		left[c.Name] -= c.Value
	}
	return true
}

func available(d Device) map[string]uint64 {
	left := map[string]uint64{}
	for _, c := range d.Counters {
		left[c.Name] = c.Value
	}
	return left
}

// TestCountersAreTheGeometry: counters admit two instances if and only if the GPU does. It tries all pairs of
// placements of each model.
func TestCountersAreTheGeometry(t *testing.T) {
	for name, g := range models(t) {
		table, err := mig.NewTable(g.Partition.Geometry)
		if err != nil {
			t.Fatal(err)
		}
		devices := Instances(Node{}, []GPU{g})
		if n := len(table.Places(mig.Occupancy{})); len(devices) != n || len(devices[0].Counters) > maxCounters {
			t.Fatalf("%s: %d devices for %d placements, %d counters", name, len(devices), n, len(devices[0].Counters))
		}
		places := make([]mig.Place, len(devices))
		for i, d := range devices {
			to, ok := TargetOf(d.Name, []sharing.GPUID{gpuA})
			p, err := table.Lookup("mig", to.Instance.Profile)
			if !ok || to.Kind != KindMIG || err != nil {
				t.Fatalf("%s: device %q is of no instance: %v", name, d.Name, err)
			}
			places[i] = mig.Place{Profile: p.ID, Start: to.Instance.Start}
		}
		for i, a := range devices {
			for j, b := range devices {
				left := available(a)
				counted := consume(left, a) && consume(left, b)
				if _, err := table.Occupy([]mig.Place{places[i], places[j]}); (err == nil) != counted {
					t.Errorf("%s: %s and %s: counters %t, GPU %v", name, a.Name, b.Name, counted, err)
				}
			}
		}
	}
}

// TestProfileMaximum: the greatest number of each profile's instances is that of the driver.
func TestProfileMaximum(t *testing.T) {
	for name, g := range models(t) {
		devices := Instances(Node{}, []GPU{g})
		for _, p := range g.Partition.Geometry {
			left, n := available(devices[0]), 0
			for _, d := range slices.Backward(devices) { // from the first start
				if attribute(d, "profile") == p.Name && consume(left, d) {
					n++
				}
			}
			if n != p.MaxInstances {
				t.Errorf("%s: %d instances of %s, the driver has %d", name, n, p.Name, p.MaxInstances)
			}
		}
	}
}

func TestInstances(t *testing.T) {
	h100 := models(t)["h100x8"]
	names := func(g GPU) (out []string) {
		for _, d := range Instances(Node{DriverVersion: "615.10"}, []GPU{g}) {
			out = append(out, strings.TrimPrefix(d.Name, DeviceName(gpuA, KindWhole)+migInfix))
		}
		return out
	}
	all := Instances(Node{DriverVersion: "615.10"}, []GPU{h100})
	d := all[0]
	if d.Kind != KindMIG || attribute(d, "type") != "mig" || attribute(d, "profile") != "1g.10gb" ||
		attribute(d, "levelHardware") != "true" || attribute(d, "levelExclusive") != "false" ||
		attribute(d, "uuid") != string(gpuA) || len(d.Capacity) != 1 || d.Capacity[0].Max != 0 ||
		d.Capacity[0].Value < 9*uint64(sharing.GiB) || !strings.HasSuffix(d.Name, "-mig-1g-10gb-6") {
		t.Errorf("the first is %+v", d)
	}
	three := h100.Partition.Geometry[slices.IndexFunc(h100.Partition.Geometry,
		func(p mig.Profile) bool { return p.Name == "3g.40gb" })]
	at := func(start int) sharing.Instance {
		return sharing.Instance{Profile: three.Name, ID: three.ID, Start: start, Size: three.Size}
	}
	fixed, unmanaged, strange, none := h100, h100, h100, h100
	fixed.Partition.Fixed, fixed.Partition.Made = true, []sharing.Instance{at(4)}
	if got := names(fixed); !slices.Equal(got, []string{"3g-40gb-4"}) {
		t.Errorf("of a layout: %q", got)
	}
	unmanaged.Partition.Unmanaged = []sharing.Instance{at(4)}
	got := names(unmanaged)
	if slices.Contains(got, "1g-10gb-6") || !slices.Contains(got, "1g-10gb-3") || !slices.Contains(got, "3g-40gb-0") ||
		slices.Contains(got, "7g-80gb-0") || len(Devices(Node{}, []GPU{unmanaged})) != 0 {
		t.Errorf("with an instance of others: %q", got)
	}
	strange.Partition.Unmanaged = []sharing.Instance{at(1)}
	none.Partition = MIG{}
	if got := append(names(strange), names(none)...); len(got) != 0 {
		t.Errorf("published %q", got)
	}
}

// TestSharesExcludeInstances: the whole GPU, shares and MIG instances of one GPU exclude each other.
func TestSharesExcludeInstances(t *testing.T) {
	g := models(t)["h100x8"]
	parts := Devices(Node{}, []GPU{g})
	if len(parts) != 2 {
		t.Fatalf("%+v", parts)
	}
	for _, part := range parts {
		for _, d := range Instances(Node{}, []GPU{g}) {
			left := available(part)
			if !slices.Equal(part.Counters, d.Counters) || !consume(left, part) || consume(left, d) {
				t.Errorf("%s and %s", part.Name, d.Name)
			}
		}
	}
	if left := available(parts[0]); !consume(left, parts[0]) || consume(left, parts[1]) {
		t.Error("a share and the whole GPU")
	}
	g.Partition.Only = true
	if got := Devices(Node{}, []GPU{g}); len(got) != 0 {
		t.Errorf("in MIG mode for good: %+v", got)
	}
}

func TestInstanceTaints(t *testing.T) {
	g := models(t)["h100x8"]
	g.Evict = true
	g.Partition.Faulty = []sharing.Instance{{Profile: "1g.10gb", Start: 6, Size: 1}}
	of := func(g GPU, suffix string) string {
		for _, d := range Instances(Node{}, []GPU{g}) {
			if strings.HasSuffix(d.Name, suffix) {
				return fmt.Sprint(d.Taints)
			}
		}
		return "none such"
	}
	const unhealthy = "[{gpu.kerf.dev/unhealthy unhealthy true}]"
	if of(g, "-1g-10gb-6") != unhealthy || of(g, "-7g-80gb-0") != unhealthy || of(g, "-1g-10gb-5") != "[]" {
		t.Errorf("%s, %s, %s", of(g, "-1g-10gb-6"), of(g, "-7g-80gb-0"), of(g, "-1g-10gb-5"))
	}
	g.Partition.Unavailable = true
	if got := of(g, "-1g-10gb-5"); got != "[{gpu.kerf.dev/mig-unavailable  false}]" {
		t.Error(got)
	}
	g.Health = sharing.HealthSuspect
	if got := of(g, "-1g-10gb-6"); got != "[{gpu.kerf.dev/unhealthy suspect false}]" {
		t.Error(got)
	}
}

// TestInstanceNames: a name leads back to the instance, and nothing else does.
func TestInstanceNames(t *testing.T) {
	for _, profile := range []string{"1g.10gb", "1g.10gb+me", "1g.10gb-me", "1g", "1g.5gb+me.all", "12g.180gb+gfx"} {
		in := sharing.InstanceRef{Profile: profile, Start: 11}
		name, ok := InstanceName(gpuA, in)
		if to, known := TargetOf(name, gpus()); !ok || !known || to != (Target{gpuA, KindMIG, in}) {
			t.Errorf("%s is %q, which leads to %+v", profile, name, to)
		}
	}
	for _, rest := range []string{"1g-10gb", "1g-10gb-", "1g-10gb-x", "-1", "1g-10gb-06", "x-1", "1g-10gb-99"} {
		if to, known := TargetOf(DeviceName(gpuA, KindWhole)+migInfix+rest, gpus()); known {
			t.Errorf("%q leads to %+v", rest, to)
		}
	}
	if _, ok := InstanceName(gpuA, sharing.InstanceRef{Profile: "1g.10gb+" + strings.Repeat("x", 30)}); ok {
		t.Error("a name is longer than a DNS label")
	}
}
