// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpumode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// modes are what a GPU has.
type modes struct {
	Slice sharing.TimeSlice
	Mode  sharing.ComputeMode
	Power uint32
}

// all wants the same of every GPU.
func all(w Desired) func(sharing.GPUID) Desired { return func(sharing.GPUID) Desired { return w } }

// fake is a driver. crash ends it at the n-th setting, before it is made or after.
type fake struct {
	gpus          map[sharing.GPUID]*modes
	mute, denied  bool // time slices are unknown; nothing may be set
	crash         int
	crashAfterSet bool
}

type crashed struct{}

func (f *fake) ComputeMode(_ context.Context, id sharing.GPUID) (sharing.ComputeMode, error) {
	if f.gpus[id] == nil {
		return 0, sharing.ErrLost
	}
	return f.gpus[id].Mode, nil
}

func (f *fake) TimeSlice(_ context.Context, id sharing.GPUID) (sharing.TimeSlice, error) {
	switch {
	case f.gpus[id] == nil:
		return 0, sharing.ErrLost
	case f.mute:
		return 0, sharing.ErrUnsupported
	}
	return f.gpus[id].Slice, nil
}

func (f *fake) change(do func()) error {
	if f.denied {
		return sharing.ErrDenied
	}
	if f.crash--; f.crash == 0 && !f.crashAfterSet {
		panic(crashed{})
	}
	do()
	if f.crash == 0 {
		panic(crashed{})
	}
	return nil
}

func (f *fake) SetComputeMode(_ context.Context, id sharing.GPUID, m sharing.ComputeMode) error {
	return f.change(func() { f.gpus[id].Mode = m })
}

func (f *fake) SetTimeSlice(_ context.Context, id sharing.GPUID, s sharing.TimeSlice) error {
	err := f.change(func() { f.gpus[id].Slice = s })
	if f.mute && err == nil {
		return sharing.ErrUnsupported
	}
	return err
}

func (f *fake) PowerLimit(_ context.Context, id sharing.GPUID) (uint32, error) {
	if f.gpus[id] == nil {
		return 0, sharing.ErrLost
	}
	return f.gpus[id].Power, nil
}

func (f *fake) SetPowerLimit(_ context.Context, id sharing.GPUID, mw uint32) error {
	return f.change(func() { f.gpus[id].Power = mw })
}

func newFake() *fake {
	return &fake{gpus: map[sharing.GPUID]*modes{
		"GPU-0": {sharing.TimeSliceDefault, sharing.ComputeModeDefault, 700_000},
		"GPU-1": {sharing.TimeSliceLong, sharing.ComputeModeProhibited, 650_000},
		"GPU-2": {sharing.TimeSliceDefault, sharing.ComputeModeDefault, 700_000},
	}}
}

// state is what the GPUs have now.
func (f *fake) state() map[sharing.GPUID]modes {
	out := map[sharing.GPUID]modes{}
	for id, m := range f.gpus {
		out[id] = *m
	}
	return out
}

func inventory() []sharing.GPU {
	return []sharing.GPU{{UUID: "GPU-0"}, {UUID: "GPU-1"}, {UUID: "GPU-2", MIG: true}}
}

