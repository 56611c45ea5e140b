// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps who holds what on one node: claims, and the leases of those that are in use.
//
// It is a state machine without I/O, clock or goroutine. A claim is booked on its GPUs from Claim (or
// Restore) until it is gone; in between it is Claimed or Leased:
//
//	Claim ─► Claimed ── Arm ─► Leased ── EndLease ─► gone (a process of its own)
//	            ▲ │                        │
//	            │ └─ Release ─► gone       │
//	            └──────────────────────────┘ EndLease (a pod's container: until its pod is released)
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
	"slices"

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
	// Level is the enforcement level that the grant has. The ledger keeps it and decides nothing by it.
	Level sharing.Level
	// Recovered is true for a claim that was rebuilt from facts without a record of it.
	Recovered bool
}

// clone returns a copy that shares nothing with c.
func (c Claim) clone() Claim {
	c.Request = c.Request.Clone()
	c.Placement = c.Placement.Clone()
	return c
}

// Lease is a claim's use by one container instance or process group, known by its cgroup.
type Lease struct {
	// ContainerID is the runtime's id of the container; empty for a process of its own.
	ContainerID string
	// Container is the container of the pod that uses the claim: the claim's own, or an init container that
	// runs before it and hands the claim over. Empty for a process of its own.
	Container string
	// Part is what is in force while an init container asks for less than the claim it uses; empty for the
	// whole claim. Each fragment lies within the claim's fragment on the same GPU.
	Part sharing.Placement
	// Cgroup is the cgroup's absolute directory, and Inode tells it from an earlier one of that name. No two
	// leases of a ledger have the same Cgroup.
	Cgroup string
	Inode  uint64
}

// clone returns a copy that shares nothing with l.
func (l Lease) clone() Lease {
	l.Part = l.Part.Clone()
	return l
}

// Equal reports whether both are the same use of a claim.
func (l Lease) Equal(m Lease) bool {
	return l.ContainerID == m.ContainerID && l.Container == m.Container && l.Cgroup == m.Cgroup && l.Inode == m.Inode && slices.Equal(l.Part, m.Part)
}

// State is where a claim is in its life.
type State uint8

// The states of a claim in the ledger.
const (
	// Claimed: booked, and nothing runs on it.
	Claimed State = iota
	// Leased: booked, and a container instance uses it.
	Leased
)

// String returns "claimed" or "leased".
func (s State) String() string {
	if s == Leased {
		return "leased"
	}
	return "claimed"
}

// Grant is a claim and its lease, as users see it.
type Grant struct {
	Claim Claim
	// Lease is nil exactly while State is Claimed.
	Lease *Lease
	State State
	// Lent is what the lease is lent on each GPU beyond its fragment, nil where it is lent nothing.
	Lent map[sharing.GPUID]sharing.Bytes
	// Joint is what the claims with a cap in common have together on the claim's GPUs; nil where its cap is its own.
	Joint sharing.Placement
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
		pages: pages{gpus: map[sharing.GPUID]*gpu{}},
		index: index{claims: map[ClaimID]*entry{}, names: map[string]ClaimID{}, cgroups: map[string]ClaimID{}, joined: map[ClaimID][]*entry{}},
	}
}
