// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"context"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// MIGMode says whether a GPU is in MIG mode, and whether it will be after its next reset or once it is idle.
type MIGMode struct{ Current, Pending bool }

// Activation says what became of a MIG mode that was set.
type Activation uint8

// The outcomes. All but ActivationDone leave the mode pending.
const (
	ActivationDone  Activation = iota
	ActivationInUse            // the GPU is in use or has instances: set the mode again once it is idle
	ActivationReset            // the GPU takes the mode with its next reset
)

// String returns the outcome as a phrase.
func (a Activation) String() string {
	switch a {
	case ActivationDone:
		return "done"
	case ActivationInUse:
		return "waits until the GPU is idle"
	case ActivationReset:
		return "waits for a GPU reset"
	}
	return "unknown"
}

// MIGProfile is one size of GPU instance, as the driver reports it.
type MIGProfile struct {
	ID int
	// Name is without the "MIG " that drivers put in front.
	Name string
	// Compute is the number of compute slices, Memory what programs can use, MaxInstances how many fit on an empty GPU.
	Compute, SMs, MaxInstances                   int
	Memory                                       sharing.Bytes
	CopyEngines, Decoders, Encoders, JPEGs, OFAs int
	// Size is the length of a placement, and Starts are the units at which one may begin.
	Size   int
	Starts []int
}

// MIGInstance is a GPU instance that there is.
type MIGInstance struct {
	GI, Profile, Start int
	Computes           []MIGCompute
}

// MIGCompute is a compute instance in a GPU instance.
type MIGCompute struct {
	CI int
	// Whole is true when it is over all compute slices of its GPU instance.
	Whole bool
}

// MIGDevice is what a program sees of a compute instance.
type MIGDevice struct {
	GI, CI int
	// UUID begins with "MIG-". It is another one each time that the instance is made.
	UUID string
}

// MIGProcess is one process's use of one GPU instance.
type MIGProcess struct {
	PID int
	// GI is -1 where the driver does not say on which instance.
	GI int
}

// partitionable is a device with MIG calls, which not every adapter has.
type partitionable interface{ partitioner() partitioner }

// cutter is the part of MIG of a device.
type partitioner interface {
	migMode() (MIGMode, error)
	migNeedsReset() (bool, error)
	setMIGMode(on bool) (Activation, error)
	migProfiles() ([]MIGProfile, error)
	migInstances() ([]MIGInstance, error)
	// migSlots is migInstances with no more than where each is.
	migSlots() ([]MIGInstance, error)
	migDevices() ([]MIGDevice, error)
	createGI(profile, start, size int) (int, error)
	destroyGI(gi int) error
	createCI(gi int) (int, error)
	destroyCI(gi, ci int) error
}

func onPartitioner[T any](ctx context.Context, d *driver, what string, id sharing.GPUID,
	fn func(partitioner) (T, error)) (T,
	error) {
	return onGPU(ctx, d, what, id, partitioning(fn))
}

// changeMIG is onCutter for a call that changes the GPU.
func changeMIG[T any](ctx context.Context, d *driver, what string, id sharing.GPUID, fn func(partitioner) (T, error)) (
	T,
	error) {
	return change(ctx, d, what, id, partitioning(fn))
}

func partitioning[T any](fn func(partitioner) (T, error)) func(device) (T, error) {
	return func(d device) (T, error) {
		c, ok := d.(partitionable)
		if !ok {
			var zero T
			return zero, absent("nvmlDeviceGetMigMode")
		}
		return fn(c.partitioner())
	}
}

// MIG reads and changes the MIG mode and the MIG instances of GPUs.
type MIG struct{ driver *driver }

// MIGMode reads the GPU's mode. It is sharing.ErrUnsupported for a GPU that cannot do MIG.
func (m MIG) MIGMode(ctx context.Context, id sharing.GPUID) (MIGMode, error) {
	return onPartitioner(ctx, m.driver, "read mig mode", id, partitioner.migMode)
}

// SetMIGMode enables or disables MIG. It needs root. Before Hopper this may reset the GPU, and with it all that runs
// there: the caller must verify that nothing does. A mode that does not become current at once is no error.
func (m MIG) SetMIGMode(ctx context.Context, id sharing.GPUID, on bool) (Activation, error) {
	return changeMIG(ctx, m.driver, "set mig mode", id,
		func(c partitioner) (Activation, error) { return c.setMIGMode(on) })
}

