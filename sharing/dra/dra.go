// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package dra decides what the DRA front end of a node publishes, and what a ResourceClaim gets.
//
// It is pure. Devices makes the devices of a ResourceSlice from the GPUs of a node. Requests makes the requests of a
// pod's containers from the ResourceClaims that the scheduler allocated. The types are its own: package dra, the
// adapter, converts those of the resource.k8s.io API.
//
// Promised: the amounts come only from what the scheduler allocated. A claim that the node cannot enforce as a whole is
// rejected as a whole.
package dra

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is the name of the DRA driver, in ResourceSlices, DeviceClasses and claims.
const Driver = "gpu." + sharing.Domain

// The capacities of a share, as claims name them.
const (
	// CapacityMemory is GPU memory in bytes, in steps of 1 GiB.
	CapacityMemory = "memory"
	// CapacityPercent is percent of a GPU's compute.
	CapacityPercent = "percent"
	// CapacityShares counts the shares of a GPU, where its pool bounds their number.
	CapacityShares = "shares"
)

// Kind is what a device gives of its GPU.
type Kind uint8

// The kinds of device.
const (
	// KindShare: a share of the GPU. Several claims may have one each.
	KindShare Kind = iota
	// KindWhole: the whole GPU, for one claim.
	KindWhole
)

// String returns "share" or "whole", the value of the device's attribute "type".
func (k Kind) String() string {
	if k == KindWhole {
		return "whole"
	}
	return "share"
}

// shareSuffix ends the name of a share's device.
const shareSuffix = "-share"

// DeviceName is the name of a GPU's device, a DNS label. It stays the same at a reboot, unlike the GPU's index.
func DeviceName(gpu sharing.GPUID, kind Kind) string {
	name := strings.ToLower(string(gpu))
	if kind == KindShare {
		name += shareSuffix
	}
	return name
}

// deviceOf finds the GPU and the kind of a device's name.
func deviceOf(name string, gpus []sharing.GPUID) (sharing.GPUID, Kind, bool) {
	for _, gpu := range gpus {
		for _, kind := range []Kind{KindShare, KindWhole} {
			if DeviceName(gpu, kind) == name {
				return gpu, kind, true
			}
		}
	}
	return "", KindShare, false
}
