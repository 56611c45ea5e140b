// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing"
)

// Reserved is what a process has counted for contexts that are there by now.
type Reserved struct {
	Process Process
	Bytes   sharing.Bytes
}

// SetContext sets how much each process is to put aside on a GPU before it makes a context; 0: nothing.
// With UnknownContext a process takes the bound, or all the room there is if that does not fit, and waits until the agent
// has seen what the context takes. So do those who find no room. sharing.ErrNotFound: the region has no such GPU.
func (r *Region) SetContext(gpu sharing.GPUID, context sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set context of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.device[i].context, uint64(context))
	return nil
}

// SetBound sets the most that a context takes on a GPU; 0: not known. It counts while the size is UnknownContext. A library
// that is older than bounds goes on without. sharing.ErrNotFound: the region has no such GPU.
func (r *Region) SetBound(gpu sharing.GPUID, bound sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set bound of contexts of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.bound[i], uint64(bound))
	return nil
}

// SawContext notes that a context of this region took so much. The region keeps the least: with UnknownContext no context is
// made in less room. Programs of the region can change what is seen, so it is used for this region alone. Only one goroutine
// of one process may call it at a time. sharing.ErrNotFound: the region has no such GPU.
func (r *Region) SawContext(gpu sharing.GPUID, took sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("note context of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	if least := atomic.LoadUint64(&r.limits.least[i]); least == 0 || uint64(took) < least {
		atomic.StoreUint64(&r.limits.least[i], uint64(took))
	}
	return nil
}

// Correct tells how many bytes the driver holds for the container on a GPU beyond what is counted: contexts,
// modules, pools. They count against the cap. What processes have reserved for contexts and seen is the part of it that
// is given back to them, unless a process has reserved more meanwhile: it is counted by one or the other at every moment,
// and nobody is refused for the moment in which it is counted by both. Only one goroutine of one process may call
// it at a time. sharing.ErrNotFound: the region has no such GPU; sharing.ErrStale: the container has cut the file.
func (r *Region) Correct(gpu sharing.GPUID, overhead sharing.Bytes, seen []Reserved) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("correct overhead of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	if len(seen) == 0 {
		atomic.StoreUint64(&r.limits.device[i].overhead, uint64(overhead))
		return nil
	}
	return r.Moving(func() error {
		atomic.StoreUint64(&r.limits.device[i].overhead, uint64(overhead))
		return guard(func() {
			for _, s := range seen {
				r.release(i, s)
			}
		})
	})
}

// Moving calls do, which moves bytes from the counters to the overhead. Meanwhile they count twice, and a process that finds
// no room waits for the end of it. Calls may be nested.
func (r *Region) Moving(do func() error) error {
	if r.moving {
		return do()
	}
	r.moving = true
	for i := range r.gpus {
		atomic.AddUint64(&r.limits.device[i].moves, 1)
	}
	defer func() {
		for i := range r.gpus {
			atomic.AddUint64(&r.limits.device[i].moves, 1)
		}
		r.moving = false
	}()
	return do()
}

func (r *Region) release(device int, seen Reserved) {
	n := uint64(seen.Bytes)
	for i := range r.usage.slot {
		s := &r.usage.slot[i]
		who := named(atomic.LoadUint64(&s.owner), atomic.LoadUint64(&s.space))
		if who != seen.Process || !atomic.CompareAndSwapUint64(&s.waiting[device], n, 0) {
			continue
		}
		for {
			held := atomic.LoadUint64(&s.held[device])
			if held < n { // it has ended meanwhile, and all was given back
				return
			}
			if atomic.CompareAndSwapUint64(&s.held[device], held, held-n) {
				break
			}
		}
		subtract(&r.usage.total[device].bytes, n)
		return
	}
}
