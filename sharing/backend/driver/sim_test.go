// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/test/simlib"
)

// nodeEnv names the simulated node's directory in a child of the test: a process binds to one driver library
// for its life.
const nodeEnv = "KERF_TEST_CAPS_NODE"

// TestOnSimulatedDriver sets caps through the real NVML adapter, on drivers with and without limits.
func TestOnSimulatedDriver(t *testing.T) {
	if dir := os.Getenv(nodeEnv); dir != "" {
		onDriver(t, dir, filepath.Base(dir))
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: cgroups cannot be made")
	}
	out := simlib.Build(t)
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			node := filepath.Join(t.TempDir(), driver)
			if err := os.CopyFS(filepath.Join(node, "lib"), os.DirFS(filepath.Join(out, driver))); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOnSimulatedDriver$", "-test.v")
			cmd.Env = append(os.Environ(), nodeEnv+"="+node, "LD_LIBRARY_PATH="+filepath.Join(node, "lib"))
			if msg, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, msg)
			}
		})
	}
}

// simulate starts a node with GPUs of several kinds, one of them in MIG mode, and opens its driver.
func simulate(t *testing.T, dir, driver string) (*nvml.Library, []sharing.GPU) {
	t.Helper()
	m, err1 := machine.Load("mixed")
	drv, err2 := machine.FindDriver(driver)
	d, err3 := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	lib, err := nvml.Open(t.Context(), nvml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
	})
	gpus, left, err := lib.GPUs(t.Context())
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	return lib, gpus
}

func onDriver(t *testing.T, dir, driver string) {
	lib, gpus := simulate(t, dir, driver)
	scratch := 0
	h, err := cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	b := New(lib, InHierarchy(h, func() string {
		scratch++
		return fmt.Sprintf("kerf-test-probe-%d-%d", os.Getpid(), scratch)
	}))
	var usable []sharing.GPUID
	var mig sharing.GPUID
	for _, g := range gpus {
		want := backend.Supported
		if g.MIG || driver == "r580" {
			want = backend.NotSupported
		}
		if s := b.Probe(t.Context(), g); s.Answer != want {
			t.Errorf("gpu %d (%s, mig %v): %s: %s; want %s", g.Index, g.Model, g.MIG, s.Answer, s.Reason, want)
		}
		if g.MIG {
			mig = g.UUID
		} else {
			usable = append(usable, g.UUID)
		}
	}
	if mig == "" || len(usable) < 2 {
		t.Fatalf("the machine has %d usable GPUs, MIG GPU %q", len(usable), mig)
	}
	h, err = cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	g, err := h.Create(fmt.Sprintf("kerf-test-caps-sim-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	limits := []sharing.Share{{GPU: sharing.GPURef{UUID: usable[0]}, Memory: 3 * sharing.GiB}}
	for _, id := range usable[1:] {
		limits = append(limits, sharing.Share{GPU: sharing.GPURef{UUID: id}, Memory: backend.LeastLimit})
	}
	err = b.Apply(t.Context(), g.Dir, limits, nil)
	if driver == "r580" {
		if !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("Apply without limits in the driver: %v, want ErrUnsupported", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	inForce := func(want map[sharing.GPUID]sharing.Bytes) {
		t.Helper()
		for _, id := range usable {
			have, _, err := b.Read(t.Context(), g.Dir, sharing.GPURef{UUID: id})
			if most, limited := want[id]; limited && (err != nil || have != most) {
				t.Errorf("gpu %q: %d, %v; want %d", id, have, err, most)
			} else if !limited && !errors.Is(err, sharing.ErrNotFound) {
				t.Errorf("gpu %q: %d, %v; want no limit", id, have, err)
			}
		}
	}
	want := map[sharing.GPUID]sharing.Bytes{}
	for _, l := range limits {
		want[l.GPU.UUID] = l.Memory
	}
	inForce(want)
	if err := b.Clear(t.Context(), g.Dir, refs(usable...)); err != nil {
		t.Error(err)
	}
	inForce(nil)
	// The MIG GPU comes last and refuses: what was set before it is taken back.
	bad := []sharing.Share{{GPU: sharing.GPURef{UUID: usable[0]}, Memory: sharing.GiB},
		{GPU: sharing.GPURef{UUID: usable[1]}, Memory: sharing.GiB},
		{GPU: sharing.GPURef{UUID: mig}, Memory: sharing.GiB}}
	if err := b.Apply(t.Context(), g.Dir, bad, nil); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("Apply with a MIG GPU: %v, want ErrUnsupported", err)
	}
	inForce(nil)
	if err := b.Apply(t.Context(), h.Mount, limits, nil); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("Apply on the root cgroup: %v, want ErrInvalid", err)
	}
	if err := b.Apply(t.Context(), g.Dir, limits, nil); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := b.Clear(t.Context(), g.Dir, refs(usable...)); err != nil {
		t.Errorf("Clear of a cgroup that is gone: %v", err)
	}
}
