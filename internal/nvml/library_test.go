// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestErrorsWrapTheVocabulary(t *testing.T) {
	tests := map[nvml.Return]error{
		nvml.ERROR_GPU_IS_LOST:            sharing.ErrLost,
		nvml.ERROR_NOT_SUPPORTED:          sharing.ErrUnsupported,
		nvml.ERROR_FUNCTION_NOT_FOUND:     sharing.ErrUnsupported,
		nvml.ERROR_UNINITIALIZED:          sharing.ErrUnavailable,
		nvml.ERROR_DRIVER_NOT_LOADED:      sharing.ErrUnavailable,
		nvml.ERROR_LIBRARY_NOT_FOUND:      sharing.ErrUnavailable,
		nvml.ERROR_NO_PERMISSION:          sharing.ErrDenied,
		nvml.ERROR_INVALID_ARGUMENT:       sharing.ErrInvalid,
		nvml.ERROR_NOT_FOUND:              sharing.ErrNotFound,
		nvml.ERROR_INSUFFICIENT_RESOURCES: sharing.ErrExhausted,
		nvml.ERROR_UNKNOWN:                sharing.ErrUnavailable,
		nvml.Return(12345):                sharing.ErrUnavailable,
	}
	for code, want := range tests {
		err := check("nvmlX", code)
		var e *Error
		if !errors.Is(err, want) || !errors.As(err, &e) || e.Func != "nvmlX" || e.Code != int(code) || e.Text == "" {
			t.Errorf("code %d: %v, want %v", code, err, want)
		}
	}
	if err := check("nvmlX", nvml.SUCCESS); err != nil {
		t.Error(err)
	}
}

