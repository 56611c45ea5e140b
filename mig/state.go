// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// State is what is known of MIG on one GPU.
type State struct {
	GPU sharing.GPUID
	// Able is true for a GPU that supports MIG, and On while it is in MIG mode.
	Able, On bool
	// Units is the number of memory slices, 0 while it is not known. Profiles are the names of the GPU's profiles.
	Units    int
	Profiles []string
	// Geometry has these profiles while the GPU is in MIG mode, or demand may enable that. The caller must not change
	// their Starts.
	Geometry []Profile
	// Fixed is true if a layout lists the instances of the GPU, and if settings are read-only.
	Fixed bool
	// Shared is true if the instances are shared. Then no grant has a whole one.
	Shared bool
	// ModeSwitchable is true if demand may switch the MIG mode. Busy is a clause that says what prevents that. It is
	// empty if only grants can prevent it. Turned is the time of the last switch, zero if there was none.
	ModeSwitchable bool
	Busy           string
	ModeSwitchedAt time.Time
	//
	// MaxInstances is how many instances of each profile the GPU can have at once, by name: those of its layout, or as
	// many as fit. With read-only settings it counts the instances that exist. It is nil without Geometry.
	MaxInstances map[string]int
	// Instances are in the order of their starts.
	Instances []Instance
	// Error is why the GPU gives no instance, and PendingReason why it is not as its pool requires; empty if all is
	// well.
	Error, PendingReason string
}

// Instance is a MIG instance that exists or that Kerf is creating.
type Instance struct {
	sharing.Instance
	// Memory is what programs can use of it.
	Memory sharing.Bytes
	// GI is the driver's ID, -1 while the instance does not exist.
	GI int
	// Managed is false for an unmanaged instance: Kerf neither grants nor destroys it.
	Managed bool
	// Ready is true if the instance exists and has a compute instance.
	Ready bool
	// UUID is the MIG device's, empty while it is not ready.
	UUID string
	// Grant is the ID of the grant that has it, and Owner names who has it or waits for it. Both may be empty.
	Grant, Owner string
	// PendingReason is why the last attempt to create it failed.
	PendingReason string
}

// Granted is what a grant has of a GPU.
type Granted struct {
	// Instance is none for a share of the GPU, for a whole GPU, and if it is not known which instance a share is of.
	Instance sharing.Instance
	// Part is the shared instance of which the grant has a share, else the zero value.
	Part sharing.GPURef
	// Who has it, for people.
	Who string
}

// AnyInstance in a User means that it is not known which instance is in use: all of the GPU count as in use.
const AnyInstance = -1

// User is a pod, grant, container or process that uses an instance.
type User struct {
	// GI is the driver's ID of the GPU instance, or AnyInstance.
	GI int
	// At replaces GI if it is set: Kerf's instance at this place is in use, whatever ID it has now.
	At *Place
	// Who uses it, for people.
	Who string
}

// AnyStart leaves the start of an instance to the GPU.
const AnyStart = -1

// Candidate is what a GPU gives to a request for an instance.
type Candidate struct {
	// Share is the instance, if Detail is empty.
	Share sharing.Share
	// Steps is the number of calls that create it, 0 if it exists. Loss is what it takes from the room for other
	// instances, see Values.
	Steps int
	Loss  int64
	// Detail is why there is no instance. Never is true if that stays so whatever other grants release.
	Detail string
	Never  bool
	// Reason is Detail in a word, for counters; empty if there is an instance.
	Reason Reason
	// Unknown is the error in the name of the profile, nil if the GPU has that profile.
	Unknown error
}

// Better reports whether o costs other requests less than p: an instance that exists costs least.
func (o Candidate) Better(p Candidate) bool {
	return cmp.Or(cmp.Compare(min(o.Steps, 1), min(p.Steps, 1)), cmp.Compare(o.Loss, p.Loss),
		cmp.Compare(o.Steps, p.Steps)) < 0
}

// Reason is why a GPU gives no instance.
type Reason string

// These are the reasons. With Full and Fragmented, other instances are in use. With Fragmented the free space is not
// contiguous.
const (
	Full         Reason = "full"
	Fragmented   Reason = "fragmented"
	Unmanaged    Reason = "foreign"
	NoProfile    Reason = "no_such_profile"
	NotLaidOut   Reason = "not_in_layout"
	Shared       Reason = "shared"
	NotInMIGMode Reason = "not_in_mig_mode"
	Faulty       Reason = "trouble"
	NotChosen    Reason = "not_chosen"
	Unhealthy    Reason = "unhealthy"
	Cordoned     Reason = "cordoned"
	NoManager    Reason = "unavailable"
)

// Proposal is what Kerf would do for one GPU to be as a pool requires.
type Proposal struct {
	GPU   sharing.GPUID
	Index int
	// Steps are in their order, for people.
	Steps []string
	// PendingReason says what prevents other steps, empty if nothing does.
	PendingReason string
	// After are the instances after the steps, by their starts. Units is the number of memory slices. Both are set only
	// if there are steps.
	After []Instance
	Units int
}
