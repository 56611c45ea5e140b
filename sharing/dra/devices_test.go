// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

func gpuOf(id sharing.GPUID) GPU {
	return GPU{GPU: sharing.GPU{UUID: id, Model: "NVIDIA H100 80GB HBM3", Memory: 81559 * sharing.MiB,
		Reserved: 559 * sharing.MiB, MIGCapable: true, Health: sharing.HealthOK,
		Hardware: sharing.Hardware{NUMA: 1, Architecture: "hopper", PCIRoot: "pci0000:00"}},
		Share: true, Whole: true, Levels: []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}}
}

// attribute is the text of an attribute, "-" if the device has none.
func attribute(d Device, name string) string {
	for _, a := range d.Attributes {
		switch {
		case a.Name != name:
		case a.Int != nil:
			return fmt.Sprint(*a.Int)
		case a.Bool != nil:
			return fmt.Sprint(*a.Bool)
		default:
			return a.String
		}
	}
	return "-"
}

func TestDevices(t *testing.T) {
	a, b := gpuOf(gpuA), gpuOf(gpuB)
	a.NVLinks, b.NVLinks = []sharing.GPUID{gpuB}, []sharing.GPUID{gpuA}
	b.Health, b.Cordoned, b.MaxShares = sharing.HealthUnhealthy, "maintenance", 4
	devices := Devices(Node{DriverVersion: "615.10", CUDAVersion: "13.3"}, []GPU{b, a})
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	if want := []string{DeviceName(gpuB, KindShare), DeviceName(gpuB, KindWhole), DeviceName(gpuA, KindShare),
		DeviceName(gpuA, KindWhole)}; !slices.Equal(names, want) {
		t.Fatalf("got %q, want %q", names, want)
	}
	for name, want := range map[string]string{"uuid": string(gpuA), "model": "NVIDIA H100 80GB HBM3", "type": "share",
		"architecture": "hopper", "driverVersion": "615.10", "cudaVersion": "13.3", "numaNode": "1",
		"resource.kubernetes.io/pcieRoot": "pci0000:00", "nvlinkDomain": string(gpuA), "migCapable": "true",
		"levelExclusive": "false", "levelDriver": "true", "levelUserspace": "false", "levelReactive": "false"} {
		if got := attribute(devices[2], name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := attribute(devices[3], "levelExclusive") + attribute(devices[3], "levelDriver"); got != "truefalse" {
		t.Errorf("levels of the whole GPU: %s", got)
	}
	if attribute(devices[0], "nvlinkDomain") != string(gpuA) {
		t.Error("the GPUs are in different NVLink domains")
	}
	const step = uint64(sharing.GiB)
	if got := devices[2].Capacity; !slices.Equal(got, []Capacity{
		{Name: "memory", Value: 79 * step, Default: 79 * step, Min: step, Max: 79 * step, Step: step},
		{Name: "percent", Value: 100, Max: 100, Step: 1},
	}) {
		t.Errorf("capacity of the share: %+v", got)
	}
	if got := devices[0].Capacity[2]; got != (Capacity{Name: "shares", Value: 4, Default: 1, Min: 1, Max: 1, Step: 1}) {
		t.Errorf("bound of shares: %+v", got)
	}
	if len(devices[2].Taints) != 0 || !slices.Equal(devices[1].Taints, []Taint{
		{Key: TaintUnhealthy, Value: "unhealthy"}, {Key: TaintCordoned}}) {
		t.Errorf("taints: %+v and %+v", devices[2].Taints, devices[1].Taints)
	}
}

func TestDevicesOfSomeGPUs(t *testing.T) {
	mig, noShare, noWhole, tiny, instance := gpuOf(gpuA), gpuOf(gpuA), gpuOf(gpuA), gpuOf(gpuA), gpuOf(gpuA)
	mig.Partition.Only, noShare.Share, noWhole.Whole, tiny.Memory = true, false, false, sharing.GiB
	instance.Part = sharing.Instance{Profile: "1g.10gb", Size: 1}
	for name, tc := range map[string]struct {
		gpu  GPU
		want int
	}{"MIG mode": {mig, 0}, "no shares": {noShare, 1}, "no whole GPU": {noWhole, 1}, "less than 1 GiB": {tiny, 1},
		"an instance": {instance, 0}} {
		if got := Devices(Node{}, []GPU{tc.gpu}); len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	over := gpuOf(gpuA)
	over.Overcommit = sharing.Overcommit{Memory: 150, Compute: 200}
	d := Devices(Node{}, []GPU{over})[0]
	if d.Capacity[0].Value != 118*uint64(sharing.GiB) || d.Capacity[0].Max != 79*uint64(sharing.GiB) ||
		d.Capacity[1].Value != 200 || d.Capacity[1].Max != 100 {
		t.Errorf("overcommit: %+v", d.Capacity)
	}
}

// TestSlices keeps the limits of the API: 64 devices with counters, and 8 counter sets.
func TestSlices(t *testing.T) {
	var all []GPU
	for i := range 33 {
		all = append(all, gpuOf(sharing.GPUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i))))
	}
	devices := Devices(Node{}, all)
	parts, sets := Slices(devices), CounterSets(devices)
	if len(parts) != 2 || len(parts[0]) != MaxPerSlice || len(parts[1]) != 2 {
		t.Errorf("%d slices", len(parts))
	}
	if len(sets) != 5 || len(sets[0]) != MaxCounterSets || len(sets[4]) != 1 {
		t.Errorf("counter sets: %v", sets)
	}
}

func TestPace(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := Devices(Node{}, []GPU{gpuOf(gpuA)}), Devices(Node{}, []GPU{gpuOf(gpuB)})
	var p PublishLimiter
	check := func(devices []Device, after time.Duration, publish bool, wait time.Duration) {
		t.Helper()
		if got, w := p.Next(devices, start.Add(after)); got != publish || w != wait {
			t.Errorf("after %s: %v and %s, want %v and %s", after, got, w, publish, wait)
		}
	}
	check(nil, 0, true, 0) // an empty pool is published as well
	p.Published(one, start)
	check(one, 0, false, 0)
	check(one, time.Hour, false, 0)
	check(two, 300*time.Millisecond, false, 700*time.Millisecond)
	check(two, time.Second, true, 0)
	check(two, -time.Hour, true, 0) // the clock was set back
	p.Published(two, start.Add(time.Second))
	check(two, time.Second, false, 0)
	check(one, 1900*time.Millisecond, false, 100*time.Millisecond)
}

// A GPU that uses the system's memory is published whole only.
func TestDevicesOfSystemMemory(t *testing.T) {
	g := gpuOf(gpuA)
	g.Memory, g.Reserved, g.SystemMemory, g.MIGCapable = 0, 0, true, false
	devices := Devices(Node{}, []GPU{g})
	if len(devices) != 1 || devices[0].Kind != KindWhole || len(devices[0].Capacity) != 0 {
		t.Errorf("devices %+v", devices)
	}
}
