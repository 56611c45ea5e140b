// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps who holds what on one node: claims, and the leases of those that are in use.
//
// It is a state machine without I/O, clock or goroutine. A claim is booked on its GPUs from Claim (or
// Restore) until it is gone. A grant is a claim with its attachments:
//
//	grant:      Reserved ─► Active ─► Releasing ─► gone      Active while it has a lease: an attachment in force
//	attachment: Assigned ─► Injected ─► Activating ─► Active ─► Releasing ─► gone
//	            (Assign)    (Created)   (Activate)    (Arm)     (Drained)    (EndLease)
//	                  └───► Rejected (Created without what the grant gives)
//
// A claim has at most one attachment in force, and one that is next: a container is often created before the one before it
// has ended. An attachment that is not in force may go at any time (Unassign, or Assign of another), and
// one that fails to activate is Injected again. A process of its own is Activating at once. Each other step is an error. With
// its lease, the claim of a process of its own ends; that of a pod's container stays until it is released.
//
// It promises: a call either does all it says or changes nothing; no call but those that take in facts
// (SetInventory, Restore, Adopt) leaves a GPU with more booked or in force than it has; a claim is never
// dropped because its GPU changed or went away; nothing that it returns aliases its own state (what two calls of Grants
// return may be the same memory).
//
// It does not choose GPUs (sharing/allocator does), set caps, or know whether a process lives. It is not
// safe for concurrent use: its owner holds a lock.
package ledger

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// ClaimID names a claim. It is never used again on this node.
type ClaimID string

// Owner is whom a claim is held for: one container of a pod, or a process of its own.
type Owner struct {
	UID uint32
	PID int
	// PodUID and Container are both set for a pod's container and both empty for a process of its own.
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
	// Placement has one fragment per GPU, no GPU twice.
	Placement sharing.Placement
	// With is the claim of another container of the same pod whose cap this one shares, on the same GPUs; empty for a
	// claim with a cap of its own. What each of them asked for is booked for each, and the cap is the sum.
	With ClaimID
	// Recovered is true for a claim that was rebuilt from facts without a record of it.
	Recovered bool

	Terms
}

// Terms are what holds of a claim beside what is booked. The ledger keeps them and decides nothing by them.
type Terms struct {
	// Level is the enforcement level that the grant has, and LevelReason says why it is not stronger.
	Level       sharing.Level
	LevelReason string
	// Backend enforces the grant; BackendNone for whole GPUs, too.
	Backend sharing.Backend
	// Domain names who may share an MPS daemon with it.
	Domain string
	// Kind is the part in its pod of the container that the claim is for, and Asks are what kubelet admitted that with;
	// app and empty for a process of its own.
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
	// Lease is the attachment in force, Active or Releasing; nil for none.
	Lease *Attachment
	// Next is the container instance or process that is to use the claim next: Assigned, Injected or Activating; nil for none.
	Next *Attachment
	// Work is what is being done with the grant.
	Work Work
	// Withdrawn says why the claim ends once nothing uses it.
	Withdrawn Withdrawal
	// Fresh is true for a pod's claim until a container is created with it: its GPUs may still be others.
	Fresh bool
	// Lent is what the lease is lent on each GPU beyond its fragment, nil where it is lent nothing.
	Lent map[sharing.GPURef]sharing.Bytes
	// Joint is what the claims with a cap in common have together on the claim's GPUs; nil where its cap is its own.
	Joint sharing.Placement
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

// Newest is the attachment that came last: the next one, else the one in force. It is the zero value where there is none.
func (g Grant) Newest() Attachment {
	switch {
	case g.Next != nil:
		return *g.Next
	case g.Lease != nil:
		return *g.Lease
	}
	return Attachment{}
}

// Current is the attachment in force, else the next one. It is the zero value where there is none.
func (g Grant) Current() Attachment {
	if g.Lease != nil {
		return *g.Lease
	}
	return g.Newest()
}

// Granted is what a container of the claim may use: what is booked for it, or for all that share its cap.
func (g Grant) Granted() sharing.Placement {
	if g.Joint != nil {
		return g.Joint
	}
	return g.Claim.Placement
}

// Caps is what the lease is held to: InForce, and what it is lent beside; or what it shares with others. It is empty
// while there is no lease.
func (g Grant) Caps() sharing.Placement {
	if g.Joint != nil && g.Lease != nil {
		return g.Joint.Clone()
	}
	p := g.InForce().Clone()
	for i := range p {
		p[i].Memory, _ = p[i].Memory.Add(g.Lent[p[i].GPU]) // within the fragment's Burst
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
		index: index{claims: map[ClaimID]*entry{}, names: map[string]ClaimID{}, cgroups: map[string]ClaimID{}, containers: map[string]ClaimID{}, joined: map[ClaimID][]*entry{}},
	}
}
