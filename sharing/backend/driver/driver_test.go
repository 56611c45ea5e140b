// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

var _ NVML = (*nvml.Library)(nil)

func three() []sharing.Share {
	return []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Memory: sharing.GiB},
		{GPU: sharing.GPURef{UUID: "B"}, Memory: 2 * sharing.GiB},
		{GPU: sharing.GPURef{UUID: "C"}, Memory: 3 * sharing.GiB}}
}

func refs(uuids ...sharing.GPUID) (all []sharing.GPURef) {
	for _, uuid := range uuids {
		all = append(all, sharing.GPURef{UUID: uuid})
	}
	return all
}

func TestApplySetsAndReadsBack(t *testing.T) {
	d := newFakeNVML()
	b := New(d, &tree{})
	if b.Level() != sharing.LevelDriver {
		t.Error(b.Level())
	}
	if err := b.Apply(t.Context(), dir, three(), nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range three() {
		have, _, err := b.Read(t.Context(), dir, l.GPU)
		if err != nil || have != l.Memory {
			t.Errorf("gpu %s: %d, %v; want %d", l.GPU, have, err, l.Memory)
		}
		if got := d.limits[l.GPU.String()+dir]; got.Soft != 0 {
			t.Errorf("gpu %s: soft limit %d", l.GPU, got.Soft)
		}
	}
	if err := b.Clear(t.Context(), dir, refs("A", "B", "C")); err != nil || len(d.limits) != 0 {
		t.Errorf("after Clear %v, %v", d.limits, err)
	}
	if _, _, err := b.Read(t.Context(), dir, sharing.GPURef{UUID: "A"}); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Read without a limit: %v", err)
	}
}

// Whatever goes wrong, and wherever, no limit stays behind, and the error tells.
func TestApplyTakesBackOnError(t *testing.T) {
	boom := fmt.Errorf("boom: %w", sharing.ErrLost)
	onB := func(gpu sharing.GPUID, hard sharing.Bytes) error {
		if gpu == "B" && hard != nvml.NoLimit {
			return boom
		}
		return nil
	}
	tests := map[string]struct {
		spoil func(*fakeNVML)
		want  error
	}{
		"set fails":                  {func(d *fakeNVML) { d.setErr = onB }, sharing.ErrLost},
		"set fails and takes effect": {func(d *fakeNVML) { d.setErr, d.failsAfter = onB, true }, sharing.ErrLost},
		"reads back larger": {
			func(d *fakeNVML) { d.round = func(b sharing.Bytes) sharing.Bytes { return b + 1 } },
			sharing.ErrUnavailable},
		"reads back none": {
			func(d *fakeNVML) { d.round = func(sharing.Bytes) sharing.Bytes { return nvml.NoLimit - 1 } },
			sharing.ErrUnavailable},
		"reads back more than slack less": {
			func(d *fakeNVML) { d.round = func(b sharing.Bytes) sharing.Bytes { return b - Slack - 1 } },
			sharing.ErrUnavailable},
		"reads back zero": {func(d *fakeNVML) { d.round = func(sharing.Bytes) sharing.Bytes { return 0 } },
			sharing.ErrUnavailable},
		"set without effect": {func(d *fakeNVML) {
			d.getErr = func(gpu sharing.GPUID) error {
				if gpu == "C" {
					return fmt.Errorf("no limit: %w", sharing.ErrUnsupported)
				}
				return nil
			}
		}, sharing.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newFakeNVML()
			tc.spoil(d)
			err := New(d, &tree{}).Apply(t.Context(), dir, three(), nil)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if name == "set without effect" {
				delete(d.limits, "C"+dir) // the getter denies it, so that it cannot be seen or cleared
			}
			if len(d.limits) != 0 {
				t.Errorf("limits stay: %v", d.limits)
			}
		})
	}
}