func open(t *testing.T, path, boot string, d Driver) *Manager {
	t.Helper()
	k, err := Open(path, boot, d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var wanted = Desired{sharing.TimeSliceShort, sharing.ComputeModeExclusiveProcess, 400_000}

func TestSetsAndPutsBack(t *testing.T) {
	f, path := newFake(), filepath.Join(t.TempDir(), "modes.json")
	before := f.state()
	k := open(t, path, "boot", f)
	for range 2 {
		if err := k.Apply(t.Context(), inventory(), all(wanted)); err != nil {
			t.Fatal(err)
		}
		want := map[sharing.GPUID]modes{
			"GPU-0": {sharing.TimeSliceShort, sharing.ComputeModeExclusiveProcess, 400_000},
			"GPU-1": {sharing.TimeSliceShort, sharing.ComputeModeExclusiveProcess, 400_000},
			"GPU-2": {before["GPU-2"].Slice, before["GPU-2"].Mode, 400_000}, // it is in MIG mode
		}
		if diff := cmp.Diff(want, f.state()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	// Only one of the three is wanted any more.
	if err := k.Apply(t.Context(), inventory(), all(Desired{TimeSlice: sharing.TimeSliceMedium})); err != nil {
		t.Fatal(err)
	}
	if m := *f.gpus["GPU-1"]; m != (modes{sharing.TimeSliceMedium, sharing.ComputeModeProhibited, 650_000}) {
		t.Errorf("GPU-1 has %+v", m)
	}
	// A GPU that is lost meanwhile is remembered until it is back.
	lost := f.gpus["GPU-1"]
	delete(f.gpus, "GPU-1")
	if err := k.Restore(t.Context()); !errors.Is(err, sharing.ErrLost) {
		t.Errorf("a lost GPU: %v", err)
	}
	f.gpus["GPU-1"] = lost
	if err := open(t, path, "boot", f).Restore(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, f.state()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestLeavesWhatOthersSet(t *testing.T) {
	f := newFake()
	k := open(t, filepath.Join(t.TempDir(), "modes.json"), "boot", f)
	if err := k.Apply(t.Context(), inventory(), all(wanted)); err != nil {
		t.Fatal(err)
	}
	f.gpus["GPU-0"].Slice = sharing.TimeSliceLong
	if err := k.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := *f.gpus["GPU-0"]; m != (modes{sharing.TimeSliceLong, sharing.ComputeModeDefault, 700_000}) {
		t.Errorf("GPU-0 has %+v", m)
	}
}

func TestTimeSlicesThatAreNotTold(t *testing.T) {
	f := newFake()
	f.mute = true
	k := open(t, filepath.Join(t.TempDir(), "modes.json"), "boot", f)
	if err := k.Apply(t.Context(), inventory()[:1], all(Desired{TimeSlice: sharing.TimeSliceShort})); !errors.Is(err,
		sharing.ErrUnsupported) {
		t.Errorf("%v: no error says that it was not read back", err)
	}
	if got := f.gpus["GPU-0"].Slice; got != sharing.TimeSliceShort {
		t.Errorf("it was not set: %v", got)
	}
	if err := k.Restore(t.Context()); err != nil || f.gpus["GPU-0"].Slice != sharing.TimeSliceDefault {
		t.Errorf("it was not put back: %v, %v", f.gpus["GPU-0"].Slice, err)
	}
}

func TestFiles(t *testing.T) {
	f, path := newFake(), filepath.Join(t.TempDir(), "modes.json")
	if err := open(t, path, "boot", f).Apply(t.Context(), inventory(), all(wanted)); err != nil {
		t.Fatal(err)
	}
	set := f.state()
	for boot, want := range map[string]int{"boot": 3, "another boot": 0} {
		if got, err := Remembered(path, boot, slog.New(slog.DiscardHandler)); err != nil || len(got) != want ||
			want > 0 && got[0] != "GPU-0" {
			t.Errorf("remembered in boot %q: %v, %v", boot, got, err)
		}
	}
	if got, err := Remembered(path+".none", "boot", slog.New(slog.DiscardHandler)); err != nil || len(got) > 0 {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if err := open(t, path, "another boot", f).Restore(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(set, f.state()); diff != "" {
		t.Errorf("a file of another boot counts:\n%s", diff)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path, "boot", f).Restore(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	f = newFake()
	f.denied = true
	k := open(t, filepath.Join(t.TempDir(), "none", "modes.json"), "boot", f)
	if err := k.Apply(t.Context(), inventory(), all(wanted)); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("without a note: %v", err)
	}
	if diff := cmp.Diff(newFake().state(), f.state()); diff != "" {
		t.Errorf("something was set without a note:\n%s", diff)
	}
}

// Whatever is wanted, and wherever it crashes, what was there before comes back.
func TestCrashes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		f, path := newFake(), filepath.Join(t.TempDir(), "modes.json")
		before := f.state()
		f.crash, f.crashAfterSet = 1+r.IntN(12), r.IntN(2) == 0
		for range 1 + r.IntN(4) {
			// #nosec G115 -- small
			want := Desired{sharing.TimeSlice(r.IntN(5)), sharing.ComputeMode(r.IntN(3)), 100_000 * uint32(r.IntN(3))}
			gpus := inventory()[r.IntN(2):]
			func() {
				defer func() {
					if p := recover(); p != nil && p != (crashed{}) {
						panic(p)
					}
				}()
				if err := open(t, path, "boot", f).Apply(t.Context(), gpus, all(want)); err != nil {
					t.Fatal(err)
				}
			}()
		}
		f.crash = 0
		if err := open(t, path, "boot", f).Restore(t.Context()); err != nil {
			t.Fatal(fmt.Errorf("seed %d: %w", seed, err))
		}
		if diff := cmp.Diff(before, f.state()); diff != "" {
			t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
		}
	}
}
