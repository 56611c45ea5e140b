// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// allocator has kube-scheduler's allocator choose the GPUs of a node: the first ones with room in the order of devices.
// So its answer is kept for nodes whose GPUs are equal in use and room.
type allocator struct {
	classes map[string]*resourceapi.DeviceClass
	cel     *cel.Cache
	known   map[question][]int
}

// question is what an answer depends on.
type question struct {
	// state has the use of each GPU, and whether it has room, in a byte.
	state string
	gpus  int
	whole bool
}

// questionOf is the question for so much free on the GPUs.
func questionOf(free []cluster.Milli, s cluster.Shape) question {
	var state [simulate.MaxGPUs]byte
	for g, left := range free {
		state[g] = byte(useOf(left)) << 1
		if left >= s.Share {
			state[g]++
		}
	}
	return question{string(state[:len(free)]), s.GPUs, s.Share >= cluster.WholeGPU}
}

func newAllocator() *allocator {
	a := &allocator{classes: map[string]*resourceapi.DeviceClass{}, known: map[question][]int{},
		cel: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})}
	for _, c := range Classes() {
		a.classes[c.Name] = c
	}
	return a
}

// Get implements structured.DeviceClassLister.
func (a *allocator) Get(name string) (*resourceapi.DeviceClass, error) {
	if c, ok := a.classes[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("no device class %q", name)
}

// List implements structured.DeviceClassLister.
func (*allocator) List() ([]*resourceapi.DeviceClass, error) { return Classes(), nil }

// gpus are those that a claim for the resolved shape gets on the node; none if it does not fit.
func (a *allocator) gpus(n *cluster.Node, s cluster.Shape) ([]int, error) {
	q := questionOf(n.GPUs, s)
	if gpus, ok := a.known[q]; ok {
		return gpus, nil
	}
	gpus, err := a.allocate(n.GPUs, s)
	if err != nil {
		return nil, fmt.Errorf("allocate %d GPUs of node %s: %w", s.GPUs, n.Name, err)
	}
	a.known[q] = gpus
	return gpus, nil
}

// allocate asks kube-scheduler's allocator about a node with so much free on its GPUs.
func (a *allocator) allocate(free []cluster.Milli, s cluster.Shape) ([]int, error) {
	const node = "node"
	ctx := context.Background()
	of, err := structured.NewAllocator(ctx, structured.Features{AdminAccess: true, ConsumableCapacity: true,
		DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}, allocated(node, free), a,
		Slices(node, free), a.cel)
	if err != nil {
		return nil, err
	}
	got, err := of.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		[]*resourceapi.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "claim"},
			Spec: resourceapi.ResourceClaimSpec{Devices: Claim(s)}}})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	gpus, ok := indexes(got[0].Devices.Results, len(free))
	if !ok {
		return nil, errors.New("it allocated a device of no GPU")
	}
	return gpus, nil
}

// allocated is what the scheduler knows to be allocated while so much is free: the whole GPU, or one share.
func allocated(node string, free []cluster.Milli) structured.AllocatedState {
	out := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection()}
	for g, left := range free {
		switch left {
		case cluster.WholeGPU:
		case 0:
			out.AllocatedDevices.Insert(structured.MakeDeviceID(dra.Driver, node, dra.DeviceName(id(g), dra.KindWhole)))
		default:
			device := structured.MakeDeviceID(dra.Driver, node, dra.DeviceName(id(g), dra.KindShare))
			out.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, new(types.UID("share"))))
			out.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device,
				map[resourceapi.QualifiedName]resource.Quantity{dra.CapacityMemory: *resource.NewQuantity(
					int64(cluster.WholeGPU-left)*int64(unit), resource.BinarySI)}))
		}
	}
	return out
}