// The backend tries every GPU and then clears every one. It also clears the one that failed: its limit may be set.
func TestApplyClearsWhatItTouched(t *testing.T) {
	d := newFakeNVML()
	d.setErr = func(gpu sharing.GPUID, hard sharing.Bytes) error {
		if gpu == "B" && hard != nvml.NoLimit {
			return errors.New("boom")
		}
		return nil
	}
	d.failsAfter = true
	if err := New(d, &tree{}).Apply(t.Context(), "/d", three(), nil); err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"set A /d 0 1073741824", "set B /d 0 2147483648", "set C /d 0 3221225472",
		"set A /d 0 none", "set B /d 0 none", "set C /d 0 none",
	}
	if len(d.calls) == len(want) {
		slices.Sort(d.calls[:3])
		slices.Sort(d.calls[3:])
	}
	if d := cmp.Diff(want, d.calls); d != "" {
		t.Error(d)
	}
}

// One GPU does not wait for another: neither for its limit nor for its being cleared.
func TestGPUsAreServedBesideEachOther(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := newFakeNVML()
	var here atomic.Int32
	all := make(chan struct{})
	meet := func(sharing.GPUID, sharing.Bytes) error {
		if here.Add(1) == 3 {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return errors.New("the others did not come")
		}
	}
	b := New(d, &tree{})
	d.setErr = meet
	if err := b.Apply(ctx, dir, three(), nil); err != nil {
		t.Fatal(err)
	}
	here.Store(0)
	all = make(chan struct{})
	if err := b.Clear(ctx, dir, refs("A", "B", "C")); err != nil {
		t.Fatal(err)
	}
}

// When the undo fails too, both errors are returned, and the other GPUs are cleared all the same.
func TestApplyTellsOfAFailedUndo(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	d := newFakeNVML()
	d.setErr = func(gpu sharing.GPUID, hard sharing.Bytes) error {
		switch {
		case gpu == "C":
			return first
		case gpu == "B" && hard == nvml.NoLimit:
			return second
		}
		return nil
	}
	err := New(d, &tree{}).Apply(t.Context(), dir, three(), nil)
	if !errors.Is(err, first) || !errors.Is(err, second) {
		t.Errorf("%v, want both errors", err)
	}
	if _, left := d.limits["A"+dir]; left || len(d.limits) != 1 {
		t.Errorf("limits left: %v, want B alone", d.limits)
	}
}

// A program that runs keeps the caps that it has, and gets those that can be had, when one GPU fails.
func TestRenewTakesNothingOff(t *testing.T) {
	lost := errors.New("lost")
	d := newFakeNVML()
	b := New(d, &tree{})
	if err := b.Apply(t.Context(), dir, three()[:1], nil); err != nil {
		t.Fatal(err)
	}
	d.setErr = func(gpu sharing.GPUID, _ sharing.Bytes) error {
		if gpu == "C" {
			return lost
		}
		return nil
	}
	if err := b.Renew(t.Context(), dir, three(), nil); !errors.Is(err, lost) {
		t.Errorf("%v, want the error of C", err)
	}
	for _, l := range three()[:2] {
		if got, _, err := b.Read(t.Context(), dir, l.GPU); err != nil || got != l.Memory {
			t.Errorf("GPU %s: %+v, %v; want a cap of %d", l.GPU, got, err, l.Memory)
		}
	}
	d.setErr = nil
	if err := b.Renew(t.Context(), dir, three(), nil); err != nil {
		t.Error(err)
	}
}

// The undo must work although the caller's context, which ended the Apply, is over.
func TestApplyUndoesAfterTheContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newFakeNVML()
	d.setErr = func(gpu sharing.GPUID, hard sharing.Bytes) error {
		switch {
		case hard == nvml.NoLimit:
			return nil
		case gpu == "A":
			cancel()
			return nil
		}
		<-ctx.Done()
		return fmt.Errorf("%w (%w)", ctx.Err(), sharing.ErrUnavailable)
	}
	d.failsAfter = true
	err := New(d, &tree{}).Apply(ctx, dir, three(), nil)
	if !errors.Is(err, sharing.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	if len(d.limits) != 0 {
		t.Errorf("limits stay: %v", d.limits)
	}
}

