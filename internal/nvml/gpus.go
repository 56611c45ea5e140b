// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/kerf-gpu/kerf/sharing"
)

// LeftOut is a GPU that inventory could not take, and why. It wraps the reason.
type LeftOut struct {
	// Index is the GPU's NVML index, -1 for one that was there before and is not listed any more.
	Index int
	// UUID is empty if unknown.
	UUID sharing.GPUID
	Err  error
}

// Error names the GPU and the reason.
func (e *LeftOut) Error() string {
	if e.UUID == "" {
		return fmt.Sprintf("leave out gpu at index %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("leave out gpu %q: %v", string(e.UUID), e.Err)
}

// Unwrap returns the reason.
func (e *LeftOut) Unwrap() error { return e.Err }

// found is what one GPU reported in inventory.
type found struct {
	gpu   sharing.GPU
	addr  pciAddress
	links []link
	err   error
}

// Inventory finds the GPUs.
type Inventory struct{ *driver }

// GPUs returns the GPUs that can be used, in the order of their index, and one *LeftOut for each that cannot. That one
// is lost, hangs, or reports what no real GPU does. GPUs are asked in parallel, so that one that hangs costs the others
// nothing. The last error says that the driver could not be asked at all. A GPU whose driver asks for a recovery action
// is returned, unhealthy.
func (v Inventory) GPUs(ctx context.Context) ([]sharing.GPU, []error, error) {
	n, err := v.Count(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := make([]found, max(n, 0))
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() {
			f, err := call(ctx, v.driver, v.slot(i), func() (found, error) { return v.inspect(i) })
			if f.err = err; err != nil && f.gpu.UUID == "" {
				f.gpu.UUID = v.lastAt(i)
			}
			all[i] = f
		})
	}
	asked.Wait()
	gpus, left := judge(all)
	return gpus, append(left, vanished(slices.Collect(maps.Keys(v.handles())), all)...), nil
}

// Count is how many GPUs the driver tells of.
func (v Inventory) Count(ctx context.Context) (int, error) {
	n, err := call(ctx, v.driver, v.systemLane, v.adapter.count)
	if err != nil {
		return 0, fmt.Errorf("count gpus: %w", err)
	}
	return n, nil
}

// inspect asks one GPU for all that inventory wants. What it found is in f, also when the GPU cannot be used.
func (v Inventory) inspect(i int) (f found, err error) {
	dev, err := v.adapter.byIndex(i)
	if err != nil {
		return f, err
	}
	id, err := dev.identity()
	if err != nil {
		return f, err
	}
	f.gpu = sharing.GPU{UUID: id.uuid, Index: i, Minor: id.minor, Model: id.model, Health: sharing.HealthOK,
		Hardware: sharing.Hardware{PCI: id.pci.String(), NUMA: id.numa, PCIRoot: id.pciRoot,
			Architecture: id.architecture, Product: id.product, Board: id.board}}
	f.addr = id.pci
	if err := errors.Join(checkUUID(id.uuid), checkName(id.model)); err != nil {
		return f, err
	}
	v.learn(i, id.uuid, dev)
	m, err := memoryOfGPU(dev)
	if err != nil {
		return f, err
	}
	f.gpu.Memory, f.gpu.Reserved, f.gpu.SystemMemory = m.Total, m.Reserved, m.System
	if err := f.gpu.Validate(); err != nil {
		return f, err
	}
	if f.gpu.MIG, err = dev.mig(); err != nil && !errors.Is(err, sharing.ErrUnsupported) {
		return f, err
	}
	f.gpu.MIGCapable = err == nil
	if f.links, err = dev.links(); err != nil && !errors.Is(err, sharing.ErrUnsupported) {
		// Topology is a preference; a GPU without it is still a GPU.
		v.opts.Log.Warn("failed to read NVLinks", "gpu", string(id.uuid), "error", err)
	}
	switch r, err := dev.recovery(); {
	case err == nil && r != RecoveryNone:
		f.gpu.Health, f.gpu.HealthReason = sharing.HealthUnhealthy, "the driver requires: "+r.String()
	case err != nil && !errors.Is(err, sharing.ErrUnsupported):
		f.gpu.Health, f.gpu.HealthReason = sharing.HealthSuspect, "unknown recovery action: "+err.Error()
	}
	return f, nil
}

// checkName refuses a name that could not be shown.
func checkName(name string) error {
	if name == "" || len(name) > 128 || strings.ContainsFunc(name,
		func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return fmt.Errorf("model %q is not a name: %w", name, sharing.ErrInvalid)
	}
	return nil
}

// judge parts what can be used from what cannot, and joins the NVLinks.
func judge(all []found) (gpus []sharing.GPU, left []error) {
	times := map[sharing.GPUID]int{}
	for _, f := range all {
		if f.err == nil {
			times[f.gpu.UUID]++
		}
	}
	var ok []found
	for i, f := range all {
		if f.err == nil && times[f.gpu.UUID] > 1 {
			// An answer could belong to either GPU, so none is taken.
			f.err = fmt.Errorf("%d gpus report this UUID: %w", times[f.gpu.UUID], sharing.ErrInvalid)
		}
		if f.err != nil {
			left = append(left, &LeftOut{Index: i, UUID: f.gpu.UUID, Err: f.err})
			continue
		}
		ok = append(ok, f)
	}
	for i := range ok {
		for j := range ok {
			if i != j && (reaches(ok[i], ok[j]) || reaches(ok[j], ok[i])) {
				ok[i].gpu.NVLinks = append(ok[i].gpu.NVLinks, ok[j].gpu.UUID)
			}
		}
		slices.Sort(ok[i].gpu.NVLinks)
		gpus = append(gpus, ok[i].gpu)
	}
	slices.SortFunc(gpus, func(a, b sharing.GPU) int { return cmp.Compare(a.Index, b.Index) })
	return gpus, left
}

// reaches reports whether a has a link to b, or both have one to a switch: the switches of a machine are one
// fabric.
func reaches(a, b found) bool {
	isSwitch := func(l link) bool { return l.toSwitch }
	for _, l := range a.links {
		if !l.toSwitch && l.pci == b.addr {
			return true
		}
	}
	return slices.ContainsFunc(a.links, isSwitch) && slices.ContainsFunc(b.links, isSwitch)
}

// vanished tells of GPUs that answered before and are not among all.
func vanished(known []sharing.GPUID, all []found) []error {
	var left []error
	for _, id := range known {
		if !slices.ContainsFunc(all, func(f found) bool { return f.gpu.UUID == id }) {
			left = append(left, &LeftOut{Index: -1, UUID: id,
				Err: fmt.Errorf("the driver does not list it any more: %w", sharing.ErrLost)})
		}
	}
	slices.SortFunc(left, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return left
}
