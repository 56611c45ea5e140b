// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"os"
	"testing"

	"github.com/kerf-gpu/kerf/sim/wire"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// The scenarios assert in C, where the calls are; see check/cudacheck.c.
func TestCUDAScenarios(t *testing.T) {
	for _, driver := range []string{"r550", "r580", "r615"} {
		for _, name := range []string{
			"proc", "tables", "debugger", "context", "linear", "vmm", "launch", "fork", "clone", "threads",
		} {
			t.Run(driver+"/"+name, func(t *testing.T) {
				k := start(t, driver, 0x1B)
				if r := program(t, k.dir, nil, "check/cudacheck", name); r.code != 0 {
					t.Fatalf("exit %d\n%s", r.code, r.errout)
				}
				eventually.True(t, "memory back after the end", func() bool { return k.used(0) == 0 })
			})
		}
	}
}

func TestCUDAVisibleDevices(t *testing.T) {
	// Minors and buses run against each other: CUDA's order is that of the buses.
	k := start(t, "r615", 0x61, 0x43, 0x1B)
	a, b, c := "0000:1b:00.0", "0000:43:00.0", "0000:61:00.0"
	for name, test := range map[string]struct{ env, want string }{
		"unset":             {"", "0 " + a + " " + b + " " + c},
		"empty":             {"CUDA_VISIBLE_DEVICES=", "100"},
		"one":               {"CUDA_VISIBLE_DEVICES=1", "0 " + b},
		"order":             {"CUDA_VISIBLE_DEVICES=2,0", "0 " + c + " " + a},
		"spaces":            {"CUDA_VISIBLE_DEVICES= 2 , 0 ", "0 " + c + " " + a},
		"stops at invalid":  {"CUDA_VISIBLE_DEVICES=1,9,0", "0 " + b},
		"stops at minus":    {"CUDA_VISIBLE_DEVICES=1,-1,0", "0 " + b},
		"begins invalid":    {"CUDA_VISIBLE_DEVICES=-1", "100"},
		"no number":         {"CUDA_VISIBLE_DEVICES=1x", "100"},
		"twice":             {"CUDA_VISIBLE_DEVICES=1,1,0", "0 " + b},
		"huge":              {"CUDA_VISIBLE_DEVICES=99999999999999999999", "100"},
		"uuid":              {"CUDA_VISIBLE_DEVICES=GPU-00000043-0000-0000-0000-000000000001", "0 " + b},
		"uuid prefix":       {"CUDA_VISIBLE_DEVICES=GPU-00000061", "0 " + c},
		"uuid ambiguous":    {"CUDA_VISIBLE_DEVICES=GPU-000000", "100"},
		"uuid and index":    {"CUDA_VISIBLE_DEVICES=GPU-00000061,0", "0 " + c + " " + a},
		"uuid of no gpu":    {"CUDA_VISIBLE_DEVICES=GPU-7", "100"},
		"mig":               {"CUDA_VISIBLE_DEVICES=MIG-1", "100"},
		"order by bus":      {"CUDA_DEVICE_ORDER=PCI_BUS_ID", "0 " + a + " " + b + " " + c},
		"nothing of a list": {"CUDA_VISIBLE_DEVICES=,0", "100"},
	} {
		t.Run(name, func(t *testing.T) {
			r := program(t, k.dir, []string{test.env}, "check/cudacheck", "devices")
			if r.out != test.want {
				t.Errorf("with %s: %q, want %q %s", test.env, r.out, test.want, r.errout)
			}
		})
	}
}

// The socket alone decides: no environment brings a GPU back whose socket is masked.
func TestVisibilityByTheSocket(t *testing.T) {
	k := start(t, "r615", 0x1B, 0x43)
	mask(t, k.dev("nvidia0"))
	r := program(t, k.dir, []string{"CUDA_VISIBLE_DEVICES=0,1"}, "check/cudacheck", "devices")
	if want := "0 0000:43:00.0"; r.out != want {
		t.Errorf("CUDA sees %q, want %q", r.out, want)
	}
	if got := nvml(t, k.dir, "init", "count", "identity,0"); got[1] != "0 1" ||
		got[2] != "0 GPU-00000043-0000-0000-0000-000000000001 1651 minor=1 index=0 00000000:43:00.0 Fake GPU" {
		t.Errorf("NVML sees %q", got)
	}
	if err := os.Remove(k.dev("nvidia1")); err != nil {
		t.Fatal(err)
	}
	if r := program(t, k.dir, nil, "check/cudacheck", "devices"); r.out != "100" {
		t.Errorf("CUDA without a GPU: %q, want 100", r.out)
	}
	if got := nvml(t, k.dir, "init", "count"); got[1] != "0 0" {
		t.Errorf("NVML without a GPU: %q", got)
	}
}

// mask puts a plain file in a socket's place, as a bind mount over it would.
func mask(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCUDAOfAnotherBranch(t *testing.T) {
	k := start(t, "r580", 0x1B)
	k.change(func() { k.major = 615 })
	if r := program(t, k.dir, nil, "check/cudacheck", "devices"); r.out != "803" {
		t.Errorf("cuInit: %q, want 803 (driver mismatch)", r.out)
	}
}

func TestCUDAOfALostGPU(t *testing.T) {
	k := start(t, "r615", 0x1B, 0x43)
	k.instead(func(minor int, _ wire.Request) (wire.Response, bool) {
		return wire.Response{Status: wire.Lost}, minor == 0
	})
	if r := program(t, k.dir, nil, "check/cudacheck", "devices"); r.out != "0 0000:43:00.0" {
		t.Errorf("cuInit: %q, want the GPU that is left", r.out)
	}
}

// A stream takes memory of an H200, as measured, and gives it back. Of other models nothing is known.
func TestStreamsTakeMemory(t *testing.T) {
	for machine, want := range map[string]string{"h200x8": "2048 0 0", "h100x8": "0 0 0"} {
		dir := node(t, machine, "r580")
		if r := program(t, dir, nil, "check/cudacheck", "streams"); r.out != want || r.code != 0 {
			t.Errorf("%s: %q, exit %d, want %q %s", machine, r.out, r.code, want, r.errout)
		}
	}
}