func TestApplyRefuses(t *testing.T) {
	tests := map[string]struct {
		limits []sharing.Share
		tree   tree
		absent bool
		want   error
	}{
		"nothing":     {limits: nil},
		"a whole GPU": {limits: []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Whole: true}}},
		"zero": {limits: []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Memory: 0}},
			want: sharing.ErrInvalid},
		"no cap": {limits: []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Memory: backend.NoCap}},
			want: sharing.ErrInvalid},
		"twice": {limits: []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Memory: 1},
			{GPU: sharing.GPURef{UUID: "A"}, Memory: 2}}, want: sharing.ErrInvalid},
		"an instance": {limits: []sharing.Share{{GPU: sharing.Instance{Profile: "1g.10gb", Size: 1}.On("A"),
			Memory: 1}}, want: sharing.ErrInvalid},
		"root or no v2":  {limits: three(), tree: tree{checkErr: sharing.ErrInvalid}, want: sharing.ErrInvalid},
		"gone":           {limits: three(), tree: tree{gone: true}, want: sharing.ErrNotFound},
		"no such driver": {limits: three(), absent: true, want: sharing.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newFakeNVML()
			d.absent = tc.absent
			if err := New(d, &tc.tree).Apply(t.Context(), dir, tc.limits, nil); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if len(d.calls) != 0 {
				t.Errorf("the driver was called: %q", d.calls)
			}
		})
	}
}

func TestApplyAcceptsRoundingDown(t *testing.T) {
	d := newFakeNVML()
	d.round = func(b sharing.Bytes) sharing.Bytes { return b / Slack * Slack }
	asked := []sharing.Share{{GPU: sharing.GPURef{UUID: "A"}, Memory: 5*sharing.GiB + 12345},
		{GPU: sharing.GPURef{UUID: "B"}, Memory: backend.LeastLimit}}
	if err := New(d, &tree{}).Apply(t.Context(), dir, asked, nil); err != nil {
		t.Error(err)
	}
}

func TestClear(t *testing.T) {
	t.Run("soft limit first", func(t *testing.T) {
		d := newFakeNVML()
		d.limits["A/d"] = nvml.Limit{Soft: 5, Hard: 9}
		if err := New(d, &tree{}).Clear(t.Context(), "/d", refs("A")); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"set A /d 0 9", "set A /d 0 none"}, d.calls); d != "" {
			t.Error(d)
		}
	})
	t.Run("group is gone", func(t *testing.T) {
		d := newFakeNVML()
		if err := New(d, &tree{gone: true}).Clear(t.Context(), dir, refs("A")); err != nil ||
			len(d.calls) != 0 {
			t.Errorf("%v, %q", err, d.calls)
		}
	})
	t.Run("group goes away meanwhile", func(t *testing.T) {
		d, tr := newFakeNVML(), &tree{}
		d.limits["A"+dir] = nvml.Limit{Hard: 1}
		d.setErr = func(sharing.GPUID, sharing.Bytes) error { tr.gone = true; return sharing.ErrInvalid }
		if err := New(d, tr).Clear(t.Context(), dir, refs("A")); err != nil {
			t.Error(err)
		}
	})
	t.Run("lost gpu is reported, others are cleared", func(t *testing.T) {
		d := newFakeNVML()
		d.limits["A"+dir], d.limits["B"+dir] = nvml.Limit{Hard: 1}, nvml.Limit{Hard: 1}
		lost := func(gpu sharing.GPUID) error {
			if gpu == "A" {
				return sharing.ErrLost
			}
			return nil
		}
		d.getErr = lost
		d.setErr = func(gpu sharing.GPUID, _ sharing.Bytes) error { return lost(gpu) }
		err := New(d, &tree{}).Clear(t.Context(), dir, refs("A", "B"))
		if _, left := d.limits["B"+dir]; !errors.Is(err, sharing.ErrLost) || left {
			t.Errorf("%v, %v", err, d.limits)
		}
	})
	t.Run("driver without limits", func(t *testing.T) {
		d := newFakeNVML()
		d.absent = true
		if err := New(d, &tree{}).Clear(t.Context(), dir, refs("A")); err != nil {
			t.Error(err)
		}
	})
}

