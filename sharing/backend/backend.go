// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package backend is what the backends have in common. A backend enforces the caps of grants in one way. The packages
// driver, mps, libkerf and reactive each have one, and package choice decides between them.
//
// A cap that a method has set without an error was read back, and is never larger than asked. After an error none of it
// is enforced, or the error says what could not be undone.
//
// Probes are no methods of Backend: each needs other things, and the session runs them once for each GPU. Setting the
// driver's limits at the start of a program is none either. Every grant has such limits, also of the GPUs that it does
// not use, whatever its backend is.
package backend

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Reading is the enforced cap.
type Reading struct {
	// Cap is the hard limit; NoCap when there is none.
	Cap sharing.Bytes
	// Used is what the cgroup's processes hold, as the backend counts it.
	Used sharing.Bytes
}

// Grant is what a backend has to know of a grant.
type Grant struct {
	ID string
	// Root is the first of the grants that share its cap; itself where none does.
	Root string
	// Placement is what was granted.
	Placement sharing.Placement
	// UID is the user, and PID the process, that asked for it; PID is 0 if no process did.
	UID uint32
	PID int
	// Contained is true if containers use it, and Pod if they are a pod's.
	Contained, Pod bool
	// ByEnv is true if the process cannot have a private loader file: its environment names libraries.
	ByEnv bool
	// Domain names who may share a server process with it.
	Domain string
	// Cgroup is the directory of the cgroup; "" before there is one.
	Cgroup string
	// Active is true while programs may use it, or a grant that shares its cap.
	Active bool
}

// NoCap stands for "no limit" in a Reading.
const NoCap sharing.Bytes = 1<<64 - 1

// LeastLimit is the cap for a GPU that a process must not use: too little for any context, so that nothing can run
// there. It is not 0, because 0 is documented as a soft limit's "none" and not as a hard limit. Some layers also take 0
// for "not set". It is one large page, so that a driver which rounds down to pages does not make 0 of it.
const LeastLimit = 2 * sharing.MiB

// Injection is what a container or a process gets.
type Injection struct {
	Env    map[string]string
	Mounts []sharing.Mount
	// Library is loaded into a process and its children; "" for none.
	Library string
}

// Fault is what is wrong with the enforcement of a grant whose programs run.
type Fault struct {
	// Unknown says why it is not known whether the caps are enforced; "" if it is known.
	Unknown string
	// Bypassed says which programs the caps are not enforced on; "" if there are none.
	Bypassed string
}

// Backend enforces the caps of grants in one way. It is safe for concurrent use.
type Backend interface {
	// Prepare makes what the containers of a grant are made with, for these caps. It returns soon.
	Prepare(ctx context.Context, g Grant, caps sharing.Placement) error
	// Enforce enforces caps for programs that start after it, and makes what they need. Nil leaves them as they are.
	Enforce(ctx context.Context, g Grant, caps sharing.Placement) error
	// Injection is what the programs of a grant get that Prepare or Enforce was called for. It returns at once.
	Injection(g Grant, caps sharing.Placement) (Injection, error)
	// Resize changes caps while programs run.
	Resize(ctx context.Context, g Grant, caps sharing.Placement) error
	// Read is the cap of a grant on a GPU and its usage there, as the backend counts it. The error is
	// sharing.ErrNotFound if the backend has no cap of it.
	Read(ctx context.Context, g Grant, gpu sharing.GPURef) (Reading, error)
	// Check returns at once.
	Check(g Grant) Fault
	// Recover finds what an earlier agent made for a grant. It reports whether Read tells its caps now.
	Recover(g Grant) bool
	// Release ends the grant, of which only the ID may be known. It returns at once, and leaves work to Clean.
	Release(g Grant)
	// Clean does the work that Release left.
	Clean(ctx context.Context)
}

// None is a backend that sets nothing. The reactive backend is one: it compares use with the amounts of the ledger.
type None struct{}

var _ Backend = None{}

// Prepare implements Backend.
func (None) Prepare(context.Context, Grant, sharing.Placement) error { return nil }

// Enforce implements Backend.
func (None) Enforce(context.Context, Grant, sharing.Placement) error { return nil }

// Injection implements Backend.
func (None) Injection(Grant, sharing.Placement) (Injection, error) { return Injection{}, nil }

// Resize implements Backend.
func (None) Resize(context.Context, Grant, sharing.Placement) error { return nil }

// Read implements Backend.
func (None) Read(_ context.Context, g Grant, _ sharing.GPURef) (Reading, error) {
	return Reading{}, fmt.Errorf("cap of grant %q: %w", g.ID, sharing.ErrNotFound)
}

// Check implements Backend.
func (None) Check(Grant) Fault { return Fault{} }

// Recover implements Backend.
func (None) Recover(Grant) bool { return false }

// Release implements Backend.
func (None) Release(Grant) {}

// Clean implements Backend.
func (None) Clean(context.Context) {}

// Missing is a backend that this machine does not have. Grants of it may exist.
type Missing struct {
	None
	// Err is the error of all that it cannot do.
	Err error
}

// Prepare implements Backend.
func (m Missing) Prepare(context.Context, Grant, sharing.Placement) error { return m.Err }

// Enforce implements Backend.
func (m Missing) Enforce(context.Context, Grant, sharing.Placement) error { return m.Err }

// Injection implements Backend.
func (m Missing) Injection(Grant, sharing.Placement) (Injection, error) { return Injection{}, m.Err }

// Resize implements Backend.
func (m Missing) Resize(context.Context, Grant, sharing.Placement) error { return m.Err }

// Check implements Backend.
func (m Missing) Check(Grant) Fault { return Fault{Unknown: m.Err.Error()} }

// Set has the backends of a node. MPS is nil on a machine without it, and Driver without a driver that limits memory.
type Set struct{ Driver, MPS, Libkerf Backend }

// Of is the backend of a grant.
func (s Set) Of(b sharing.Backend) Backend {
	or := func(b Backend, what string) Backend {
		if b == nil {
			return Missing{Err: fmt.Errorf("%s: %w", what, sharing.ErrUnavailable)}
		}
		return b
	}
	switch b {
	case sharing.BackendDriver:
		return or(s.Driver, "the driver limits no memory")
	case sharing.BackendMPS:
		return or(s.MPS, "this agent does not run MPS")
	case sharing.BackendLibkerf:
		return or(s.Libkerf, "this agent does not have libkerf")
	case sharing.BackendReactive, sharing.BackendNone:
	}
	return None{}
}

// Clean does the work that Release left to backends.
func (s Set) Clean(ctx context.Context) {
	for _, b := range []Backend{s.MPS, s.Libkerf} {
		if b != nil {
			b.Clean(ctx)
		}
	}
}
