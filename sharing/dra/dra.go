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
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is the name of the DRA driver, in ResourceSlices, DeviceClasses and claims.
const Driver = "gpu." + sharing.Domain

// The DeviceClasses of Kerf. One for a MIG profile is "mig-PROFILE.kerf.dev", with dots for plus signs.
const (
	ClassShare = "share." + sharing.Domain
	ClassWhole = "whole." + sharing.Domain
	ClassMIG   = "mig." + sharing.Domain
	// ClassMonitor is only for admin access.
	ClassMonitor = MonitorDevice + "." + sharing.Domain
)

// MonitorDevice is a device that stands for all GPUs of its node, for admin access. Its attribute "type" has this
// value, too. It consumes no counters. The scheduler gives no other device of a GPU once claims have consumed its
// counters.
const MonitorDevice = "monitor"

// The attributes of devices that Kerf itself reads.
const (
	AttributeType           = "type"
	AttributeUUID           = "uuid"
	AttributeProfile        = "profile"
	AttributePlacementStart = "placementStart"
)

// ConditionReady is the type of the condition of a device in a claim's status.
const ConditionReady = "Ready"

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
	// KindMIG: a MIG instance of the GPU, for one claim.
	KindMIG
)

// String returns "share", "whole" or "mig", the value of the device's attribute "type".
func (k Kind) String() string {
	switch k {
	case KindWhole:
		return "whole"
	case KindMIG:
		return "mig"
	case KindShare:
	}
	return "share"
}

// ParseKind reads the value of the attribute "type"; false for another value.
func ParseKind(text string) (Kind, bool) {
	for _, k := range []Kind{KindShare, KindWhole, KindMIG} {
		if k.String() == text {
			return k, true
		}
	}
	return KindShare, false
}

const (
	// shareSuffix ends the name of a share's device.
	shareSuffix = "-share"
	// migInfix stands between the GPU and the profile in the name of a MIG instance's device.
	migInfix = "-mig-"
	// maxDeviceName is the longest name of a device, a DNS label.
	maxDeviceName = 63
)

// DeviceName is the name of a GPU's device, a DNS label. It stays the same at a reboot, unlike the GPU's index.
func DeviceName(gpu sharing.GPUID, kind Kind) string {
	name := strings.ToLower(string(gpu))
	if kind == KindShare {
		name += shareSuffix
	}
	return name
}

// InstanceName is the name of the device of a MIG instance, such as "gpu-UUID-mig-1g-10gb-6". It is false for one that
// has no such name.
func InstanceName(gpu sharing.GPUID, in sharing.InstanceRef) (string, bool) {
	name := DeviceName(gpu, KindWhole) + migInfix + encodeProfile(in.Profile) + "-" + strconv.Itoa(in.Start)
	return name, len(name) <= maxDeviceName
}

// encodeProfile writes the name of a MIG profile with the characters of a DNS label.
func encodeProfile(name string) string {
	return strings.NewReplacer(".", "-", "+", "--", "-", "---").Replace(name)
}

// decodeProfile reads what encodeProfile writes.
func decodeProfile(text string) string {
	return strings.NewReplacer("---", "-", "--", "+", "-", ".").Replace(text)
}

// Target is what a device gives.
type Target struct {
	GPU  sharing.GPUID
	Kind Kind
	// Instance is none unless the device is a MIG instance.
	Instance sharing.InstanceRef
}

// TargetOf finds what the device of that name gives; false for a device that the node cannot have.
func TargetOf(name string, gpus []sharing.GPUID) (Target, bool) {
	for _, gpu := range gpus {
		for _, kind := range []Kind{KindShare, KindWhole} {
			if DeviceName(gpu, kind) == name {
				return Target{GPU: gpu, Kind: kind}, true
			}
		}
		rest, is := strings.CutPrefix(name, DeviceName(gpu, KindWhole)+migInfix)
		i := strings.LastIndex(rest, "-")
		if !is || i < 0 {
			continue
		}
		// The text form of a GPURef rejects what is no name of a profile.
		ref, err := sharing.ParseGPURef(string(gpu) + "/" + decodeProfile(rest[:i]) + "@" + rest[i+1:])
		if err == nil && ref.IsInstance() {
			return Target{gpu, KindMIG, ref.Instance}, true
		}
	}
	return Target{}, false
}
