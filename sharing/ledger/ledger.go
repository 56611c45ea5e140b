// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger accounts for the grants on one node, and for the attachments of those that are in use.
//
// It is a state machine without I/O, clock or goroutine. A grant has its GPUs from Reserve (or Restore) until it is
// removed. It consists of a reservation and its attachments:
//
//	grant:      Reserved ─► Active ─► Releasing ─► gone      Active while an attachment is enforced
//	attachment: Assigned ─► Injected ─► Activating ─► Active ─► Releasing ─► gone
//	            (Assign)    (Created)   (Activate)    (Activated)     (Drained)    (EndAttachment)
//	                  └───► Rejected (Created without what the grant gives)
//
// A grant has at most one enforced attachment, and one that is next. A runtime often creates a container before the
// previous one has ended. An attachment that is not enforced may end at any time (Unassign, or Assign of another). An
// attachment whose activation fails is Injected again. A process is Activating at once. Each other step is an error.
// The grant of a process ends with its attachment. The grant of a pod's container stays until it is released.
//
// Guarantees:
//   - A call does all that it says, or changes nothing.
//   - Only calls that record facts (SetInventory, Restore, Adopt) can leave a GPU with more grants than capacity.
//   - The ledger never drops a grant because its GPU changed or was removed.
//   - A result never aliases the ledger's state. The results of two calls of Grants may share memory.
//
// The ledger does not choose GPUs (sharing/allocator does), set caps, or know whether a process lives. It is not safe
// for concurrent use: its owner has a lock.
package ledger

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// GrantID names a grant. It is never used again on this node.
type GrantID string

// Owner is the user of a grant: one container of a pod, or a process.
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

// Reservation is a placement held for an owner.
type Reservation struct {
	ID GrantID
	// Name is empty or unique among the ledger's grants.
	Name  string
	Owner Owner
	// Request is what was asked. Of a grant that was made here it is complete and valid; of a restored one
	// it is what is still known.
	Request sharing.Request
	// Placement has one share per GPU, no GPU twice.
	Placement sharing.Placement
	// With names the grant of another container of the same pod whose cap this one shares, on the same GPUs. It is
	// empty for a grant with a separate cap. Each grant reserves its request, and the cap is the sum.
	With GrantID
	// Recovered is true for a grant that was rebuilt from facts without a record of it.
	Recovered bool

	Terms
}

// Terms are properties of a grant that the ledger stores but does not use. Only Requests say which grants have the same
// devices together, see DevicesKey: they never change.
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
	Kind     sharing.ContainerKind
	Requests []sharing.ResourceRequest
	// Claims names the requests of ResourceClaims among Requests, as CLAIM/REQUEST; empty for others.
	Claims []string
	// Priority is that of the pod; 0 where there is none, or it is not known.
	Priority int32
	// Standalone is true for a grant that a container which is no pod's is to use.
	Standalone bool
	// Until is when a grant that no process waits for ends if it is not activated; zero for never.
	Until time.Time
}

// clone returns a copy that shares nothing with c.
func (c Reservation) clone() Reservation {
	c.Request = c.Request.Clone()
	c.Placement = c.Placement.Clone()
	return c
}

// Grant is a grant and its attachment, as users see it.
type Grant struct {
	Reservation
	// Lease is the enforced attachment, Active or Releasing; nil for none.
	Active *Attachment
	// Next is the container instance or process that is to use the grant next: Assigned, Injected or Activating; nil
	// for none.
	Next *Attachment
	// Work is what is being done with the grant.
	Work Work
	// Withdrawn says why the grant ends once nothing uses it.
	Withdrawn Withdrawal
	// Fresh is true for a pod's grant until a container is created with it: its GPUs may still be others.
	Fresh bool
	// Burst is the burst memory of the active grant on each GPU, nil if it has none.
	Burst map[sharing.GPURef]sharing.Bytes
	// SharedCap is the sum of the grants with a shared cap on the grant's GPUs; nil if its cap is not shared.
	SharedCap sharing.Placement
}

// State is Reserved, Active or Releasing.
func (g Grant) State() State {
	switch {
	case g.Active != nil:
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
	case g.Active != nil:
		return *g.Active
	}
	return Attachment{}
}

// Current is the enforced attachment, else the next one. It is the zero value if there is none.
func (g Grant) Current() Attachment {
	if g.Active != nil {
		return *g.Active
	}
	return g.Newest()
}

// Granted is what a container of the grant may use: what is booked for it, or for all that share its cap.
func (g Grant) Granted() sharing.Placement {
	if g.SharedCap != nil {
		return g.SharedCap
	}
	return g.Placement
}

// Caps is what the agent enforces for the attachment: InForce plus burst memory, or the shared cap. It is empty without
// an attachment.
func (g Grant) Caps() sharing.Placement {
	if g.SharedCap != nil && g.Active != nil {
		return g.SharedCap.Clone()
	}
	p := g.InForce().Clone()
	for i := range p {
		p[i].Memory, _ = p[i].Memory.Add(g.Burst[p[i].GPU]) // within the share's Burst
	}
	return p
}

// InForce is what the attachment may use: the grant's placement, or the part of it that the container asked for.
// It is empty while there is no attachment.
func (g Grant) InForce() sharing.Placement {
	switch {
	case g.Active == nil:
		return nil
	case len(g.Active.Part) > 0:
		return g.Active.Part
	}
	return g.Placement
}

// Ledger is what is held on one node. Make one with New.
type Ledger struct {
	pages
	index
}

// New returns a ledger without GPUs and grants.
func New() *Ledger {
	return &Ledger{
		pages: pages{gpus: map[sharing.GPURef]*gpu{}},
		index: index{grants: map[GrantID]*entry{}, names: map[string]GrantID{}, cgroups: map[string]GrantID{},
			containers: map[string]GrantID{}, pods: map[string][]*entry{}, joined: map[GrantID][]*entry{},
			companions: companions{}},
	}
}
