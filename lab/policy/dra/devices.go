// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugin "github.com/kerf-gpu/kerf/dra"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// unit is the memory of a thousandth of a GPU. It is the step of claims, so that no request is rounded.
const unit = sharing.GiB

// id is the UUID of the GPU with an index.
func id(gpu int) sharing.GPUID {
	return sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", gpu))
}

// Slices are the ResourceSlices that the agent of a node publishes while its GPUs have so much free. A GPU with nothing
// free is granted whole, or in shares that fill it: both are full.
func Slices(node string, free []cluster.Milli) []*resourceapi.ResourceSlice {
	var gpus []dra.GPU
	uses := map[sharing.GPUID]dra.Use{}
	for i, left := range free {
		g := sharing.GPU{UUID: id(i), Index: i, Memory: sharing.Bytes(cluster.WholeGPU) * unit,
			Health: sharing.HealthOK}
		uses[g.UUID] = useOf(left)
		gpus = append(gpus, dra.GPU{GPU: g, Share: true, Whole: true,
			Levels: []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}})
	}
	gpus = dra.Ordered(gpus, func(gpu sharing.GPUID) dra.Use { return uses[gpu] })
	pool := plugin.Resources(node, dra.Devices(dra.Node{}, gpus)).Pools[node]
	var out []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		out = append(out, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", node, i)},
			Spec: resourceapi.ResourceSliceSpec{Driver: dra.Driver, NodeName: new(node),
				Pool: resourceapi.ResourcePool{Name: node, Generation: 1,
					ResourceSliceCount: int64(len(pool.Slices))},
				Devices: s.Devices, SharedCounters: s.SharedCounters}})
	}
	return out
}

// useOf is the use of a GPU with so much free.
func useOf(left cluster.Milli) dra.Use {
	grants := 0
	if left < cluster.WholeGPU {
		grants = 1
	}
	return dra.UseOf(grants, left == 0, sharing.Bytes(left)*unit) //nolint:gosec // never below 0
}

// The device classes of deploy/variants/dra.yaml that claims name here.
const (
	shareClass = "share.kerf.dev"
	wholeClass = "whole.kerf.dev"
)

// Classes are the device classes.
func Classes() []*resourceapi.DeviceClass {
	class := func(name string, kind dra.Kind) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
					"device.driver == '%s' && device.attributes['%s'].type == '%s'", dra.Driver, dra.Driver, kind)}}}}}
	}
	return []*resourceapi.DeviceClass{class(shareClass, dra.KindShare), class(wholeClass, dra.KindWhole)}
}

// Claim is what a ResourceClaim requests for a shape, as the API server completes it. Several shares are of as many
// GPUs.
func Claim(s cluster.Shape) resourceapi.DeviceClaim {
	r := resourceapi.ExactDeviceRequest{DeviceClassName: wholeClass, Count: int64(s.GPUs),
		AllocationMode: resourceapi.DeviceAllocationModeExactCount}
	out := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &r}}}
	if s.Share >= cluster.WholeGPU {
		return out
	}
	r.DeviceClassName = shareClass
	r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		dra.CapacityMemory: *resource.NewQuantity(int64(s.Share)*int64(unit), resource.BinarySI)}}
	if s.GPUs > 1 {
		out.Constraints = []resourceapi.DeviceConstraint{{
			DistinctAttribute: new(resourceapi.FullyQualifiedName(dra.Driver + "/uuid"))}}
	}
	return out
}

// indexes are the GPUs of allocated devices, in ascending order; false if one is not of these GPUs.
func indexes(results []resourceapi.DeviceRequestAllocationResult, gpus int) ([]int, bool) {
	var out []int
	for _, r := range results {
		for g := range gpus {
			if r.Device == dra.DeviceName(id(g), dra.KindShare) || r.Device == dra.DeviceName(id(g), dra.KindWhole) {
				out = append(out, g)
			}
		}
	}
	slices.Sort(out)
	return out, len(out) == len(results)
}
