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

// SetContext tells how much each process is to put aside on a GPU before it makes a context; 0: nothing.
// With UnknownContext the first process puts aside all the room there is, and it and those who find none wait until the
// size is known. sharing.ErrNotFound: the region has no such GPU.
func (r *Region) SetContext(gpu sharing.GPUID, context sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set context of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.device[i].context, uint64(context))
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
