// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"slices"
	"testing"
)

// families are the ways to memory of which as much fits as the limit says.
var families = []string{"linear", "managed", "pitch", "async", "pool", "vmm", "array", "array3d", "mipmap", "graph",
	"again", "capture",
	"first-array", "first-array3d", "green",
	"async-thread", "capture-thread", "again-v2"}

// Each family fits under the cap and is refused past it, shows in the size, and gives back what it freed.
func TestFamilies(t *testing.T) {
	old, n := start(t, "a100x8", "r550"), start(t, "h200x8", "r580")
	for i, family := range append(families, families...) {
		b := n.cap(t, gib)
		if i < len(families) {
			b = old.cap(t, gib)
		}
		got := b.check(t, "gpu:0", "fill:"+family+":134217728", "info", "take:linear:2097152", "give", "info",
			"take:linear:134217728", "clear", "info")
		want := fmt.Sprintf("8|0 0 %d %d|2|0 %d %d %d|0|0 %d %d %d", gib, gib, 128*mib, gib, gib, gib, gib, gib)
		if got != want {
			t.Errorf("%s: %s, want %s", family, got, want)
		}
		if used := b.used(); used != 0 {
			t.Errorf("%s: %d bytes are left", family, used)
		}
	}
}

// What a pool keeps after a free is not there for others, and is when it is asked for.
func TestPoolsKeepWhatWasFreed(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	got := b.check(t, "gpu:0", "take:kept:536870912", "give", "info", "take:linear:536870912", "take:kept:536870912",
		"give", "take:linear:536870912", "info")
	want := fmt.Sprintf("0|0 %d %d %d|0|0|0|0 0 %d %d", gib/2, gib, gib, gib, gib)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What a pool gives back when the program next waits is there for what needs it before.
func TestPoolsGiveBackBeforeTheProgramWaits(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	got := b.check(t, "gpu:0", "take:unwaited:536870912", "give", "info", "take:linear:1073741824", "clear", "info",
		"take:unwaited:536870912", "give", "sync", "info")
	want := fmt.Sprintf("0|0 %d %d %d|0|0 %d %d %d|0|0 %d %d %d", gib/2, gib, gib, gib, gib, gib, gib, gib, gib)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Pools grow by 32 MiB, and all of that can be used.
func TestPoolsGrowByChunks(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 80*mib)
	got := b.check(t, "gpu:0", "take:async:1", "info", "fill:async:4194304", "info", "take:linear:2097152", "clear",
		"info", "take:linear:52428800", "take:async:1")
	want := fmt.Sprintf("0|0 %d %d %d|15|0 %d %d %d|0|0 %d %d %d|0|2", 48*mib, 80*mib, 80*mib, 16*mib, 80*mib,
		80*mib, 80*mib, 80*mib, 80*mib)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Failed allocations and foreign pointers leave the count alone.
func TestWhatTheDriverRefuses(t *testing.T) {
	b := start(t, "a30x2", "r580").cap(t, 64*gib)
	got := b.check(t, "gpu:0", "take:linear:0", "take:linear:34359738368", "take:linear:18446744073709551615",
		"take:async:18446744073709551615", "take:managed:0", "bogus", "take:linear:1073741824", "clear")
	if want := "1|2|2|2|1|1 1|0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// Physical memory is held by its handles and its mappings, and goes with the last of them.
func TestHandlesAndMappings(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 64*mib)
	got := b.check(t, "gpu:0", "vmm", "sparse", "tiles")
	if want := "made 4|mapped 4|held 4|imported 4|half 4|gone 0|0 0 sparse 0|" +
		"0 0 mapped 4|again 10|unmapped 6|destroyed 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What is bound to a multicast object is held until it is unbound, or the object and its mappings have gone.
func TestMulticastHolds(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 64*mib)
	got := b.check(t, "gpu:0", "team")
	if want := "0 0 0 0 bound 8|half 8|unbound 0|0 by address 2|0 released 2|gone 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// A graph's memory is there from its launch until it is trimmed, and a second launch takes no second helping.
func TestGraphs(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	got := b.check(t, "gpu:0", "relaunch:629145600", "relaunch:1075838976", "take:linear:536870912",
		"relaunch:629145600")
	if want := "0 ready 0|0 once 600|0 twice 600|freed 600|trimmed 0|2 ready 0|0 once 0|0 twice 0|freed 0|trimmed 0|" +
		"0|0 ready 512|2 once 512|2 twice 512|freed 512|trimmed 512"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Memory that a graph keeps takes whole pages. The driver reports only the requested bytes.
func TestSmallGraphsTakePages(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 8*mib)
	take := slices.Repeat([]string{"take:graph:1048576"}, 6)
	got := b.check(t, append([]string{"gpu:0"}, take...)...)
	if want := "0|0|0|0|2|2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A graph may be uploaded as it is made ready: then what it needs has to fit, and what does not launches nothing.
func TestGraphsUploadedAtOnce(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	got := b.check(t, "gpu:0", "take:linear:536870912", "upload:629145600", "upload:268435456", "upload:268435456",
		"upload:2097152", "info")
	if want := fmt.Sprintf("0|2 1|0 0 launched 0|0 0 launched 0|2 1|0 0 %d %d", gib, gib); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMemoryGoesWithItsContext(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	got := b.check(t, "gpu:0", "contexts")
	if want := "both 14|one 8|more 40|reset 0|released 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}
