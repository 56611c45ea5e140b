// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/mig/live"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/test/simlib"
)

// nodeEnv is the directory of the simulated node, in the child that uses its library.
const nodeEnv = "KERF_TEST_MIG_NODE"

// The executor on the simulated driver, in a process that finds the simulated library first.
func TestOnTheSimulatedDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may cut")
	}
	if dir := os.Getenv(nodeEnv); dir != "" {
		for _, name := range []string{"h100x8", "rtxpro6000x4"} {
			t.Run(name, func(t *testing.T) { onMachine(t, dir, name) })
		}
		return
	}
	dir, err := os.MkdirTemp("", "mig") // t.TempDir's names are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	if err := os.Symlink(filepath.Join(simlib.Build(t), "r550"), filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(ctx, os.Args[0], "-test.run=^TestOnTheSimulatedDriver$", "-test.v")
	cmd.Env = append(os.Environ(), nodeEnv+"="+dir, "LD_LIBRARY_PATH="+filepath.Join(dir, "lib"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// killed is what a process that is killed panics with.
type killed struct{}

// mortal is a driver whose process is killed after so many calls that change something.
type mortal struct {
	*live.Driver
	left int
}

func (m *mortal) call(err error) error {
	if m.left--; m.left == 0 {
		panic(killed{})
	}
	return err
}

func (m *mortal) CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (int, error) {
	gi, err := m.Driver.CreateGI(ctx, gpu, at)
	return gi, m.call(err)
}

func (m *mortal) DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error {
	return m.call(m.Driver.DestroyGI(ctx, gpu, gi))
}

func (m *mortal) CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (exec.Compute, error) {
	c, err := m.Driver.CreateCI(ctx, gpu, gi)
	return c, m.call(err)
}

func (m *mortal) DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error {
	return m.call(m.Driver.DestroyCI(ctx, gpu, gi, ci))
}

// onMachine changes the instances of the first GPU in many ways, and is killed after each call.
func onMachine(t *testing.T, dir, name string) {
	stop := startNode(t, dir, name)
	defer stop()
	ctx := t.Context()
	lib, err := nvml.Open(ctx, nvml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
	}()
	gpus, _, err := lib.GPUs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	gpu := exec.GPU{ID: gpus[0].UUID, PCI: gpus[0].PCI}
	files := exec.Files{Dir: t.TempDir()}
	start := func(calls int) *exec.Executor {
		d := live.New(lib)
		return exec.New(exec.Options{
			Driver: &mortal{d, calls}, Store: files, BootID: "boot", UserListers: []exec.UserLister{d},
			Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		})
	}
	e := start(0)
	if err := errors.Join(e.Recover(ctx, gpu, false), e.SetMode(ctx, gpu, true, false)); err != nil {
		t.Fatal(err)
	}
	table, err := live.New(lib).Table(ctx, gpu.ID)
	if err != nil {
		t.Fatal(err)
	}
	foreign := byHand(t, lib, gpu.ID, table)
	profiles := table.Profiles()
	small, large := profiles[0].ID, profiles[len(profiles)-1].ID
	for _, p := range profiles { // the largest that fits with the unmanaged one
		if at, _ := table.Occupy([]mig.Place{foreign.Place}); slices.ContainsFunc(table.Places(at),
			func(q mig.Place) bool { return q.Profile == p.ID }) {
			large = p.ID
		}
	}
	kills := 0
	for round := range 15 {
		layout := [][]int{{small, small}, {large}, {}}[round%3]
		died := apply(t, start(1+round%5), gpu, table, layout)
		e = start(0)
		if err := e.Recover(ctx, gpu, false); err != nil {
			t.Fatal(err)
		}
		if died {
			kills++
		}
		have, err := e.Observe(ctx, gpu)
		if err != nil {
			t.Fatal(err)
		}
		var ours []int
		for _, in := range have {
			if in.Managed != (in.Place != foreign.Place) || !in.Ready || in.Users != nil {
				t.Fatalf("round %d: %+v", round, in)
			}
			if in.Managed {
				ours = append(ours, in.Place.Profile)
			}
		}
		if !slices.Equal(ours, layout) {
			t.Fatalf("round %d: %v, want %v", round, ours, layout)
		}
	}
	if kills < 5 {
		t.Errorf("killed %d times: too few to be a test", kills)
	}
	last, err := live.New(lib).Instances(ctx, gpu.ID)
	if i := slices.IndexFunc(last, func(in exec.Instance) bool { return in.Place == foreign.Place }); err != nil ||
		i < 0 || !slices.Equal(last[i].CIs, foreign.CIs) {
		t.Errorf("the foreign instance %+v is not among %+v, %v", foreign, last, err)
	}
}

// apply plans and applies a layout, and reports whether the process was killed.
func apply(t *testing.T, e *exec.Executor, gpu exec.GPU, table *mig.Table, layout []int) (died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			died = true
		}
	}()
	if err := e.Recover(t.Context(), gpu, false); err != nil {
		t.Fatal(err)
	}
	have, err := e.Observe(t.Context(), gpu)
	if err != nil {
		t.Fatal(err)
	}
	ask := plan.Request{Table: table, Have: have, Exact: true}
	for _, p := range layout {
		ask.Wishes = append(ask.Wishes, plan.Wish{Profile: p, Start: plan.Any})
	}
	p, err := plan.Make(ask)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Apply(t.Context(), gpu, p.Steps); err != nil {
		t.Fatal(err)
	}
	return false
}

// byHand makes the smallest instance at the last place, as an administrator would.
func byHand(t *testing.T, lib *nvml.Library, id sharing.GPUID, table *mig.Table) exec.Instance {
	t.Helper()
	p := table.Profiles()[0]
	gi, err := lib.CreateGI(t.Context(), id, p.ID, p.Starts[len(p.Starts)-1], p.Size)
	if err == nil {
		_, err = lib.CreateCI(t.Context(), id, gi)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := live.New(lib).Instances(t.Context(), id)
	if err != nil || len(list) != 1 {
		t.Fatal(fmt.Sprint(list), err)
	}
	return list[0]
}

// startNode runs the simulated driver in this process.
func startNode(t *testing.T, dir, name string) (stop func()) {
	t.Helper()
	m, err1 := machine.Load(name)
	drv, err2 := machine.FindDriver("r550")
	d, err3 := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