func TestProbe(t *testing.T) {
	denied := func(sharing.GPUID, sharing.Bytes) error { return fmt.Errorf("set: %w", sharing.ErrDenied) }
	tests := map[string]struct {
		misbehave func(*fakeNVML)
		tree      tree
		mig       bool
		want      backend.Answer
		remedy    string
		asked     int // probes made by two calls
	}{
		"works": {want: backend.Supported, asked: 1},
		"old driver": {misbehave: func(d *fakeNVML) { d.absent = true }, want: backend.NotSupported,
			remedy: "r615 or newer"},
		"no cgroup v2": {tree: tree{scratchErr: sharing.ErrUnsupported}, want: backend.NotSupported,
			remedy: "unified"},
		"mig":              {mig: true, want: backend.NotSupported, remedy: "MIG"},
		"no cgroup rights": {tree: tree{scratchErr: sharing.ErrDenied}, want: backend.NoAnswer, remedy: "root"},
		"not root": {misbehave: func(d *fakeNVML) { d.setErr = denied }, want: backend.NoAnswer, remedy: "root",
			asked: 2},
		"gpu refuses": {misbehave: func(d *fakeNVML) {
			d.setErr = func(sharing.GPUID, sharing.Bytes) error { return sharing.ErrUnsupported }
		}, want: backend.NotSupported, remedy: "release notes", asked: 1},
		"lost": {misbehave: func(d *fakeNVML) {
			d.setErr = func(sharing.GPUID, sharing.Bytes) error { return sharing.ErrLost }
		}, want: backend.NoAnswer, remedy: "reset", asked: 2},
		"reads back wrong": {misbehave: func(d *fakeNVML) {
			d.round = func(b sharing.Bytes) sharing.Bytes { return b * 2 }
		}, want: backend.NoAnswer, asked: 2},
		"cannot be cleared": {misbehave: func(d *fakeNVML) {
			d.setErr = func(_ sharing.GPUID, hard sharing.Bytes) error {
				if hard == nvml.NoLimit {
					return sharing.ErrUnavailable
				}
				return nil
			}
		}, want: backend.NoAnswer, asked: 2},
		"group stays": {tree: tree{removeErr: sharing.ErrUnavailable}, want: backend.NoAnswer, asked: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newFakeNVML()
			if tc.misbehave != nil {
				tc.misbehave(d)
			}
			b := New(d, &tc.tree)
			for range 2 {
				s := b.Probe(t.Context(), sharing.GPU{UUID: "A", MIG: tc.mig})
				if s.Answer != tc.want || s.OK() != (tc.want == backend.Supported) {
					t.Errorf("%s (%s), want %s", s.Answer, s.Reason, tc.want)
				}
				if s.OK() != (s.Reason == "") || !strings.Contains(s.Remedy, tc.remedy) {
					t.Errorf("reason %q, remedy %q", s.Reason, s.Remedy)
				}
			}
			if tc.tree.scratches != tc.asked || tc.tree.removed != tc.tree.scratches {
				t.Errorf("%d scratch groups made, %d removed; want %d", tc.tree.scratches, tc.tree.removed, tc.asked)
			}
		})
	}
}

func TestForgetAsksAgain(t *testing.T) {
	d, tr := newFakeNVML(), &tree{}
	d.absent = true
	b := New(d, tr)
	if s := b.Probe(t.Context(), sharing.GPU{UUID: "A"}); s.Answer != backend.NotSupported {
		t.Fatal(s)
	}
	d.absent = false
	b.Forget()
	if s := b.Probe(t.Context(), sharing.GPU{UUID: "A"}); !s.OK() {
		t.Error(s)
	}
}

// The real hierarchy: the root group and directories elsewhere are refused, a scratch group comes and goes.
func TestInHierarchy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: cgroups cannot be made")
	}
	h, err := cgroup.Default()
	if errors.Is(err, sharing.ErrUnsupported) {
		t.Skip("not supported:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := InHierarchy(h, func() string { return fmt.Sprintf("kerf-test-caps-%d", os.Getpid()) })
	for _, bad := range []string{h.Mount, h.Mount + "/", "/tmp", "", "relative"} {
		if err := g.Check(bad); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want ErrInvalid", bad, err)
		}
	}
	made, remove, err := g.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(made); err != nil {
		t.Error(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if err := g.Check(made); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Check of what is gone: %v, want ErrNotFound", err)
	}
}
