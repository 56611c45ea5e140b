// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing"
)

// Count is what one process has counted at one moment.
type Count struct {
	Process Process
	// Steps is how many times it was at a counter, and Quiet tells that it was at none just then, and made no
	// context: of two counts with the same Steps, both quiet, Held was the same all the time between.
	Steps uint64
	Quiet bool
	Held  map[sharing.GPUID]sharing.Bytes
	// Managed is the part of Held that is managed memory, with which the driver lists no process.
	Managed map[sharing.GPUID]sharing.Bytes
	// Waiting is the part of Held that stands for contexts which are there, and which the driver tells of: see
	// Correct.
	Waiting map[sharing.GPUID]sharing.Bytes
}

// Counts reads what each process that counts in the region has counted. A tenant can write all of it.
func (r *Region) Counts() []Count {
	var out []Count
	for i := range r.usage.slot {
		s := &r.usage.slot[i]
		who := atomic.LoadUint64(&s.owner)
		if who == 0 || who == buried {
			continue
		}
		c := Count{
			Process: named(who, atomic.LoadUint64(&s.space)),
			Held:    make(map[sharing.GPUID]sharing.Bytes, len(r.gpus)),
			Waiting: make(map[sharing.GPUID]sharing.Bytes, len(r.gpus)),
			Managed: make(map[sharing.GPUID]sharing.Bytes, len(r.gpus)),
		}
		ended := atomic.LoadUint64(&s.ended)
		for d, gpu := range r.gpus {
			c.Held[gpu] = sharing.Bytes(atomic.LoadUint64(&s.held[d]))
			c.Waiting[gpu] = sharing.Bytes(atomic.LoadUint64(&s.waiting[d]))
			c.Managed[gpu] = min(sharing.Bytes(atomic.LoadUint64(&r.usage.managed[i][d])), c.Held[gpu])
		}
		making := atomic.LoadUint64(&s.making)
		c.Steps = atomic.LoadUint64(&s.begun)
		c.Quiet = c.Steps == ended && making == 0
		out = append(out, c)
	}
	return out
}

// Check looks whether the region's files in dir are those that r has mapped, and whole. The container's processes can
// write to the usage file. The error wraps sharing.ErrStale: what the processes count can no longer be trusted, and r is of
// no use. Call it in Guarded.
func (r *Region) Check(dir string) error {
	for i, name := range []string{LimitsFile, UsageFile} {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return fmt.Errorf("region file %q is gone: %w: %w", path, err, sharing.ErrStale)
		case !os.SameFile(info, r.files[i]):
			return fmt.Errorf("region file %q is another one than processes have: %w", path, sharing.ErrStale)
		case info.Size() != int64(len(r.maps[i])):
			return fmt.Errorf("region file %q has %d bytes instead of %d: %w", path, info.Size(), len(r.maps[i]), sharing.ErrStale)
		}
	}
	if atomic.LoadUint64(&r.usage.magic) != usageMagic {
		return fmt.Errorf("usage file in %q was overwritten: %w", dir, sharing.ErrStale)
	}
	return nil
}

// Guarded calls f, which uses regions, and turns the fault of reading a file that a tenant has cut meanwhile into an
// error that wraps sharing.ErrStale.
func Guarded(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		fault, ok := cause.(interface{ Addr() uintptr })
		if !ok {
			panic(cause) //nolint:forbidigo // it is another's, and goes on its way
		}
		err = fmt.Errorf("region is cut at address %#x: %w", fault.Addr(), sharing.ErrStale)
	}()
	return f()
}
