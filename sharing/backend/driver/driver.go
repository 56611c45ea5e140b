// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// NVML is what the driver backend needs of the driver. *nvml.Library is one.
type NVML interface {
	HasMemoryLimits() bool
	SetMemoryLimit(ctx context.Context, gpu sharing.GPUID, dir string, soft, hard sharing.Bytes) error
	// PutMemoryLimit also reads back the limit that the driver then has.
	PutMemoryLimit(ctx context.Context, gpu sharing.GPUID, dir string, soft, hard sharing.Bytes) (nvml.Limit, error)
	MemoryLimit(ctx context.Context, gpu sharing.GPUID, dir string) (nvml.Limit, error)
}

// Cgroups is what the driver backend needs of cgroup v2. InHierarchy is the real one.
type Cgroups interface {
	// Check is nil when dir is a group of the hierarchy and not its root, sharing.ErrNotFound when it is gone.
	Check(dir string) error
	// Scratch makes an empty group for a probe; remove takes it away. It is sharing.ErrUnsupported when the
	// machine has no cgroup v2.
	Scratch() (dir string, remove func() error, err error)
}

// undoTime bounds the clearing after an error, which must happen also when the caller's context has ended.
const undoTime = 5 * time.Second

// Slack is how far the driver's limit may be below the request: the driver may round down to its largest page. It may
// never be above.
const Slack = 2 * sharing.MiB

// Driver caps through the NVIDIA driver's memory limits per cgroup (r615 and newer): past the limit, the
// driver itself refuses the allocation.
type Driver struct {
	nvml    NVML
	cgroups Cgroups
	answers probes
}

// New makes the driver backend.
func New(lib NVML, cgroups Cgroups) *Driver { return &Driver{nvml: lib, cgroups: cgroups} }

// Level is LevelDriver.
func (d *Driver) Level() sharing.Level { return sharing.LevelDriver }

// Least is the limit that Apply gives to others.
func (d *Driver) Least() sharing.Bytes { return backend.LeastLimit }

// Apply limits the cgroup to each share's memory on the share's GPU, and to the least on every GPU of others. It sets
// each hard limit and reads it back; soft limits stay 0. A whole GPU gets no limit. It rejects a limit of 0 or
// backend.NoCap, and a GPU named twice (sharing.ErrInvalid). It also rejects the root cgroup and a directory that is no
// cgroup v2 group. A GPU in MIG mode takes no limits: Probe reports that, and the driver does as
// sharing.ErrUnsupported. Apply serves the GPUs in parallel. On error it clears all that was or may have been set. The
// error has both what went wrong and what could not be cleared.
func (d *Driver) Apply(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	limits := limitsOf(own, others)
	if err := d.mayCap(dir, limits); err != nil {
		return fmt.Errorf("cap cgroup %q: %w", dir, err)
	}
	err := d.unlessGone(dir, d.put(ctx, dir, limits))
	if err == nil {
		return nil
	}
	gpus := make([]sharing.GPURef, 0, len(limits))
	for _, l := range limits {
		gpus = append(gpus, l.gpu)
	}
	// The one that failed may be set all the same, so it is cleared with the others.
	return fmt.Errorf("cap cgroup %q: %w", dir, errors.Join(err, d.takeBack(ctx, dir, gpus)))
}

// Renew is Apply for a cgroup whose processes may run: all limits are tried, and on error none is taken off. It
// refuses what Apply refuses.
func (d *Driver) Renew(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	limits := limitsOf(own, others)
	err := d.mayCap(dir, limits)
	if err == nil {
		err = d.unlessGone(dir, d.put(ctx, dir, limits))
	}
	if err != nil {
		return fmt.Errorf("renew caps of cgroup %q: %w", dir, err)
	}
	return nil
}

// limit is the most that the processes of a cgroup may have of one GPU.
type limit struct {
	gpu    sharing.GPURef
	memory sharing.Bytes
}

func limitsOf(own []sharing.Share, others []sharing.GPURef) []limit {
	var limits []limit
	for _, s := range own {
		if !s.Whole {
			limits = append(limits, limit{s.GPU, s.Memory})
		}
	}
	for _, gpu := range others {
		limits = append(limits, limit{gpu, backend.LeastLimit})
	}
	return limits
}

// mayCap refuses what cannot be put on the cgroup, before anything is.
func (d *Driver) mayCap(dir string, limits []limit) error {
	if len(limits) == 0 {
		return nil
	}
	if err := checkLimits(limits); err != nil {
		return err
	}
	if err := d.cgroups.Check(dir); err != nil {
		return err
	}
	if !d.nvml.HasMemoryLimits() {
		return fmt.Errorf("the driver has no memory limits: %w", sharing.ErrUnsupported)
	}
	return nil
}

func (d *Driver) put(ctx context.Context, dir string, limits []limit) error {
	return onEach(limits, func(_ int, l limit) error { return d.set(ctx, dir, l) })
}

