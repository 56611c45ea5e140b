// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever way a program has to the driver's functions, it gets those that count.
func TestEveryWayToTheDriver(t *testing.T) {
	for _, driver := range []string{"r550", "r580"} {
		n := start(t, "a30x2", driver)
		for _, way := range []string{"dlsym", "dlvsym", "default", "space", "proc1", "proc2", "ptsz", "itself"} {
			b := n.cap(t, gib)
			got := b.check(t, "via:"+way, "gpu:0", "fill:linear:268435456", "take:async:2097152", "info", "give",
				"take:async:2097152", "take:linear:268435456")
			if want := fmt.Sprintf("4|2|0 0 %d %d|0|2", gib, gib); got != want {
				t.Errorf("%s on %s: %s, want %s", way, driver, got, want)
			}
		}
	}
	n := start(t, "a30x2", "r580")
	b := n.cap(t, gib)
	if got, want := b.program(t, nil, "check/linked", "gpu:0", "fill:linear:268435456",
		"info"), fmt.Sprintf("4|0 0 %d %d", gib, gib); got != want {
		t.Errorf("linked: %s, want %s", got, want)
	}
}

// A driver may answer with addresses that it does not export: then names decide. A function of a later CUDA version
// counts if it is the same as before.
func TestAddressesThatAreNotExported(t *testing.T) {
	for _, way := range []string{"proc2", "ptsz", "dlsym", "newer", "newer-ptsz"} {
		b := stubbed(t)
		got := b.check(t, "via:"+way, "gpu:0", "fill:linear:268435456")
		if got != "4" || b.region.Rejected() != 0 {
			t.Errorf("%s: %s fit, want 4; %d functions rejected, want 0", way, got, b.region.Rejected())
		}
	}
	b := stubbed(t)
	if got := b.check(t, "via:proc2", "gpu:0", "fill:async:268435456"); got != "4" {
		t.Errorf("pools: %s fit, want 4", got)
	}
}

// A function that allocates, has no exported address and is unknown gives no memory. One line says so, and the region
// counts it. Other unknown functions pass.
func TestUnknownFunctionsThatAllocate(t *testing.T) {
	const rejected, passed = "801", "0"
	line := func(name string) string {
		return "libkerf: " + name + " is unknown to this version of Kerf: each call is rejected\n"
	}
	for _, test := range []struct {
		way, name, want, said string
		count                 uint64
	}{
		{"newer", "cuMemAllocAsync", rejected, line("cuMemAllocAsync of CUDA 13.4"), 2},
		{"newer-ptsz", "cuMemAllocAsync", rejected, line("cuMemAllocAsync of CUDA 13.4"), 2},
		{"dlsym", "cuMemAllocAsync_v3", rejected, line("cuMemAllocAsync_v3"), 2},
		{"default", "cuMemAllocAsync_v3", rejected, line("cuMemAllocAsync_v3"), 2},
		{"newer", "cuMemGetSize", passed, "", 0},
		{"proc2", "cuMemAllocAsync", passed, "", 0},
	} {
		b := stubbed(t)
		code, out, errout := b.ended(t, nil, "check/kerfcheck", "via:"+test.way, "gpu:0", "call:"+test.name,
			"call:"+test.name)
		if want := test.want + "\n" + test.want; code != 0 || out != want || errout != test.said {
			t.Errorf("%s by %s: %d %q %q, want %q %q", test.name, test.way, code, out, errout, want, test.said)
		}
		if got := b.region.Rejected(); got != test.count {
			t.Errorf("%s by %s: %d functions rejected, want %d", test.name, test.way, got, test.count)
		}
		if test.want == rejected && b.used() != 0 {
			t.Errorf("%s by %s: %d bytes are counted", test.name, test.way, b.used())
		}
	}
}

// A program gets the wrappers if it opens the driver with RTLD_DEEPBIND or in another namespace, or has a deep library
// do it. If it looks for the functions in a constructor or in another namespace, it gets the driver's. Then the agent
// sees a process that never registered, or more than it counted.
func TestHowTheDriverIsOpened(t *testing.T) {
	n := start(t, "a30x2", "r580")
	for how, counts := range map[string]bool{"usual": true, "deepbind": true, "namespace": true, "apart": true,
		"early": false, "elsewhere": false} {
		code, out, errout := n.cap(t, gib).ended(t, nil, "gpuload", "--json", "--driver", how, "--alloc", "2GiB",
			"--step", "64MiB")
		if refused := strings.Contains(out, "OUT_OF_MEMORY"); refused != counts || errout != "" || code == 0 == counts {
			t.Errorf("%s: exit %d, %s%s", how, code, out, errout)
		}
	}
}

// However the imports of a library that was opened with RTLD_DEEPBIND are bound, they end here. The only exceptions are
// those that its constructors have read before.
func TestDeepBinding(t *testing.T) {
	n := start(t, "a30x2", "r580")
	for _, how := range []string{"lazy", "now", "noplt", "table", "linked", "linkednow", "early"} {
		// by its path; by its name, where the program's own RUNPATH leads
		for _, by := range []string{"deep/", "name/"} {
			got := n.cap(t, gib).check(t, "via:"+by+how, "gpu:0", "fill:linear:268435456", "info")
			if counts := got == fmt.Sprintf("4|0 0 %d %d", gib, gib); counts == (how == "early") {
				t.Errorf("%s%s: %s", by, how, got)
			}
		}
	}
}

// A name of the driver is found where the driver is, and nowhere else.
func TestNamesWithoutADriver(t *testing.T) {
	b := start(t, "a30x2", "r550").cap(t, gib)
	for _, where := range []string{"default", "next", "program"} {
		got := b.check(t, "look:"+where+":cuMemAlloc_v2", "look:"+where+":cuCtxCreate_v4", "look:"+where+":cuInit",
			"look:"+where+":malloc",
			"look:"+where+":nvmlDeviceGetMemoryInfo", "via:default", "gpu:0", "look:"+where+":cuMemAlloc_v2",
			"look:"+where+":cuCtxCreate_v4", "look:"+where+":cuInit")
		if want := "none|none|none|found|none|found|none|found"; got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}

// Another preloaded library sees what it would see without this one, and lets no program exceed the cap.
func TestWithAnotherLibrary(t *testing.T) {
	b := start(t, "a30x2", "r580").cap(t, gib)
	kerf, other := filepath.Join(b.dir, "libkerf.so"), filepath.Join(built, "check", "next.so")
	for name, test := range map[string]struct{ preload, want string }{
		"before it": {other + ":" + kerf, "4|2 6"},
		"after it":  {kerf + ":" + other, "4|2 1"}, // a program's own calls end in the driver
	} {
		// What is not bound yet is bound in this order, also when a library was opened deep meanwhile.
		got := b.program(t, []string{"LD_PRELOAD=" + test.preload}, "check/linked", "deep:lazy", "gpu:0",
			"fill:linear:268435456", "next:268435456")
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	got := b.program(t, []string{"LD_PRELOAD=" + other + ":" + kerf}, "check/kerfcheck", "via:dlsym", "gpu:0",
		"fill:linear:268435456", "next:268435456")
	if want := "4|2 1"; got != want {
		t.Errorf("by dlsym: %s, want %s", got, want)
	}
}
