// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// State is where a grant or an attachment is in its life.
type State uint8

// The states. A grant is Reserved, Active or Releasing. An attachment is any of the others but Reserved.
const (
	// Reserved: the resources are booked, and no attachment is active.
	Reserved State = iota
	// Assigned: the container is known. The runtime has not yet reported whether it created it with the grant's
	// devices.
	Assigned
	// Rejected: the container was created without what the grant gives. It must not start, and is forgotten.
	Rejected
	// Injected: the container was created with the devices and the environment of the grant.
	Injected
	// Activating: its cgroup is known, and its cap is being set and read back.
	Activating
	// Active: the cap is enforced, and the programs run.
	Active
	// Releasing has two meanings. No process is in an attachment's cgroup, but the driver still charges memory to it.
	// Or a grant was withdrawn and has no attachment.
	Releasing
	// Released: it does not exist. Only a Transition has this state.
	Released
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Reserved:
		return "reserved"
	case Assigned:
		return "assigned"
	case Rejected:
		return "rejected"
	case Injected:
		return "injected"
	case Activating:
		return "activating"
	case Active:
		return "active"
	case Releasing:
		return "releasing"
	case Released:
		return "gone"
	}
	return "unknown"
}

// Attachment is one container instance or process group that uses a grant, known by its cgroup once it is Activating.
type Attachment struct {
	State State
	// ContainerID is the container runtime's ID of the container. It is empty for a process without a container.
	ContainerID string
	// Container is the container of the pod that uses the grant. It may be an init container that runs before the
	// grant's own and hands the grant over. Empty without a pod.
	Container string
	// Requests are what kubelet admitted the container with: the hook's amounts must be among them.
	Requests []sharing.ResourceRequest
	// Part is set while an init container requests less than the grant that it uses. Then this part is enforced. It
	// is empty for the whole grant. Each share lies within the grant's share on the same GPU.
	Part sharing.Placement
	// Cgroup is the cgroup's absolute directory, and Inode distinguishes it from an earlier one of that name. No two
	// attachments with a cap have the same Cgroup.
	Cgroup string
	Inode  uint64

	Checks
}

// Checks are what the agent found out about an attachment. The ledger keeps them and decides nothing by them.
type Checks struct {
	// Verified is true once the running agent has read the caps back. After a restart it is false.
	Verified bool
	// Unverified says why the cap could not be read back later; empty if it could.
	Unverified string
	// Doubt says why the level is unknown although the cap is in place; empty if it is known.
	Doubt string
	// Limited are the GPUs that are not part of the grant and got the least limit with the caps. A GPU that did not
	// answer then has none.
	Limited []sharing.GPURef
	// StartedWith is the memory in the environment of the processes StartedPIDs, and of those that they start, if the
	// cap has changed since. Else it is 0.
	StartedWith sharing.Bytes
	StartedPIDs []int
	// InjectTook is how long the injection took; 0 after a restart.
	InjectTook time.Duration
}

// clone returns a copy that shares nothing with a that anybody changes.
func (a *Attachment) clone() *Attachment {
	if a == nil {
		return nil
	}
	c := *a
	c.Part, c.Limited = c.Part.Clone(), slices.Clone(c.Limited)
	return &c
}

// inForce reports whether the cap holds programs: they may run.
func (a *Attachment) inForce() bool { return a != nil && (a.State == Active || a.State == Releasing) }

// Withdrawal says why a grant ends as soon as nothing uses it.
type Withdrawal uint8

// The reasons of a withdrawal.
const (
	// NotWithdrawn: the grant stays.
	NotWithdrawn Withdrawal = iota
	// InitDone: it is of an init container, and the pod's app containers are created.
	InitDone
	// PodRemoved: kubelet has forgotten the pod, or none of its containers starts again. A grant of a ResourceClaim
	// stays while the claim is prepared, for the next pod.
	PodRemoved
	// ClaimEnded: kubelet has unprepared the ResourceClaim. It takes the place of every other reason, and is on record.
	ClaimEnded
)

// Work is what is being done with a grant outside of the ledger. Only one thing is done at a time.
type Work uint8

// The kinds of work.
const (
	// NoWork: nothing.
	NoWork Work = iota
	// Activation: caps are being set for an attachment.
	Activation
	// Release: caps are being taken off.
	Release
	// Resizing: the memory of the grant is being changed.
	Resizing
)
