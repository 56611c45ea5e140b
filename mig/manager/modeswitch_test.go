// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// auto is a GPU outside of MIG mode in a pool that leaves its mode to demand.
func auto(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "h100x8", config.Pool{MIGIdleTTL: time.Minute})
	w.Tick(t.Context())
	return w
}

func TestTurn(t *testing.T) {
	w := auto(t)
	v := w.view()
	if !v.ModeSwitchable || v.On || v.Busy != "" || v.MaxInstances["1g.10gb"] != 7 || len(v.Geometry) == 0 ||
		!w.ModeSwitchable(gpuID) {
		t.Fatalf("%+v", v)
	}
	if o := w.Candidate(gpuID, "1g", mig.AnyStart, nil); o.Detail == "" || o.Never {
		t.Errorf("an offer outside of MIG mode: %+v", o)
	}
	if o := w.Candidate(gpuID, "9g", mig.AnyStart, nil); o.Unknown == nil {
		t.Errorf("an unknown profile: %+v", o)
	}
	would := w.Would(gpuID, "1g", mig.AnyStart, nil)
	if would.Detail != "" || would.Share.MIG.Start != 6 && would.Share.MIG.Start != 5 {
		t.Errorf("as if it were: %+v", would)
	}
	if err := w.Manager.SwitchMode(t.Context(), gpuID, true); err != nil {
		t.Fatal(err)
	}
	if v = w.view(); !v.On || !v.ModeSwitchable || v.Busy != "" || !v.ModeSwitchedAt.Equal(w.now) {
		t.Errorf("in MIG mode: %+v", v)
	}
	w.grants = []mig.Granted{{Instance: would.Share.MIG, Who: "pod a/b"}}
	if _, _, err := w.Ensure(t.Context(), gpuID, would.Share.MIG, "pod a/b"); err != nil {
		t.Fatal(err)
	}
	refusedAs := func(what string) {
		t.Helper()
		w.Tick(t.Context())
		if err := w.Manager.SwitchMode(t.Context(), gpuID, false); !errors.Is(err, sharing.ErrConflict) ||
			w.view().Busy == "" || len(w.have) != 1 {
			t.Errorf("%s: %v, busy %q, %v", what, err, w.view().Busy, w.have)
		}
	}
	refusedAs("with an instance in use")
	w.grants = nil
	refusedAs("with one that is kept warm")
	w.now = w.now.Add(time.Minute)
	w.Tick(t.Context())
	if v := w.view(); len(w.have) != 0 || v.Busy != "" || !v.On {
		t.Fatalf("idle: %+v", v)
	}
	if err := w.Manager.SwitchMode(t.Context(), gpuID, false); err != nil || w.view().On {
		t.Errorf("back: %v", err)
	}
}

// Only what the pool leaves to demand, and what Kerf itself has put in MIG mode, is demand's to change.
func TestTurnsNot(t *testing.T) {
	tests := map[string]func(w *world){
		"a pool that says so":   func(w *world) { w.pool.AutoMIGMode = config.AutoMIGModeOff },
		"a pool of shares":      func(w *world) { w.pool.Mode = config.ModeShared },
		"a pool of MIG":         func(w *world) { w.pool.Mode = config.ModeMIG },
		"a layout":              func(w *world) { w.pool.MIGLayouts = []config.MIGLayout{{Enabled: true}} },
		"a reset without leave": func(w *world) { w.mode.NeedsReset = true },
		"a mode set by hand":    func(w *world) { w.mode.Current, w.mode.Pending = true, true },
		"a driver that tells no profiles outside of MIG mode": func(w *world) { w.table = nil },
		"a rule for the GPU": func(w *world) {
			w.pool.GPURules = []config.GPURule{{Indexes: []int{0},
				Settings: config.GPUSettings{Mode: config.ModeWhole}}}
		},
	}
	for name, change := range tests {
		w := newWorld(t, "h100x8", config.Pool{})
		change(w)
		w.Tick(t.Context())
		calls := len(w.calls)
		if err := w.Manager.SwitchMode(t.Context(), gpuID, !w.mode.Current); !errors.Is(err, sharing.ErrDenied) ||
			w.view().ModeSwitchable || w.view().Error != "" || len(w.calls) != calls {
			t.Errorf("%s: %v, %+v", name, err, w.view())
		}
	}
	w := newWorld(t, "a30x2", config.Pool{AllowGPUReset: true})
	if w.Tick(t.Context()); !w.view().ModeSwitchable {
		t.Error("a GPU before Hopper does not change where a reset is allowed")
	}
	w = auto(t)
	if _, err := w.CreateGI(t.Context(), gpuID, mig.Place{Profile: w.table.Profiles()[0].ID, Start: 0}); err != nil {
		t.Fatal(err)
	}
	if w.Tick(t.Context()); w.view().Busy == "" {
		t.Error("idle with an instance made by hand")
	}
}

// The clocks go on where another Manager takes over, which finds a MIG mode of Kerf's as fresh where none did.
func TestClocksGoOn(t *testing.T) {
	w := auto(t)
	if err := w.Manager.SwitchMode(t.Context(), gpuID, true); err != nil {
		t.Fatal(err)
	}
	at := w.now
	o := w.Candidate(gpuID, "1g", mig.AnyStart, nil)
	if _, _, err := w.Ensure(t.Context(), gpuID, o.Share.MIG, "x"); err != nil {
		t.Fatal(err)
	}
	w.Tick(t.Context())
	w.now = w.now.Add(40 * time.Second)
	w.Tick(t.Context())
	old := w.Manager
	old.Stop(t.Context())
	if err := old.SwitchMode(t.Context(), gpuID, false); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("after the stop: %v", err)
	}
	w.startAfter(old)
	w.Tick(t.Context())
	if v := w.view(); !v.ModeSwitchedAt.Equal(at) || len(v.Instances) != 1 {
		t.Errorf("%+v, want turned %s", v, at)
	}
	w.now = w.now.Add(21 * time.Second)
	if w.Tick(t.Context()); len(w.have) != 0 {
		t.Error("the instance is kept for longer by another Manager")
	}
	w.start()
	if w.Tick(t.Context()); !w.view().ModeSwitchedAt.Equal(w.now) {
		t.Errorf("a new process: %+v", w.view())
	}
}
