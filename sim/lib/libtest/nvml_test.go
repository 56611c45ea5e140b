// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// Codes of NVML.
const (
	success          = "0"
	uninitialized    = "1"
	invalidArgument  = "2"
	notSupported     = "3"
	insufficientSize = "7"
	driverNotLoaded  = "9"
	timeout          = "10"
	lost             = "15"
	versionMismatch  = "18"
)

func TestNVMLReads(t *testing.T) {
	k := start(t, "r615", 0x61, 0x1B)
	for _, test := range []struct {
		commands []string
		want     []string
	}{
		{[]string{"count", "shutdown", "stub,nvmlDeviceGetFanSpeed"}, []string{uninitialized + " 0", uninitialized,
			uninitialized}},
		{[]string{"init", "init", "shutdown", "count", "shutdown", "count"}, []string{success, success, success, "0 2",
			success, uninitialized + " 0"}},
		{[]string{"init", "system", "short"}, []string{success, "0 615.71.09 13.615.71.09 13040", insufficientSize}},
		{[]string{"init", "identity,0", "identity,1", "identity,2"}, []string{
			success,
			"0 GPU-0000001b-0000-0000-0000-000000000001 1651 minor=1 index=0 00000000:1B:00.0 Fake GPU",
			"0 GPU-00000061-0000-0000-0000-000000000000 1650 minor=0 index=1 00000000:61:00.0 Fake GPU",
			invalidArgument + " handle",
		}},
		{
			[]string{"init", "uuid,GPU-0000001b-0000-0000-0000-000000000001", "uuid,GPU-1", "pci,00000000:61:00.0",
				"pci,0000:1b:00.0", "pci,1B:00.0", "pci,x"},
			[]string{success, "0 1", "6 0", "0 0", "0 1", "0 1", invalidArgument + " 0"},
		},
		{[]string{"init", "memory,0"}, []string{success, fmt.Sprintf("0 total=%d reserved=%d free=%d used=0 v1used=%d",
			total, reserved, total-reserved, reserved)}},
		{[]string{"init", "processes,0,0", "nearest,0,40", "nearest,0,50"}, []string{success, "0 0", "0 1", "0 0"}},
		{[]string{"init", "recovery,0", "stub,nvmlDeviceGetFanSpeed"}, []string{success, "0 0 4 3", notSupported}},
		{[]string{"init", "virtual,0"}, []string{success, "0 0"}},
		{[]string{"excluded", "init", "excluded"}, []string{"0 0 0 2 2 2 3 1", success, "0 0 0 2 2 2 3 1"}},
		{[]string{"init", "set,0,/kerf/a,0,1024", "get,0,/kerf/a", "get,0,/kerf/b", "set,0,relative,0,1"}, []string{
			success, "0 soft=0 hard=1024 used=0", "0 soft=0 hard=1024 used=0",
			notSupported + " soft=0 hard=0 used=0", invalidArgument + " soft=0 hard=1 used=0",
		}},
		{[]string{"init", "watch,0", "wait,20"}, []string{success, success, timeout + " minor=0 type=0 data=0 gi=0"}},
	} {
		t.Run(strings.Join(test.commands, " "), func(t *testing.T) {
			if diff := cmp.Diff(test.want, nvml(t, k.dir, test.commands...)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNVMLProcesses(t *testing.T) {
	k := start(t, "r615", 0x1B)
	k.mu.Lock()
	want := "0 7"
	for pid := 101; pid <= 107; pid++ {
		k.gpus[0].procs[pid] = uint64(pid) * mib // #nosec G115 -- small
		want += fmt.Sprintf(" %d:%d", pid, uint64(pid)*mib)
	}
	k.gpus[0].procs[107] = wire.Unknown
	want = want[:strings.LastIndex(want, ":")] + ":-1" // NVML_VALUE_NOT_AVAILABLE
	k.mu.Unlock()
	got := nvml(t, k.dir, "init", "processes,0,0", "processes,0,6", "processes,0,7", "processes,0,99")
	if diff := cmp.Diff([]string{success, insufficientSize + " 7", insufficientSize + " 7", want, want},
		got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestNVMLEvents(t *testing.T) {
	k := start(t, "r615", 0x61, 0x1B)
	// Another type than was registered, another GPU than was registered, then the one that is reported.
	k.events <- wire.Response{Vals: []uint64{1, 2, 0, wire.NoInstance, wire.NoInstance}}
	k.events <- wire.Response{Vals: []uint64{0, 8, 48, wire.NoInstance, wire.NoInstance}}
	k.events <- wire.Response{Vals: []uint64{1, 8, 79, wire.NoInstance, wire.NoInstance}}
	got := nvml(t, k.dir, "init", "watch,0", "wait,30000")
	if want := "0 minor=1 type=8 data=79 gi=4294967295"; got[2] != want {
		t.Errorf("event %q, want %q", got[2], want)
	}
}

func TestNVMLWithoutADriver(t *testing.T) {
	k := start(t, "r615", 0x1B)
	if err := os.Remove(k.dev("nvidiactl")); err != nil {
		t.Fatal(err)
	}
	if got := nvml(t, k.dir, "init", "count"); got[0] != driverNotLoaded || got[1] != uninitialized+" 0" {
		t.Errorf("init without nvidiactl: %q", got)
	}
}

func TestNVMLOfAnotherBranch(t *testing.T) {
	k := start(t, "r615", 0x1B)
	k.change(func() { k.major = 580 })
	if got := nvml(t, k.dir, "init"); got[0] != versionMismatch {
		t.Errorf("init: %q, want %s", got, versionMismatch)
	}
}

func TestMemoryLimitSymbols(t *testing.T) {
	for driver, want := range map[string]string{"r550": "no", "r580": "no", "r615": "yes"} {
		k := start(t, driver, 0x1B)
		got := nvml(t, k.dir, "has,nvmlDeviceSetMemoryLimits_v1", "has,nvmlDeviceGetMemoryLimits_v1",
			"has,nvmlDeviceGetBBXTimeData_v1", "has,nvmlErrorString")
		if diff := cmp.Diff([]string{want, want, want, "yes"}, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", driver, diff)
		}
	}
}

// A GPU that is lost keeps its place; the others answer.
func TestNVMLLostGPU(t *testing.T) {
	k := start(t, "r615", 0x1B, 0x43, 0x61)
	k.instead(func(minor int, _ wire.Request) (wire.Response, bool) {
		return wire.Response{Status: wire.Lost}, minor == 1
	})
	got := nvml(t, k.dir, "init", "count", "identity,1", "identity,2", "recovery,0")
	if got[1] != "0 3" || got[2] != lost+" handle" || !strings.Contains(got[3], "index=2") || got[4] != "0 0 4 3" {
		t.Errorf("with GPU 1 lost: %q", got)
	}
}

// Once the daemon has dropped the library, every GPU counts as lost until NVML is initialised again.
func TestNVMLBrokenConnection(t *testing.T) {
	for name, answer := range map[string]func(*kernel) wire.Response{
		"closed": func(k *kernel) wire.Response { k.drop(); return wire.Response{} },
		"bad status": func(*kernel) wire.Response {
			return wire.Response{Status: -5}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "r615", 0x1B)
			var done atomic.Bool
			k.instead(func(_ int, r wire.Request) (wire.Response, bool) {
				if r.Op != wire.OpRecovery || done.Swap(true) {
					return wire.Response{}, false
				}
				return answer(k), true
			})
			got := nvml(t, k.dir, "init", "recovery,0", "identity,0", "shutdown", "init", "count", "recovery,0")
			want := []string{success, "0 15 0 3", lost + " handle", success, success, "0 1", "0 0 4 3"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A child goes on with new connections.
func TestNVMLFork(t *testing.T) {
	k := start(t, "r615", 0x1B)
	got := nvml(t, k.dir, "init", "fork,0", "identity,0")
	if got[1] != "child 0 30, parent 0 1" || !strings.HasPrefix(got[2], "0 GPU-") {
		t.Errorf("around a fork: %q", got)
	}
}

// Neither a wait nor a GPU that hangs keeps another thread from ending it.
func TestNVMLInterrupts(t *testing.T) {
	k := start(t, "r615", 0x1B)
	release := make(chan struct{})
	defer close(release)
	k.instead(func(_ int, r wire.Request) (wire.Response, bool) {
		if r.Op == wire.OpRecovery || r.Op == wire.OpWaitEvent {
			<-release
		}
		return wire.Response{}, false
	})
	got := nvml(t, k.dir, "init", "watch,0", "free-while-waiting", "shutdown-while-hung,0", "init", "identity,0")
	if got[2] != "0 15 2" || got[3] != "0 15" || got[4] != success || !strings.HasPrefix(got[5], "0 GPU-") {
		t.Errorf("interrupted: %q", got)
	}
}

func TestNVMLMIG(t *testing.T) {
	k := start(t, "r615", 0x1B)
	k.instead(func(_ int, r wire.Request) (wire.Response, bool) {
		switch r.Op {
		case wire.OpMIGMode:
			return wire.Response{Vals: []uint64{1, 1}}, true
		case wire.OpMIGInstances:
			return wire.Response{Vals: []uint64{2, 1, 14, 0, 2, 0, 16 * gib, 1, 0, 2, 3, 9, 4, 4, 0, 40 * gib, 2, 0, 2},
				Text: "MIG-a\nMIG-b"}, true
		case wire.OpMIGProfile:
			return wire.Response{Vals: []uint64{r.Args[0], gib, 2, 32, 3, 1, 1, 0, 1, 0, 1, 0, 2},
				Text: fmt.Sprintf("p%d", r.Args[0])}, true
		}
		return wire.Response{}, false
	})
	want := "0 1 1 [1 gi=1 MIG-a Fake GPU MIG p1 set=2] [1 gi=3 MIG-b Fake GPU MIG p2 set=2]"
	if got := nvml(t, k.dir, "init", "mig,0"); got[1] != want {
		t.Errorf("mig: %q, want %q", got[1], want)
	}
}

// DIR is found from where the library was loaded, also through a relative path and a link.
func TestDeviceDirectory(t *testing.T) {
	k := start(t, "r615", 0x1B)
	other := t.TempDir()
	if err := os.Symlink(k.dir, filepath.Join(other, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(k.dir, "lib"), filepath.Join(other, "lib")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(k.dir, "lib"):              success,
		filepath.Join(other, "link", "lib"):      success,
		"lib":                                    success,
		"./lib/.":                                success,
		filepath.Join(other, "lib"):              driverNotLoaded, // other/dev is not there
		filepath.Join(k.dir, "lib/../lib"):       success,
		filepath.Join(other, "nowhere") + ":lib": success,
	} {
		cmd, out, _ := command(t, k.dir, nil, "check/nvmlcheck", "init")
		cmd.Dir = k.dir
		cmd.Env = []string{"LD_LIBRARY_PATH=" + path}
		err := cmd.Run()
		if got := strings.TrimSpace(out.String()); err != nil || got != want {
			t.Errorf("library from %s: init %q (%v), want %s", path, got, err, want)
		}
	}
}
