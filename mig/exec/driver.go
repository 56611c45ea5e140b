// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// GPU names a GPU for the journal: UUID, and PCI address for whoever reads it.
type GPU struct {
	ID  sharing.GPUID
	PCI string
}

// Instance is a GPU instance that the driver reports.
type Instance struct {
	Place mig.Place
	GI    int
	CIs   []Compute
}

// Compute is a compute instance in a GPU instance.
type Compute struct {
	CI int
	// Whole is true when it is over all of its GPU instance.
	Whole bool
	// UUID is the MIG device's.
	UUID string
}

// Mode is a GPU's MIG mode.
type Mode struct {
	Current, Pending bool
	// NeedsReset is true for a GPU that changes its mode with a reset.
	NeedsReset bool
}

// Driver is what the executor needs of the driver. Its errors wrap the words of package sharing: ErrUnavailable for
// what is in use or cannot be told to have been done, any other for what was not done.
type Driver interface {
	Mode(ctx context.Context, gpu sharing.GPUID) (Mode, error)
	// SetMode returns whether the mode is current now.
	SetMode(ctx context.Context, gpu sharing.GPUID, on bool) (bool, error)
	Table(ctx context.Context, gpu sharing.GPUID) (*mig.Table, error)
	// Instances is empty outside MIG mode.
	Instances(ctx context.Context, gpu sharing.GPUID) ([]Instance, error)
	CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (gi int, err error)
	DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error
	// CreateCI makes the compute instance over all of a GPU instance.
	CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (Compute, error)
	DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error
}

// AnyGI in a Hold means that it is not known which instance is held: all of them count as held.
const AnyGI = -1

// Hold says that an instance is in use.
type Hold struct {
	GI int // id of the GPU instance, or AnyGI
	// At, where it is set, stands for GI: Kerf's instance at this place is meant, whatever id it has now.
	At *mig.Place
	// Who holds it, as people know it: a pod, a grant, a process.
	Who string
}

// Holders is somebody who knows who uses a GPU's instances: the ledger, the container runtime, the driver's list of
// processes. An error counts as "in use".
type Holders interface {
	Holders(ctx context.Context, gpu sharing.GPUID) ([]Hold, error)
}

// Own is an instance of Kerf's.
type Own struct {
	Place mig.Place
	GI    int
	// CI is -1 and UUID empty while it has no compute instance.
	CI   int
	UUID string
}