func TestGPUs(t *testing.T) {
	switched := link{toSwitch: true}
	a, b, c := gpu(0), gpu(1), gpu(2)
	a.peers, b.peers = []link{switched, switched}, []link{switched}
	c.migOn = true
	c.rec, c.recErr = RecoveryReset, nil
	l, _ := open4test(t, Options{}, a, b, c)
	got, left, err := l.GPUs(t.Context())
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	want := []sharing.GPU{
		{UUID: a.id.uuid, Index: 0, Minor: 0, Hardware: sharing.Hardware{PCI: "0000:10:00.0"}, Model: "NVIDIA H100",
			Memory: 80 * sharing.GiB, Reserved: sharing.GiB, MIGCapable: true, NVLinks: []sharing.GPUID{b.id.uuid},
			Health: sharing.HealthOK},
		{UUID: b.id.uuid, Index: 1, Minor: 1, Hardware: sharing.Hardware{PCI: "0000:11:00.0"}, Model: "NVIDIA H100",
			Memory: 80 * sharing.GiB, Reserved: sharing.GiB, MIGCapable: true, NVLinks: []sharing.GPUID{a.id.uuid},
			Health: sharing.HealthOK},
		{UUID: c.id.uuid, Index: 2, Minor: 2, Hardware: sharing.Hardware{PCI: "0000:12:00.0"}, Model: "NVIDIA H100",
			Memory: 80 * sharing.GiB, Reserved: sharing.GiB, MIGCapable: true, MIG: true,
			Health: sharing.HealthUnhealthy, HealthReason: "the driver requires: a GPU reset"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestMIGProcesses(t *testing.T) {
	g := gpu(0)
	g.lists = [][]resident{{{pid: 7, gi: 2}, {pid: 7, gi: 1}, {pid: 0, gi: 1}},
		{{pid: 7, gi: 2, mps: true}, {pid: 5, gi: noInstance}}}
	l, _ := open4test(t, Options{}, g)
	got, err := l.MIGProcesses(t.Context(), g.id.uuid)
	if d := cmp.Diff([]MIGProcess{{5, -1}, {7, 1}, {7, 2}}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if _, err := l.MIGMode(t.Context(), g.id.uuid); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a library without MIG: %v", err)
	}
}

func TestProcessesOfAnInstance(t *testing.T) {
	g := gpu(0)
	g.lists = [][]resident{
		{{pid: 7, gi: 2, used: 5, known: true}, {pid: 7, gi: 1, used: 9, known: true},
			{pid: 8, gi: 1, used: 1, known: true}, {pid: 5, gi: noInstance, used: 3, known: true}},
		{{pid: 7, gi: 2, used: 5, known: true, mps: true}},
	}
	l, _ := open4test(t, Options{}, g)
	got, err := l.ProcessesIn(t.Context(), g.id.uuid, 2)
	if d := cmp.Diff([]Process{{PID: 5}, {PID: 7, Used: 5, Known: true, MPS: true}}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestDirectNVLinks(t *testing.T) {
	a, b, c := gpu(0), gpu(1), gpu(2)
	a.peers = []link{{pci: b.id.pci}, {pci: b.id.pci}} // reported by one side only
	c.peers = []link{{pci: pciAddress{9, 9, 9}}}       // to something that is no GPU of ours
	l, _ := open4test(t, Options{}, a, b, c)
	got, _, err := l.GPUs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]sharing.GPUID{{b.id.uuid}, {a.id.uuid}, nil} {
		if !slices.Equal(got[i].NVLinks, want) {
			t.Errorf("gpu %d reaches %v, want %v", i, got[i].NVLinks, want)
		}
	}
}

// What no real GPU reports leaves that GPU out, with the reason, and no other.
func TestAbsurdGPUsAreLeftOut(t *testing.T) {
	tests := map[string]struct {
		spoil func(bad, good *fakeGPU)
		want  error
		left  int
	}{
		"no memory":        {func(b, _ *fakeGPU) { b.mem.Total = 0 }, sharing.ErrInvalid, 1},
		"reserved > total": {func(b, _ *fakeGPU) { b.mem.Reserved = b.mem.Total + 1 }, sharing.ErrInvalid, 1},
		"no uuid":          {func(b, _ *fakeGPU) { b.id.uuid = "" }, sharing.ErrInvalid, 1},
		"control in uuid":  {func(b, _ *fakeGPU) { b.id.uuid = "GPU-1\n2" }, sharing.ErrInvalid, 1},
		"mig uuid":         {func(b, _ *fakeGPU) { b.id.uuid = "MIG-1234" }, sharing.ErrInvalid, 1},
		"control in name":  {func(b, _ *fakeGPU) { b.id.model = "H100\x1b[31m" }, sharing.ErrInvalid, 1},
		"name not utf-8":   {func(b, _ *fakeGPU) { b.id.model = "H\xff" }, sharing.ErrInvalid, 1},
		"no name":          {func(b, _ *fakeGPU) { b.id.model = "" }, sharing.ErrInvalid, 1},
		"same uuid":        {func(b, g *fakeGPU) { b.id.uuid = g.id.uuid }, sharing.ErrInvalid, 2},
		"lost":             {func(b, _ *fakeGPU) { b.err = lost() }, sharing.ErrLost, 1},
		"lost, no handle":  {func(b, _ *fakeGPU) { b.err, b.early = lost(), true }, sharing.ErrLost, 1},
		"mig mode not reported": {func(b, _ *fakeGPU) { b.migErr = check("nvmlDeviceGetMigMode", nvml.ERROR_UNKNOWN) },
			sharing.ErrUnavailable, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bad, good, third := gpu(0), gpu(1), gpu(2)
			tc.spoil(bad, good)
			l, _ := open4test(t, Options{}, bad, good, third)
			got, left, err := l.GPUs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(left) != tc.left || len(got) != 3-tc.left {
				t.Fatalf("%d taken, left out %v; want %d left out", len(got), left, tc.left)
			}
			var lo *LeftOut
			if !errors.Is(left[0], tc.want) || !errors.As(left[0], &lo) || lo.Index != 0 {
				t.Errorf("left out with %v, want %v", left[0], tc.want)
			}
		})
	}
}

// A lost GPU that was there is reported by its UUID, however the driver shows the loss.
func TestKnownGPUThatIsGoneIsNamed(t *testing.T) {
	for _, way := range []string{"no handle", "not listed"} {
		t.Run(way, func(t *testing.T) {
			a, b := gpu(0), gpu(1)
			l, d := open4test(t, Options{}, a, b)
			if _, left, err := l.GPUs(t.Context()); err != nil || len(left) != 0 {
				t.Fatal(left, err)
			}
			d.mu.Lock()
			if way == "no handle" {
				b.early, b.err = true, lost()
			} else {
				d.gpus = d.gpus[:1]
			}
			d.mu.Unlock()
			got, left, err := l.GPUs(t.Context())
			if err != nil || len(got) != 1 || len(left) != 1 {
				t.Fatal(got, left, err)
			}
			var lo *LeftOut
			if !errors.As(left[0], &lo) || lo.UUID != b.id.uuid || !errors.Is(lo, sharing.ErrLost) {
				t.Errorf("left out %v, want %q lost", left[0], b.id.uuid)
			}
		})
	}
}

func TestMergeProcesses(t *testing.T) {
	const none = noInstance
	r := func(pid int, gi uint32, used sharing.Bytes) resident {
		return resident{pid: pid, gi: gi, ci: gi, used: used, known: true}
	}
	unknown := func(pid int, gi uint32) resident { return resident{pid: pid, gi: gi, ci: gi} }
	tests := map[string]struct {
		lists [][]resident
		want  []Process
	}{
		"empty": {nil, []Process{}},
		"several": {[][]resident{{r(9, none, 5), r(3, none, 7)}},
			[]Process{{3, 7, true, false}, {9, 5, true, false}}},
		"in two lists": {[][]resident{{r(3, none, 7)}, {r(3, none, 7)}, {r(3, none, 6)}},
			[]Process{{3, 7, true, false}}},
		"over instances":    {[][]resident{{r(3, 1, 7), r(3, 2, 5)}, {r(3, 1, 7)}}, []Process{{3, 12, true, false}}},
		"unknown":           {[][]resident{{unknown(3, none)}}, []Process{{3, 0, false, false}}},
		"known in one list": {[][]resident{{unknown(3, none)}, {r(3, none, 4)}}, []Process{{3, 4, true, false}}},
		"unknown elsewhere": {[][]resident{{r(3, 1, 4), unknown(3, 2)}}, []Process{{3, 0, false, false}}},
		"sum overflows":     {[][]resident{{r(3, 1, math.MaxUint64-1), r(3, 2, 5)}}, []Process{{3, 0, false, false}}},
		"of an MPS server": {[][]resident{{r(3, none, 7), r(4, none, 1)},
			{{pid: 3, gi: none, ci: none, used: 7, known: true, mps: true}}},
			[]Process{{3, 7, true, true}, {4, 1, true, false}}},
		"no pid": {[][]resident{{r(0, none, 4)}}, []Process{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for range 8 { // map order must not matter
				if d := cmp.Diff(tc.want, merge(tc.lists)); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestReadings(t *testing.T) {
	g := gpu(0)
	g.util = 42
	l, _ := open4test(t, Options{}, g)
	ctx, id := t.Context(), g.id.uuid
	if m, err := l.Memory(ctx, id); err != nil || m != g.mem {
		t.Errorf("memory %+v, %v", m, err)
	}
	if u, err := l.Utilization(ctx, id); err != nil || u != 42 {
		t.Errorf("utilization %d, %v", u, err)
	}
	now := time.Now()
	g.times = []sharing.TimeRow{
		{PID: 7, At: now, SM: 20, Memory: 4}, {PID: 9, At: now, SM: 50, Memory: 20},
		{PID: 9, At: now.Add(-time.Minute), SM: 7}, {PID: 0, At: now, SM: 5}, {PID: 11, At: now, SM: 101},
	}
	want := sharing.TimeUse{To: now, Rows: map[int]sharing.TimeRow{7: g.times[0], 9: g.times[1]}, Doubt: []int{11}}
	if p, err := l.ProcessTime(ctx, id, now.Add(-time.Second)); err != nil || cmp.Diff(want, p) != "" {
		t.Errorf("time of processes %v, %v", p, err)
	}
	if err := l.Check(ctx, id); err != nil {
		t.Error(err)
	}
	if _, err := l.RecoveryAction(ctx, id); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("recovery: %v, want ErrUnsupported", err)
	}
	if _, err := l.MemoryLimit(ctx, id, "/c"); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("limit where there is none: %v", err)
	}
	if err := l.SetMemoryLimit(ctx, id, "/c", 0, 5); err != nil {
		t.Error(err)
	}
	if lim, err := l.MemoryLimit(ctx, id, "/c"); err != nil || lim != (Limit{Hard: 5}) {
		t.Errorf("limit %+v, %v", lim, err)
	}
	for _, bad := range []sharing.GPUID{"", "GPU-", "0", "MIG-1", "GPU-0 0", "GPU-\x00"} {
		if err := l.Check(ctx, bad); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want ErrInvalid", bad, err)
		}
	}
	if err := l.Check(ctx, "GPU-ffffffff"); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("unknown GPU: %v, want ErrNotFound", err)
	}
	g.mem.Used = g.mem.Total + 1
	g.util = 200
	if m, err := l.Memory(ctx, id); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("absurd memory is reported: %+v, %v", m, err)
	}
	if u, err := l.Utilization(ctx, id); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("absurd utilization is reported: %d, %v", u, err)
	}
	g.times = []sharing.TimeRow{{PID: 9, At: now, SM: 101}}
	if p, err := l.ProcessTime(ctx, id, now.Add(-time.Second)); err != nil || p.Known() {
		t.Errorf("an absurd share of time is reported: %v, %v", p, err)
	}
	g.err = lost()
	if err := l.Check(ctx, id); !errors.Is(err, sharing.ErrLost) {
		t.Errorf("lost GPU: %v, want ErrLost", err)
	}
}

func TestRecoveryNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range Recovery(8) {
		if s := r.String(); s == "" || seen[s] {
			t.Errorf("action %d is called %q", r, s)
		} else {
			seen[s] = true
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	g := gpu(0)
	l, d := open4test(t, Options{}, g)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if d.shut != 1 {
		t.Errorf("shut down %d times", d.shut)
	}
	_, _, gpusErr := l.GPUs(t.Context())
	_, evErr := l.WaitEvent(t.Context())
	for what, err := range map[string]error{"GPUs": gpusErr, "Check": l.Check(t.Context(), g.id.uuid),
		"WaitEvent": evErr} {
		if !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%s after Close: %v, want ErrUnavailable", what, err)
		}
	}
}

func TestOpenWithoutALibrary(t *testing.T) {
	// A file that is a library, and one that is not: neither is NVML.
	opts := Options{LibraryPaths: []string{"/nonexistent/libnvidia-ml.so.1", "/etc/passwd", "libm.so.6"}}
	if boundLibrary() != "" {
		t.Fatal("this process is bound to a library")
	}
	for range 2 { // a failed Open must give the session back
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		l, err := Open(ctx, opts)
		cancel()
		if l != nil || !errors.Is(err, sharing.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v; want ErrUnavailable", l, err)
		}
	}
}

func TestDefaultLibraryPaths(t *testing.T) {
	got := DefaultLibraryPaths("/a::rel:/b")
	if len(got) < 4 || got[0] != "/a/libnvidia-ml.so.1" || got[1] != "/b/libnvidia-ml.so.1" {
		t.Errorf("%q", got)
	}
	for i, p := range got {
		if p[0] != '/' || slices.Contains(got[:i], p) {
			t.Errorf("%q is not absolute, or is twice there", p)
		}
	}
	for _, place := range []string{ // Google's, Windows', distributions' and the driver container's
		"/usr/local/nvidia/lib64", "/home/kubernetes/bin/nvidia/lib64", "/var/lib/nvidia/lib64", "/usr/lib/wsl/lib",
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
	} {
		if !slices.Contains(got, place+"/libnvidia-ml.so.1") {
			t.Errorf("%s is not looked at: %q", place, got)
		}
	}
}

// A program that got a whole system's libraries by LD_LIBRARY_PATH would load another C library than its loader's.
func TestDriverFoldersHaveNoSystem(t *testing.T) {
	got := DriverFolders("/a::rel:/b")
	if len(got) < 3 || got[0] != "/a" || got[1] != "/b" {
		t.Errorf("%q", got)
	}
	for _, dir := range systemFolders() {
		if slices.Contains(got, dir) {
			t.Errorf("%s is among %q", dir, got)
		}
	}
}
