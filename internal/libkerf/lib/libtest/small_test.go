// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"sync"
	"testing"
)

// The driver packs small allocations into blocks of 2 MiB, and keeps a block while one of them is in use. A block
// counts as a whole, so that gaps in blocks bring no memory above the cap.
func TestGapsInBlocks(t *testing.T) {
	const limit = 64 * mib
	n := start(t, "h200x8", "r580")
	b := n.cap(t, limit)
	r := b.begin(t, "gpu:0", "gaps:8", "info", "wait")
	got := r.until(t)
	if want := fmt.Sprintf("32|0 0 %d %d", limit, limit); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if held := n.holds(t, r.cmd.Process.Pid) - n.contextOf(t); held != limit {
		t.Errorf("the driver gave %d, and the cap is %d", held, limit)
	}
	if used := b.used(); used != limit {
		t.Errorf("%d are counted, want %d", used, limit)
	}
	_ = r.in.Close()
	r.end()
}

// All of a block can be used, also where the cap has no room for another one.
func TestWholeBlocksAreUsable(t *testing.T) {
	n := start(t, "h200x8", "r580")
	for bytes, want := range map[int]string{
		512: "16384 8192", 65536: "128 64", 524289: "12 6", 786432: "8 4", 1048576: "8 4", 1048577: "4 2",
	} {
		b := n.cap(t, 8*mib)
		got := b.check(t, "gpu:0", fmt.Sprintf("refill:%d", bytes), "info")
		if full := fmt.Sprintf("%s|0 0 %d %d", want, 8*mib, 8*mib); got != full {
			t.Errorf("%d: %s, want %s", bytes, got, full)
		}
		b.reclaim(t)
		if used := b.used(); used != 0 {
			t.Errorf("%d: %d bytes are left", bytes, used)
		}
	}
}

// The driver rejects the first versions of the functions for linear memory and contexts in a process of 64 bits.
func TestFirstVersionsAreRejected(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 64*mib)
	got := b.check(t, "gpu:0", "first", "info")
	if want := fmt.Sprintf("201 201 2|0 %d %d %d", 64*mib, 64*mib, 64*mib); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Threads and processes that allocate and free small memory at once find no more room than there is, and lose none.
func TestSmallAllocationsAtOnce(t *testing.T) {
	const limit, processes = 8 * mib, 4
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.cap(t, limit)
	n.countPeak(t)
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			if code, out, errout := b.ended(t, nil, "check/kerfcheck", "gpu:0", "hammer:8:500:524289"); code != 0 {
				t.Errorf("exit %d, %q %q", code, out, errout)
			}
		})
	}
	wg.Wait()
	if most := n.peak(t); most > limit+processes*context {
		t.Errorf("the driver gave %d at a time, and the cap is %d", most, limit)
	}
	b.reclaim(t)
	if got := b.check(t, "gpu:0", "refill:1048576"); got != "8 4" {
		t.Errorf("afterwards %s", got)
	}
}
