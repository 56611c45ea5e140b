// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// With read-only settings nothing is changed, whatever the pool wants, and each answer says why.
func TestReadOnlyChangesNothing(t *testing.T) {
	layout := func(l ...config.MIGLayout) config.Pool { return config.Pool{MIGLayouts: l, MIGIdleTTL: time.Minute} }
	for name, tc := range map[string]struct {
		pool  config.Pool
		on    bool // MIG mode
		waits bool // a warning says what is not as the pool says
	}{
		"demand":          {config.Pool{MIGIdleTTL: time.Minute}, false, false},
		"demand, in mode": {demandPool(), true, false},
		"a mode":          {layout(config.MIGLayout{Enabled: true}), false, true},
		"no mode":         {layout(config.MIGLayout{}), true, true},
		"a layout": {layout(config.MIGLayout{Enabled: true,
			Instances: []config.MIGCount{{Profile: "3g", Count: 2}}}), true, true},
		"a layout and mode": {layout(config.MIGLayout{Enabled: true,
			Instances: []config.MIGCount{{Profile: "3g", Count: 2}}}), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "h100x8", tc.pool)
			w.mode.NeedsReset, w.mode.Current, w.mode.Pending = false, tc.on, tc.on
			w.readOnly = true
			w.start()
			w.Tick(t.Context())
			w.now = w.now.Add(time.Hour)
			w.Tick(t.Context())
			v := w.view()
			if got := strings.Contains(v.PendingReason, sharing.ReadOnlySettings); got != tc.waits ||
				v.ModeSwitchable ||
				v.Error != "" {
				t.Errorf("%+v", v)
			}
			o := w.Candidate(gpuID, "1g", mig.AnyStart, nil)
			if o.Detail == "" || len(tc.pool.MIGLayouts) == 0 && strings.Count(o.Detail,
				sharing.ReadOnlySettings) != 1 {
				t.Errorf("offer %+v", o)
			}
			if err := w.Manager.SwitchMode(t.Context(), gpuID, !tc.on); !errors.Is(err, sharing.ErrDenied) {
				t.Errorf("turn: %v", err)
			}
			if v.MaxInstances != nil && !v.Fixed ||
				len(v.MaxInstances) != 0 { // no instance is there, so none is offered
				t.Errorf("offered: %v, fixed %v", v.MaxInstances, v.Fixed)
			}
			if len(w.calls) != 0 || w.mode.Current != tc.on || len(w.have) != 0 {
				t.Errorf("changed: %q, mode %v, %v", w.calls, w.mode.Current, w.have)
			}
		})
	}
}

// An instance that Kerf made before is still given, and is not destroyed when it is idle. Another one is not created.
func TestReadOnlyGivesWhatIsThere(t *testing.T) {
	w := newWorld(t, "h100x8", demandPool())
	w.Tick(t.Context())
	had := w.Candidate(gpuID, "3g", mig.AnyStart, nil).Share.MIG
	if _, _, err := w.Ensure(t.Context(), gpuID, had, "a"); err != nil {
		t.Fatal(err)
	}
	other := w.Candidate(gpuID, "1g", mig.AnyStart, []mig.Granted{{Instance: had, Who: "a"}}).Share.MIG
	w.readOnly, w.calls = true, nil
	w.start()
	w.Tick(t.Context())
	w.now = w.now.Add(time.Hour)
	w.Tick(t.Context())
	if o := w.Candidate(gpuID, "3g", mig.AnyStart, nil); o.Detail != "" || o.Share.MIG != had {
		t.Errorf("offer of what is there: %+v", o)
	}
	if _, warm, err := w.Ensure(t.Context(), gpuID, had, "b"); err != nil || !warm {
		t.Errorf("what is there: %v, %v", warm, err)
	}
	if o := w.Candidate(gpuID, "1g", mig.AnyStart, nil); !strings.Contains(o.Detail, sharing.ReadOnlySettings) ||
		!o.Never {
		t.Errorf("offer of another: %+v", o)
	}
	if v := w.view(); !v.Fixed || !maps.Equal(v.MaxInstances, map[string]int{had.Profile: 1}) {
		t.Errorf("view offers %v, fixed %v", v.MaxInstances, v.Fixed)
	}
	var rejected *sharing.ReadOnlyError
	if _, _, err := w.Ensure(t.Context(), gpuID, other, "b"); !errors.As(err, &rejected) {
		t.Errorf("another: %v", err)
	}
	if len(w.calls) != 0 || len(w.have) != 1 {
		t.Errorf("changed: %q, %v", w.calls, w.have)
	}
}