// onEach does something for each of all in parallel, and joins the errors in their order. A container waits until every
// GPU of the node has its limit. One call after the other would take so many times as long on a busy node, and one slow
// GPU would delay the rest.
func onEach[T any](all []T, do func(i int, one T) error) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, one := range all {
		group.Go(func() { errs[i] = do(i, one) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// takeBack clears also when the caller's context has ended, which may be why.
func (d *Driver) takeBack(ctx context.Context, dir string, gpus []sharing.GPURef) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := d.Clear(ctx, dir, gpus); err != nil {
		return fmt.Errorf("take back: %w", err)
	}
	return nil
}

func checkLimits(limits []limit) error {
	seen := map[sharing.GPUID]bool{}
	for _, l := range limits {
		switch {
		case l.memory == 0 || l.memory == backend.NoCap:
			return fmt.Errorf("gpu %q: a cap of %d bytes is none: %w", l.gpu.String(), uint64(l.memory),
				sharing.ErrInvalid)
		case l.gpu.IsInstance():
			return fmt.Errorf("gpu %q: the driver limits no MIG instance: %w", l.gpu.String(), sharing.ErrInvalid)
		case seen[l.gpu.UUID]:
			return fmt.Errorf("gpu %q: is named twice: %w", l.gpu.String(), sharing.ErrInvalid)
		}
		seen[l.gpu.UUID] = true
	}
	return nil
}

// set puts one limit on and believes only what it reads back.
func (d *Driver) set(ctx context.Context, dir string, l limit) error {
	got, err := d.nvml.PutMemoryLimit(ctx, l.gpu.UUID, dir, 0, l.memory)
	if errors.Is(err, sharing.ErrNotFound) { // which stands for a cgroup that does not exist any more, see unlessGone
		return fmt.Errorf("gpu %q: requested a limit of %d bytes: %w: %s", l.gpu.String(), uint64(l.memory),
			sharing.ErrUnavailable, err.Error())
	}
	if err != nil {
		return err
	}
	if got.Hard > l.memory || l.memory-got.Hard > Slack || got.Hard == 0 || got.Soft != 0 {
		return fmt.Errorf("gpu %q: requested a limit of %d bytes, the driver has %d (soft %d): %w",
			l.gpu.String(), uint64(l.memory), uint64(got.Hard), uint64(got.Soft), sharing.ErrUnavailable)
	}
	return nil
}

// none reports whether a driver's answer means that there is no limit. By nvml.h that is NOT_FOUND, or no soft limit
// and the largest hard one. The kernel module of r615 says NOT_SUPPORTED if no limit is up the tree (memacct.c).
func none(got nvml.Limit, err error) bool {
	return errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrUnsupported) || err == nil &&
		got.Soft == 0 && got.Hard == backend.NoCap
}

// unlessGone is err with sharing.ErrNotFound where the cgroup does not exist any more: the driver cannot open its
// directory then.
func (d *Driver) unlessGone(dir string, err error) error {
	if err == nil || errors.Is(err, sharing.ErrNotFound) || !d.gone(dir) {
		return err
	}
	return fmt.Errorf("the cgroup does not exist any more: %w: %w", sharing.ErrNotFound, err)
}

// Read returns the driver's limit and the usage that the driver charges to the cgroup. The limit may stand on a group
// above dir. sharing.ErrNotFound: the driver has no hard limit, or the cgroup does not exist any more.
func (d *Driver) Read(ctx context.Context, dir string, gpu sharing.GPURef) (limit, used sharing.Bytes, err error) {
	if !d.nvml.HasMemoryLimits() {
		return 0, 0, fmt.Errorf("read cap of cgroup %q: the driver has no memory limits: %w", dir,
			sharing.ErrUnsupported)
	}
	got, err := d.nvml.MemoryLimit(ctx, gpu.UUID, dir)
	if none(got, err) || err == nil && got.Hard == backend.NoCap {
		return 0, 0, fmt.Errorf("read cap of cgroup %q on gpu %q: no limit is set: %w", dir, gpu, sharing.ErrNotFound)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read cap of cgroup %q: %w", dir, d.unlessGone(dir, err))
	}
	return got.Hard, got.Used, nil
}

// Clear removes the limits, the soft one first. The kernel propagates that to the groups above, where it would stay
// when the group is removed. It tries all GPUs and joins the errors.
func (d *Driver) Clear(ctx context.Context, dir string, gpus []sharing.GPURef) error {
	if !d.nvml.HasMemoryLimits() {
		return nil // none can have been set
	}
	if d.gone(dir) {
		return nil
	}
	return onEach(gpus, func(_ int, gpu sharing.GPURef) error {
		err := d.clear(ctx, dir, gpu.UUID)
		if err == nil || d.gone(dir) {
			return nil // the group was removed meanwhile, and its limits with it
		}
		return fmt.Errorf("clear cap of cgroup %q: %w", dir, err)
	})
}

func (d *Driver) gone(dir string) bool { return errors.Is(d.cgroups.Check(dir), sharing.ErrNotFound) }

func (d *Driver) clear(ctx context.Context, dir string, id sharing.GPUID) error {
	got, err := d.nvml.MemoryLimit(ctx, id, dir)
	switch {
	case none(got, err):
		return nil // to clear what is not there would keep a limit further up from counting (r615, memacct.c)
	case err == nil && got.Soft != 0 && got.Hard != backend.NoCap:
		if err := d.nvml.SetMemoryLimit(ctx, id, dir, 0, got.Hard); err != nil {
			return err
		}
	}
	// Also when the getter failed: the group shall have no limit, whatever it has.
	return d.nvml.SetMemoryLimit(ctx, id, dir, 0, nvml.NoLimit)
}
