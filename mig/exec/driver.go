// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package exec carries out plans on a GPU's MIG instances, so that a crash at any step leaves what a restart can finish
// or undo.
//
// For each GPU there is a journal: the instances of Kerf. During a change it also has the earlier state, the desired
// one, and the next call. It is written and flushed before each call to the driver, never after the fact. At start
// Recover compares it with what the driver reports, and finishes a change or undoes it. Else the GPU has an error, with
// the reason, and nothing more is done to it until Recover succeeds. After a reboot the layout is created again.
//
// Promises:
//   - It destroys an instance only if Kerf made it and no holder uses it. It identifies an instance by its place,
//     its id and the UUID of its MIG device. An instance that an admin made at the same place is not Kerf's.
//   - It writes the journal before each call that changes something. On a full disk it changes nothing.
//   - It does not guess at a journal that is damaged or of a newer program. It leaves the GPU alone until the GPU is
//     empty.
//   - Recover and Apply may stop at any point and run again.
//
// Not promised: Kerf may be killed just before it creates an instance. If an admin then creates one without a compute
// instance at that place, Kerf cannot distinguish them. Only one executor may use a directory; its owner holds the
// directory's lock. This package never resets a GPU. Before Hopper, setting the MIG mode may reset it; SetMode does so
// only if allowed.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// GPU names a GPU for the journal by UUID. The PCI address is for human readers.
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

// Driver is what the executor needs of the driver. Its errors wrap those of package sharing. ErrUnavailable means in
// use, or of unknown outcome; any other error means that the call changed nothing.
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

// UserLister reports who uses a GPU's instances: the ledger, the container runtime, the driver's process list. An error
// counts as "in use".
type UserLister interface {
	Users(ctx context.Context, gpu sharing.GPUID) ([]mig.User, error)
}

// Own is an instance of Kerf's.
type Own struct {
	Place mig.Place
	GI    int
	// CI is -1 and UUID empty while it has no compute instance.
	CI   int
	UUID string
}

// identify divides what the driver reports into Kerf's instances and all others. An instance is Kerf's only if the
// journal accounts for it. It has the same place, the same id, and the same MIG device, or what the call under way must
// have made of it.
func identify(j journal, seen []Instance) (mine []Own, foreign []Instance) {
	for _, in := range seen {
		if o, ok := j.own(in); ok {
			mine = append(mine, o)
		} else {
			foreign = append(foreign, in)
		}
	}
	return mine, foreign
}

func (j journal) own(in Instance) (Own, bool) {
	i := slices.IndexFunc(j.Mine, func(m owned) bool { return m.mig() == in.Place && m.GI == in.GI })
	if i < 0 {
		// The id of what a create returned was written down before it got a compute instance.
		return Own{in.Place, in.GI, -1, ""}, j.was(plan.CreateGI, in.Place, -1) && len(in.CIs) == 0
	}
	m := j.Mine[i]
	switch {
	case len(in.CIs) == 0:
		return Own{in.Place, in.GI, -1, ""}, m.CI < 0 || j.was(plan.DestroyCI, in.Place, in.GI)
	case len(in.CIs) > 1 || !in.CIs[0].Whole:
		return Own{}, false // it has instances that Kerf did not make
	case m.CI < 0:
		return Own{in.Place, in.GI, in.CIs[0].CI, in.CIs[0].UUID}, j.was(plan.CreateCI, in.Place, in.GI)
	}
	return Own{in.Place, in.GI, in.CIs[0].CI, in.CIs[0].UUID}, m.UUID == in.CIs[0].UUID
}

// was reports whether the call that was under way is this one.
func (j journal) was(op plan.Op, at mig.Place, gi int) bool {
	if j.Change == nil || j.Change.Doing == nil {
		return false
	}
	d := j.Change.Doing
	return d.Op == op.String() && d.mig() == at && d.GI == gi
}

// next is the call that brings Kerf's instances nearer to the places that are wanted, false when they are there. What
// is not wanted goes first, since it may be in the way.
func next(mine []Own, wanted []mig.Place) (plan.Step, bool) {
	for _, o := range mine {
		switch {
		case slices.Contains(wanted, o.Place):
		case o.CI >= 0:
			return plan.Step{Op: plan.DestroyCI, Place: o.Place, GI: o.GI, CI: o.CI}, true
		default:
			return plan.Step{Op: plan.DestroyGI, Place: o.Place, GI: o.GI, CI: -1}, true
		}
	}
	for _, p := range wanted {
		i := slices.IndexFunc(mine, func(o Own) bool { return o.Place == p })
		switch {
		case i < 0:
			return plan.Step{Op: plan.CreateGI, Place: p, GI: -1, CI: -1}, true
		case mine[i].CI < 0:
			return plan.Step{Op: plan.CreateCI, Place: p, GI: mine[i].GI, CI: -1}, true
		}
	}
	return plan.Step{}, false
}

func places(mine []Own) []mig.Place {
	list := make([]mig.Place, len(mine))
	for i, o := range mine {
		list[i] = o.Place
	}
	return list
}

// Store keeps the journals.
type Store interface {
	// Load returns nil, and no error, where there is none for the GPU.
	Load(gpu sharing.GPUID) ([]byte, error)
	// Save returns once the bytes would outlive a loss of power.
	Save(gpu sharing.GPUID, data []byte) error
}

// Files is a Store with a file for each GPU in a directory, which must exist and belong to root alone.
type Files struct{ Dir string }

// Path is a GPU's file.
func (f Files) Path(gpu sharing.GPUID) string { return filepath.Join(f.Dir, string(gpu)+".json") }

// Load reads a GPU's file. Errors wrap sharing.ErrInvalid (a name that is no UUID) or sharing.ErrUnavailable.
func (f Files) Load(gpu sharing.GPUID) ([]byte, error) {
	if err := checkName(gpu); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(f.Path(gpu))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read mig journal: %w (%w)", err, sharing.ErrUnavailable)
	}
	return data, nil
}

// Save writes a GPU's file. Errors are those of atomicfile.Write, and as Load's.
func (f Files) Save(gpu sharing.GPUID, data []byte) error {
	if err := checkName(gpu); err != nil {
		return err
	}
	if err := atomicfile.Write(f.Path(gpu), data, 0o600); err != nil {
		return fmt.Errorf("write mig journal: %w", err)
	}
	return nil
}

// checkName refuses what would lead out of the directory; the driver's UUIDs never do.
func checkName(gpu sharing.GPUID) error {
	for _, r := range gpu {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' {
			return sharing.Invalid("gpu", string(gpu), "write a UUID", "is no GPU's UUID")
		}
	}
	if gpu == "" {
		return sharing.Invalid("gpu", "", "write a UUID", "is missing")
	}
	return nil
}
