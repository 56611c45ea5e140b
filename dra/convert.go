// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package dra is the adapter to kubelet's DRA plugin API and to the objects of resource.k8s.io. It publishes what
// sharing/dra decides, and passes claims on to the preparer. It decides nothing.
package dra

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Resources are the ResourceSlices of a node: first the counter sets, then the devices in their order, and last the
// one for admin access. A slice cannot have both counter sets and devices.
func Resources(node string, devices []dra.Device) resourceslice.DriverResources {
	pool := resourceslice.Pool{}
	for _, sets := range dra.CounterSets(devices) {
		var s resourceslice.Slice
		for _, set := range sets {
			s.SharedCounters = append(s.SharedCounters, resourceapi.CounterSet{Name: set.Name,
				Counters: countersOf(set.Counters)})
		}
		pool.Slices = append(pool.Slices, s)
	}
	for _, some := range dra.Slices(devices) {
		var s resourceslice.Slice
		for _, d := range some {
			out := deviceOf(d)
			out.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
				CounterSet: dra.CounterSetName(d.GPU), Counters: countersOf(d.Consumes)}}
			s.Devices = append(s.Devices, out)
		}
		pool.Slices = append(pool.Slices, s)
	}
	if len(devices) > 0 {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: []resourceapi.Device{monitorDevice()}})
	}
	if len(pool.Slices) == 0 { // An empty pool shows that the driver runs.
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// monitorDevice stands for all GPUs of the node, for admin access.
func monitorDevice() resourceapi.Device {
	kind := resourceapi.DeviceAttribute{StringValue: new(dra.MonitorDevice)}
	return resourceapi.Device{Name: dra.MonitorDevice,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{dra.AttributeType: kind}}
}

func countersOf(list []dra.Counter) map[string]resourceapi.Counter {
	out := map[string]resourceapi.Counter{}
	for _, c := range list {
		n := int64(c.Value) //nolint:gosec // slices, or media engines
		out[c.Name] = resourceapi.Counter{Value: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	return out
}

func deviceOf(d dra.Device) resourceapi.Device {
	out := resourceapi.Device{Name: d.Name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	for _, a := range d.Attributes {
		value := resourceapi.DeviceAttribute{IntValue: a.Int, BoolValue: a.Bool}
		if a.Int == nil && a.Bool == nil {
			value.StringValue = new(a.String)
		}
		out.Attributes[resourceapi.QualifiedName(a.Name)] = value
	}
	if d.Kind == dra.KindShare {
		out.AllowMultipleAllocations = new(true)
	}
	if len(d.Capacity) > 0 {
		out.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	}
	for _, c := range d.Capacity {
		out.Capacity[resourceapi.QualifiedName(c.Name)] = capacityOf(c, d.Kind)
	}
	if d.BeforeBinding {
		out.BindsToNode = new(true)
		out.BindingConditions = []string{dra.ConditionCreated}
		out.BindingFailureConditions = []string{dra.ConditionFailed}
	}
	for _, t := range d.Taints {
		effect := resourceapi.DeviceTaintEffectNoSchedule
		if t.Evict {
			effect = resourceapi.DeviceTaintEffectNoExecute
		}
		out.Taints = append(out.Taints, resourceapi.DeviceTaint{Key: t.Key, Value: t.Value, Effect: effect})
	}
	return out
}

// capacityOf is a capacity of a device. Claims take parts of a share alone.
func capacityOf(c dra.Capacity, kind dra.Kind) resourceapi.DeviceCapacity {
	of := func(n uint64) *resource.Quantity {
		if c.Name == dra.CapacityMemory {
			return resource.NewQuantity(int64(n), resource.BinarySI) //nolint:gosec // no GPU has 8 EiB
		}
		return resource.NewQuantity(int64(n), resource.DecimalSI) //nolint:gosec // a small number
	}
	out := resourceapi.DeviceCapacity{Value: *of(c.Value)}
	if kind != dra.KindShare {
		return out
	}
	policy := &resourceapi.CapacityRequestPolicyRange{Min: of(c.Min), Max: of(c.Max)}
	if c.Min+c.Step <= c.Value { // the API rejects a step that leads beyond the capacity
		policy.Step = of(c.Step)
	}
	out.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: of(c.Default), ValidRange: policy}
	return out
}
