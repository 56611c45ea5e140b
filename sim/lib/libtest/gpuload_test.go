// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/eventually"
)

// line is what gpuload --json prints of one process.
type line struct {
	PID       int     `json:"pid"`
	Allocated uint64  `json:"allocated_bytes"`
	Error     *string `json:"error"`
	Total     *uint64 `json:"total_bytes"`
	Free      *uint64 `json:"free_bytes"`
	// Processors are the multiprocessors that it sees.
	Processors int `json:"multiprocessors"`
}

func parse(t *testing.T, out string) []line {
	t.Helper()
	var lines []line
	for s := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		var l line
		d := json.NewDecoder(strings.NewReader(s))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			t.Fatalf("line %q: %v", s, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func load(t *testing.T, k *kernel, args ...string) ([]line, result) {
	t.Helper()
	r := program(t, k.dir, nil, "gpuload", append([]string{"--json"}, args...)...)
	return parse(t, r.out), r
}

func TestGpuload(t *testing.T) {
	const usable = total - reserved - ctxCost
	for _, api := range []string{"linear", "async", "vmm", "pitched", "pool", "array", "graph", "module", "library"} {
		odd, steps := 2*mib, gib
		if api == "async" || api == "pool" { // pools grow by 32 MiB
			odd, steps = 32*mib, gib+64*mib
		}
		for name, test := range map[string]struct {
			args  []string
			code  int
			alloc uint64
			err   string
			free  uint64
		}{
			"all at once": {[]string{"--alloc", "1GiB"}, 0, gib, "", usable - gib},
			"in steps":    {[]string{"--alloc", "1GiB", "--step", "300MiB"}, 0, gib, "", usable - steps},
			"touched":     {[]string{"--alloc", "64MiB", "--touch"}, 0, 64 * mib, "", usable - 64*mib},
			"odd size":    {[]string{"--alloc", "1000001"}, 0, 1000001, "", usable - odd},
			"past the gpu": {
				[]string{"--alloc", "1TiB", "--step", "512MiB"}, 2, 0, "", 0,
			},
			"out of memory": {
				[]string{"--alloc", "5GiB", "--step", "512MiB"}, 9, 3584 * mib, "CUDA_ERROR_OUT_OF_MEMORY",
				usable - 3584*mib,
			},
			"too much at once": {[]string{"--alloc", "5GiB"}, 9, 0, "CUDA_ERROR_OUT_OF_MEMORY", usable},
		} {
			t.Run(api+"/"+name, func(t *testing.T) {
				k := start(t, "r615", 0x1B)
				r := program(t, k.dir, nil, "gpuload", append([]string{"--json", "--api", api}, test.args...)...)
				if r.code != test.code {
					t.Fatalf("exit %d, want %d: %s%s", r.code, test.code, r.out, r.errout)
				}
				if test.code == 2 {
					return
				}
				got := parse(t, r.out)
				if len(got) != 1 || got[0].Allocated != test.alloc || *got[0].Total != total-reserved ||
					*got[0].Free != test.free {
					t.Errorf("printed %s, want allocated %d and free %d", r.out, test.alloc, test.free)
				}
				if got[0].Error == nil && test.err != "" || got[0].Error != nil && *got[0].Error != test.err {
					t.Errorf("printed %s, want error %q", r.out, test.err)
				}
				eventually.True(t, "memory back", func() bool { return k.used(0) == 0 })
			})
		}
	}
}

func TestGpuloadWithoutAlloc(t *testing.T) {
	k := start(t, "r615", 0x1B)
	got, r := load(t, k)
	if r.code != 0 || len(got) != 1 || got[0].Allocated != 0 || got[0].Error != nil ||
		*got[0].Free != total-reserved-ctxCost {
		t.Errorf("exit %d, printed %s", r.code, r.out)
	}
}

// Each way to open the driver leads to it.
func TestGpuloadOpensTheDriver(t *testing.T) {
	for _, how := range []string{"usual", "deepbind", "namespace", "apart", "early", "elsewhere"} {
		k := start(t, "r615", 0x1B)
		if got, r := load(t, k, "--driver", how, "--alloc", "64MiB"); r.code != 0 || len(got) != 1 ||
			got[0].Allocated != 64*mib {
			t.Errorf("%s: exit %d, printed %s%s", how, r.code, r.out, r.errout)
		}
	}
}

func TestGpuloadForks(t *testing.T) {
	k := start(t, "r615", 0x1B)
	got, r := load(t, k, "--alloc", "512MiB", "--fork", "3", "--hold", "300ms")
	if r.code != 0 || len(got) != 3 {
		t.Fatalf("exit %d, printed %s%s", r.code, r.out, r.errout)
	}
	pids := map[int]bool{}
	for _, l := range got {
		pids[l.PID] = true
		if l.Allocated != 512*mib {
			t.Errorf("worker printed %+v", l)
		}
	}
	if len(pids) != 3 {
		t.Errorf("pids %v, want three", pids)
	}
	// Four that take 1 GiB and a context each are too much: at least one must fail, and the parent say so.
	if got, r := load(t, k, "--alloc", "1GiB", "--fork", "4", "--hold", "2s"); r.code != 9 || len(got) != 4 {
		t.Errorf("exit %d, printed %s%s", r.code, r.out, r.errout)
	}
}

// Death gives everything back, whatever way it comes, and takes the workers along.
func TestGpuloadDies(t *testing.T) {
	for _, test := range []struct {
		sig  syscall.Signal
		args []string
		want uint64
	}{
		{syscall.SIGTERM, []string{"--alloc", "1GiB"}, gib + ctxCost},
		{syscall.SIGKILL, []string{"--alloc", "1GiB", "--api", "vmm"}, gib + ctxCost},
		{syscall.SIGTERM, []string{"--alloc", "512MiB", "--fork", "2"}, gib + 2*ctxCost},
		{syscall.SIGKILL, []string{"--alloc", "512MiB", "--fork", "2", "--api", "async"}, gib + 2*ctxCost},
	} {
		t.Run(fmt.Sprint(test.sig, test.args), func(t *testing.T) {
			k := start(t, "r615", 0x1B)
			cmd, _, _ := command(t, k.dir, nil, "gpuload", append([]string{"--hold", "10m"}, test.args...)...)
			cmd.WaitDelay = 10 * time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "allocation", func() bool { return k.used(0) == test.want })
			if err := cmd.Process.Signal(test.sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			eventually.True(t, "memory back", func() bool { return k.used(0) == 0 })
		})
	}
}

func TestGpuloadUsage(t *testing.T) {
	k := start(t, "r615", 0x1B)
	for _, test := range []struct {
		args []string
		want string // in the message
	}{
		{[]string{"--alloc", "0"}, "--alloc 0"},
		{[]string{"--alloc", "-1GiB"}, "--alloc -1GiB"},
		{[]string{"--alloc", "1.5GiB"}, "--alloc 1.5GiB"},
		{[]string{"--alloc", "1GB"}, "--alloc 1GB"},
		{[]string{"--alloc", ""}, "--alloc"},
		{[]string{"--alloc", "18446744073709551616"}, "--alloc 18446744073709551616"},
		{[]string{"--alloc", "99999999GiB"}, "--alloc 99999999GiB"},
		{[]string{"--alloc", "1GiB", "--alloc", "1GiB"}, "given twice"},
		{[]string{"--alloc", "1GiB", "--step", "0"}, "--step 0"},
		{[]string{"--step", "1GiB"}, "--alloc SIZE"},
		{[]string{"--hold", "5"}, "--hold 5"},
		{[]string{"--hold", "-5s"}, "--hold -5s"},
		{[]string{"--hold", "99999999999999h"}, "--hold 99999999999999h"},
		{[]string{"--fork", "x"}, "--fork x"},
		{[]string{"--fork", "1025"}, "--fork 1025"},
		{[]string{"--gpu", "64"}, "--gpu 64"},
		{[]string{"--api", "uvm"}, "linear, async, vmm, pitched, managed, pool, array, graph, module, heap, context, " +
			"batch, library, printf, green, sparse, multicast, multicast-v2, external, mipmap, external-mipmap, " +
			"graphics, gl, gl-image, egl, vdpau, gl-array, gl-old, egl-consumer, egl-producer, gl-context, " +
			"vdpau-context, checkpoint"},
		{[]string{"--launch", "fast", "--hold", "1s"}, "plain, ex, cooperative, graph, multi, fill, copy, word"},
		{[]string{"--driver", "static"}, "usual, deepbind, namespace, apart, early, elsewhere"},
		{[]string{"--launch", "plain"}, "--hold TIME"},
		{[]string{"--tamper", "--alloc", "1GiB"}, "--gpu INDEX"},
		{[]string{"--more", "1GiB", "--fork", "2"}, "--fork"},
		{[]string{"--more", "0"}, "--more 0"},
		{[]string{"--kernel", "1ms"}, "--launch HOW"},
		{[]string{"--queue", "2"}, "--launch HOW"},
		{[]string{"--loaders", "2"}, "--hold TIME"},
		{[]string{"--alloc", "1GiB", "--leave"}, "--loaders N"},
		{[]string{"--unknown"}, "--unknown"},
		{[]string{"--alloc"}, "needs a value"},
		{[]string{"12GiB"}, "12GiB"},
	} {
		r := program(t, k.dir, nil, "gpuload", test.args...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.errout, test.want) || strings.Count(r.errout, "\n") != 1 {
			t.Errorf("gpuload %q: exit %d, %q, want 2 and one line with %q", test.args, r.code, r.errout, test.want)
		}
	}
}

func TestGpuloadBeforeAllocation(t *testing.T) {
	k := start(t, "r615", 0x1B)
	if got, r := load(t, k, "--gpu", "5"); r.code != 9 || *got[0].Error != "CUDA_ERROR_INVALID_DEVICE" ||
		got[0].Total != nil {
		t.Errorf("no such GPU: exit %d, %s", r.code, r.out)
	}
	k.mu.Lock()
	k.gpus[0].used = total - reserved - ctxCost + 1
	k.mu.Unlock()
	if got, r := load(t, k); r.code != 9 || *got[0].Error != "CUDA_ERROR_OUT_OF_MEMORY" {
		t.Errorf("no room for a context: exit %d, %s", r.code, r.out)
	}
	r := program(t, t.TempDir(), nil, "gpuload", "--json")
	if got := parse(t, r.out); r.code != 9 || got[0].Error == nil || !strings.Contains(*got[0].Error, "libcuda.so.1") {
		t.Errorf("no library: exit %d, %s", r.code, r.out)
	}
	if r := program(t, k.dir, nil, "gpuload", "--gpu", "5"); r.code != 9 ||
		!strings.Contains(r.out, "CUDA_ERROR_INVALID_DEVICE") {
		t.Errorf("for people: exit %d, %s", r.code, r.out)
	}
}
