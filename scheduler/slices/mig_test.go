// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package slices_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// partitioned gives the GPUs the MIG geometry of an H100.
func partitioned(t *testing.T, gpus []dra.GPU) []dra.GPU {
	t.Helper()
	m, err := machine.Load("h100x8")
	if err != nil {
		t.Fatal(err)
	}
	for i := range gpus {
		for _, p := range m.GPUs[0].Model.Profiles {
			gpus[i].Partition.Geometry = append(gpus[i].Partition.Geometry, mig.Profile{ID: int(p.ID), Name: p.Name,
				Size: p.Size, Compute: p.Slices, Memory: p.Memory, MaxInstances: p.Max, Starts: p.Starts,
				Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
					OFAs: int(p.OFAs)}})
		}
	}
	return gpus
}

// instance is a claim of a MIG instance at one place.
func instance(profile string, start int) resourceapi.DeviceClaim {
	const of = "device.attributes['gpu.kerf.dev']"
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "mig.kerf.dev",
			AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("%s.profile == '%s' && %s.placementStart == %d", of, profile, of, start)}}}}}}}
}

// TestInstances has kube-scheduler's allocator decide about every pair of MIG placements of a GPU. It allocates both
// if and only if the GPU can have both.
func TestInstances(t *testing.T) {
	all := partitioned(t, gpus(2)) // the second one is faulty
	table, err := mig.NewTable(all[0].Partition.Geometry)
	if err != nil {
		t.Fatal(err)
	}
	places := table.Places(mig.Occupancy{})
	c := newCluster(t, all)
	cache := cel.NewCache(2*len(places), cel.Features{EnableConsumableCapacity: true})
	fits := func(p mig.Place) bool {
		a, err := structured.NewAllocator(t.Context(), structured.Features{ConsumableCapacity: true, DeviceTaints: true,
			PartitionableDevices: true, PrioritizedList: true}, c.state, c, c.slices, cache)
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
			[]*resourceapi.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: types.UID("c")},
				Spec: resourceapi.ResourceClaimSpec{Devices: instance(table.Name(p.Profile), p.Start)}}})
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 1
	}
	for _, first := range places {
		name, _ := dra.InstanceName(all[0].UUID,
			sharing.InstanceRef{Profile: table.Name(first.Profile), Start: first.Start})
		c.state.AllocatedDevices = sets.New(structured.MakeDeviceID(dra.Driver, nodeName, name))
		for _, second := range places {
			_, err := table.Occupy([]mig.Place{first, second})
			if got := fits(second); got != (err == nil) {
				t.Errorf("%v, then %v: allocated %t, the GPU: %v", first, second, got, err)
			}
		}
	}
}

// TestInstancesAndShares: MIG instances, shares and the whole GPU exclude each other. Seven small instances fill a GPU.
func TestInstancesAndShares(t *testing.T) {
	whole := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "whole.kerf.dev"}}}}
	c := newCluster(t, partitioned(t, gpus(2)))
	small := c.template("gpu-mig")
	for i := range 8 {
		got := c.allocate(small)
		if (len(got) == 1) != (i < 7) || i == 0 && !strings.HasSuffix(got[0].Device, "-mig-1g-10gb-6") {
			t.Fatalf("instance %d: %+v", i, got)
		}
	}
	if got := slices.Concat(c.allocate(whole), c.allocate(c.share("1Gi"))); len(got) != 0 {
		t.Errorf("a GPU with instances gives %+v", got)
	}
	c = newCluster(t, partitioned(t, gpus(2)))
	if got := c.allocate(c.share("1Gi")); len(got) != 1 || len(c.allocate(c.template("gpu-mig"))) != 0 {
		t.Errorf("shares %+v, then an instance", got)
	}
	if got := c.allocate(c.template("gpu-mig-or-share")); len(got) != 1 || !strings.HasSuffix(got[0].Device, "-share") {
		t.Errorf("a prioritized list gives %+v", got)
	}
}
