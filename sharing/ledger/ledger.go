// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger accounts for the grants on one node: claims, and the leases of those that are in use.
//
// It is a state machine without I/O, clock or goroutine. A claim is reserved on its GPUs from Claim (or Restore)
// until it is removed. A grant is a claim with its attachments:
//
//	grant:      Reserved ─► Active ─► Releasing ─► gone      Active while it has a lease: an enforced attachment
//	attachment: Assigned ─► Injected ─► Activating ─► Active ─► Releasing ─► gone
//	            (Assign)    (Created)   (Activate)    (Arm)     (Drained)    (EndLease)
//	                  └───► Rejected (Created without what the grant gives)
//
// A claim has at most one enforced attachment, and one that is next. A runtime often creates a container before the
// previous one has ended. An attachment that is not enforced may end at any time (Unassign, or Assign of another). An
// attachment whose activation fails is Injected again. A process is Activating at once. Each other step is an error.
// The claim of a process ends with its lease. The claim of a pod's container stays until it is released.
//
// Guarantees:
//   - A call does all that it says, or changes nothing.
//   - Only calls that record facts (SetInventory, Restore, Adopt) can leave a GPU with more grants than capacity.
//   - The ledger never drops a claim because its GPU changed or was removed.
//   - A result never aliases the ledger's state. The results of two calls of Grants may share memory.
//
// The ledger does not choose GPUs (sharing/allocator does), set caps, or know whether a process lives. It is not safe
// for concurrent use: its owner has a lock.
package ledger

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// ClaimID names a claim. It is never used again on this node.
type ClaimID string

// Owner is the user of a claim: one container of a pod, or a process.
type Owner struct {
	UID uint32
	PID int
	// PodUID and Container are both set for a pod's container, and both empty for a process.
	PodUID    string
	Container string
	// Namespace and PodName are the pod's names, for people.
	Namespace string
	PodName   string
}

// Pod reports whether a pod's container is the owner.
func (o Owner) Pod() bool { return o.PodUID != "" }

// Claim is a placement held for an owner.
type Claim struct {
	ID ClaimID
	// Name is empty or unique among the ledger's claims.
	Name  string
	Owner Owner
	// Request is what was asked. Of a claim that was made here it is complete and valid; of a restored one
	// it is what is still known.
	Request sharing.Request
	// Placement has one share per GPU, no GPU twice.
	Placement sharing.Placement
	// With names the claim of another container of the same pod whose cap this one shares, on the same GPUs. It is
	// empty for a claim with a separate cap. Each claim reserves its request, and the cap is the sum.
	With ClaimID
	// Recovered is true for a claim that was rebuilt from facts without a record of it.
	Recovered bool

	Terms
}

// Terms are properties of a claim that the ledger stores but does not use.
type Terms struct {
	// Level is the enforcement level that the grant has, and LevelReason says why it is not stronger.
	Level       sharing.Level
	LevelReason string
	// Backend enforces the grant; BackendNone for whole GPUs, too.
	Backend sharing.Backend
	// Domain names who may share an MPS daemon with it.
	Domain string
	// Kind is the kind of the container in its pod. Asks are the device IDs with which kubelet admitted it. They are
	// app and empty for a process.
	Kind sharing.ContainerKind
	Asks []sharing.Ask
	// Priority is that of the pod; 0 where there is none, or it is not known.
	Priority int32
	// Standalone is true for a claim that a container which is no pod's is to use.
	Standalone bool
	// Until is when a claim that no process waits for ends if it is not activated; zero for never.
	Until time.Time
}

// clone returns a copy that shares nothing with c.
func (c Claim) clone() Claim {
	c.Request = c.Request.Clone()
	c.Placement = c.Placement.Clone()
	return c
}

// Grant is a claim and its lease, as users see it.
type Grant struct {
	Claim Claim
	// Lease is the enforced attachment, Active or Releasing; nil for none.
	Lease *Attachment
	// Next is the container instance or process that is to use the claim next: Assigned, Injected or Activating; nil
	// for none.
	Next *Attachment
	// Work is what is being done with the grant.
	Work Work
	// Withdrawn says why the claim ends once nothing uses it.
	Withdrawn Withdrawal
	// Fresh is true for a pod's claim until a container is created with it: its GPUs may still be others.
	Fresh bool
	// Burst is the burst memory of the active grant on each GPU, nil if it has none.
	Burst map[sharing.GPURef]sharing.Bytes
	// SharedCap is the sum of the grants with a shared cap on the grant's GPUs; nil if its cap is not shared.
	SharedCap sharing.Placement
}

// State is Reserved, Active or Releasing.
func (g Grant) State() State {
	switch {
	case g.Lease != nil:
		return Active
	case g.Withdrawn != NotWithdrawn:
		return Releasing
	}
	return Reserved
}

// Newest is the attachment that came last: the next one, else the enforced one. It is the zero value if there is
// none.
func (g Grant) Newest() Attachment {
	switch {
	case g.Next != nil:
		return *g.Next
	case g.Lease != nil:
		return *g.Lease
	}
	return Attachment{}
}

// Current is the enforced attachment, else the next one. It is the zero value if there is none.
func (g Grant) Current() Attachment {
	if g.Lease != nil {
		return *g.Lease
	}
	return g.Newest()
}

// Granted is what a container of the claim may use: what is booked for it, or for all that share its cap.
func (g Grant) Granted() sharing.Placement {
	if g.SharedCap != nil {
		return g.SharedCap
	}
	return g.Claim.Placement
}

// Caps is what the agent enforces for the lease: InForce plus burst memory, or the shared cap. It is empty without a
// lease.
func (g Grant) Caps() sharing.Placement {
	if g.SharedCap != nil && g.Lease != nil {
		return g.SharedCap.Clone()
	}
	p := g.InForce().Clone()
	for i := range p {
		p[i].Memory, _ = p[i].Memory.Add(g.Burst[p[i].GPU]) // within the share's Burst
	}
	return p
}

// InForce is what the lease may use: the claim's placement, or the part of it that the container asked for.
// It is empty while there is no lease.
func (g Grant) InForce() sharing.Placement {
	switch {
	case g.Lease == nil:
		return nil
	case len(g.Lease.Part) > 0:
		return g.Lease.Part
	}
	return g.Claim.Placement
}

// Ledger is what is held on one node. Make one with New.
type Ledger struct {
	pages
	index
}

// New returns a ledger without GPUs and claims.
func New() *Ledger {
	return &Ledger{
		pages: pages{gpus: map[sharing.GPURef]*gpu{}},
		index: index{claims: map[ClaimID]*entry{}, names: map[string]ClaimID{}, cgroups: map[string]ClaimID{},
			containers: map[string]ClaimID{}, joined: map[ClaimID][]*entry{}},
	}
}
