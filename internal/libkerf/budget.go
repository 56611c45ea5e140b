// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// TokenBucket is what a region knows of GPU time on one GPU. A tenant can write all but Percent: what the driver counts
// is what sets it right.
type TokenBucket struct {
	GPU sharing.GPURef
	// Percent is its share; 0: time is not counted.
	Percent sharing.Percent
	// Balance may still be run; below zero it is a debt.
	Balance time.Duration
	// Charged is what was taken in all, by so many Launches: by estimates, which are too high where programs compete.
	Charged  time.Duration
	Launches uint64
	// Ran is what Settle has added up.
	Ran time.Duration
	// Past is how many of these ran on without a budget: it was not refilled for two seconds, or a copy waited for one.
	Past uint64
	// Waited is how long launches waited for a budget, summed over threads.
	Waited time.Duration
	// Occupied is the measured time from launches until their end was seen. The wait for other programs on the GPU is
	// part of it.
	Occupied time.Duration
}

// LaunchState tells the processes of a region whether they may launch.
type LaunchState uint8

// The turns.
const (
	// LaunchOpen: as the budget allows.
	LaunchOpen LaunchState = iota
	// LaunchPaused: not now, because the launches of another region are measured.
	LaunchPaused
	// LaunchAlone: all others hold. The first launch of each kind needs no budget, and is measured.
	LaunchAlone
)

// firstAlone is the lowest number of a LaunchAlone. The other turns are the words 0 and 1.
const firstAlone = 2

// SetPercent begins to count time on a GPU, or with 0 ends it, for the next launch of every process. The error
// sharing.ErrNotFound means that the region has no such GPU.
func (r *UsageFile) SetPercent(gpu sharing.GPURef, percent sharing.Percent) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set percent of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.percent[i], uint64(percent))
	return nil
}

// Budgets reads the budgets, GPU by GPU in the order of Create. It is sharing.ErrStale if the container has truncated
// its file.
func (r *UsageFile) Budgets() ([]TokenBucket, error) {
	out := make([]TokenBucket, len(r.gpus))
	err := guard(func() {
		for i, gpu := range r.gpus {
			t := &r.usage.total[i]
			out[i] = TokenBucket{
				GPU: gpu, Percent: sharing.Percent(min(atomic.LoadUint64(&r.limits.percent[i]), math.MaxUint32)),
				Balance: time.Duration(atomic.LoadInt64(&t.budget)), Charged: time.Duration(atomic.LoadUint64(&t.charged)), //nolint:gosec // any pattern is a duration
				Launches: atomic.LoadUint64(&t.launches), Past: atomic.LoadUint64(&t.past),
				Waited: time.Duration(atomic.LoadUint64(&t.waited)), Ran: time.Duration(atomic.LoadUint64(&t.ran)), //nolint:gosec // as above
				Occupied: time.Duration(atomic.LoadUint64(&t.occupied)), //nolint:gosec // as above
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read budgets: %w", err)
	}
	return out, nil
}

// Settle adds what ran on a GPU, which only who knows the driver's own count can say. Errors are those of AddTokens.
func (r *UsageFile) Settle(gpu sharing.GPURef, ran time.Duration) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("settle gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	if err := guard(func() { atomic.AddUint64(&r.usage.total[i].ran, uint64(max(0, ran))) }); err != nil {
		return fmt.Errorf("settle gpu %q: %w", gpu, err)
	}
	return nil
}

// AddTokens adds to a GPU's budget, also zero, and tells processes whether they may launch. It shows them that the
// agent refills, and wakes those that wait. Errors: sharing.ErrNotFound (the region has no such GPU), sharing.ErrStale
// (the container truncated its file).
func (r *UsageFile) AddTokens(gpu sharing.GPURef, add time.Duration, turn LaunchState) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("refill gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	t := &r.usage.total[i]
	err := guard(func() {
		atomic.AddInt64(&t.budget, int64(add))
		word := uint64(turn)
		if turn == LaunchAlone { // each such turn has another number
			if word = atomic.LoadUint64(&t.turn); word < firstAlone {
				word = firstAlone + atomic.LoadUint64(&t.refills)
			}
		}
		atomic.StoreUint64(&t.turn, word)
		atomic.AddUint64(&t.refills, 1)
	})
	if err != nil {
		return fmt.Errorf("refill gpu %q: %w", gpu, err)
	}
	// FUTEX_WAKE; the counter's lower half, which comes first, is the futex
	const wake = 1
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&t.refills)), wake, math.MaxInt32, 0, 0, 0) //nolint:gosec // it is the kernel's to look at
	if errno != 0 {
		return fmt.Errorf("wake processes at gpu %q: %w (%w)", gpu, errno, sharing.ErrUnavailable)
	}
	return nil
}