// MIGNeedsReset reports whether the GPU changes its mode with a reset: those before Hopper do.
func (m MIG) MIGNeedsReset(ctx context.Context, id sharing.GPUID) (bool, error) {
	return onPartitioner(ctx, m.driver, "read compute capability", id, partitioner.migNeedsReset)
}

// MIGProcesses returns which processes hold which instances, each pair once.
func (m MIG) MIGProcesses(ctx context.Context, id sharing.GPUID) ([]MIGProcess, error) {
	return onGPU(ctx, m.driver, "list processes", id, func(d device) ([]MIGProcess, error) {
		lists, err := d.processes()
		if err != nil {
			return nil, err
		}
		var all []MIGProcess
		for _, r := range slices.Concat(lists...) {
			p := MIGProcess{r.pid, -1}
			if r.gi != noInstance {
				p.GI = int(r.gi)
			}
			if r.pid > 0 && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		slices.SortFunc(all, func(a, b MIGProcess) int {
			return cmp.Or(cmp.Compare(a.GI, b.GI),
				cmp.Compare(a.PID, b.PID))
		})
		return all, nil
	})
}

// MIGProfiles returns the sizes of GPU instance that the GPU offers, each once. It is sharing.ErrUnsupported for a GPU
// that cannot do MIG.
func (m MIG) MIGProfiles(ctx context.Context, id sharing.GPUID) ([]MIGProfile, error) {
	return onPartitioner(ctx, m.driver, "read mig profiles", id, partitioner.migProfiles)
}

// MIGInstances returns the GPU instances by their ids, none outside MIG mode.
func (m MIG) MIGInstances(ctx context.Context, id sharing.GPUID) ([]MIGInstance, error) {
	return onPartitioner(ctx, m.driver, "list mig instances", id, partitioner.migInstances)
}

// MIGSlots returns the GPU instances that have a compute instance, without saying which, by their ids; none outside MIG
// mode. It is MIGInstances for who looks often.
func (m MIG) MIGSlots(ctx context.Context, id sharing.GPUID) ([]MIGInstance, error) {
	return onPartitioner(ctx, m.driver, "find mig instances", id, partitioner.migSlots)
}

// MIGDevices returns the MIG devices with their UUIDs, none outside MIG mode. On a loaded node it can take seconds.
func (m MIG) MIGDevices(ctx context.Context, id sharing.GPUID) ([]MIGDevice, error) {
	return onPartitioner(ctx, m.driver, "list mig devices", id, partitioner.migDevices)
}

// CreateGI makes a GPU instance of the profile with that id at a placement, and returns its id. It needs root. Errors:
// sharing.ErrExhausted (the place, or something else that it needs, is taken), sharing.ErrInvalid (no such profile or
// placement), sharing.ErrUnsupported (not in MIG mode). When ctx ends while the driver hangs, the instance may still be
// made later.
func (m MIG) CreateGI(ctx context.Context, id sharing.GPUID, profile, start, size int) (int, error) {
	return changeMIG(ctx, m.driver, "create gpu instance", id,
		func(c partitioner) (int, error) { return c.createGI(profile, start, size) })
}

// DestroyGI ends a GPU instance. Errors: sharing.ErrUnavailable (it has a compute instance, or is in use),
// sharing.ErrNotFound.
func (m MIG) DestroyGI(ctx context.Context, id sharing.GPUID, gi int) error {
	_, err := changeMIG(ctx, m.driver, "destroy gpu instance", id, func(c partitioner) (struct{}, error) {
		return struct{}{},
			c.destroyGI(gi)
	})
	return err
}

// CreateCI makes the compute instance that takes all of a GPU instance, and returns its id. Errors:
// sharing.ErrExhausted (there is one already), sharing.ErrNotFound.
func (m MIG) CreateCI(ctx context.Context, id sharing.GPUID, gi int) (int, error) {
	return changeMIG(ctx, m.driver, "create compute instance", id,
		func(c partitioner) (int, error) { return c.createCI(gi) })
}

// DestroyCI ends a compute instance. Errors: sharing.ErrUnavailable (a process holds it), sharing.ErrNotFound.
func (m MIG) DestroyCI(ctx context.Context, id sharing.GPUID, gi, ci int) error {
	_, err := changeMIG(ctx, m.driver, "destroy compute instance", id,
		func(c partitioner) (struct{}, error) { return struct{}{}, c.destroyCI(gi, ci) })
	return err
}
