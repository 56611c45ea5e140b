// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// An instance in use is not changed, whichever source reports the use. A source that cannot answer counts as a use.
func TestHeld(t *testing.T) {
	s := newScene(t)
	before := s.writes
	held := s.e.gpus[testGPU].mine[0]
	for _, hold := range []mig.User{{GI: held.GI}, {GI: mig.AnyInstance}, {GI: mig.AnyInstance, At: &held.Place}} {
		hold.Who = "pod default/train"
		steps := []plan.Step{{Op: plan.DestroyCI, Place: held.Place, GI: held.GI, CI: 0},
			{Op: plan.DestroyGI, Place: held.Place, GI: held.GI, CI: -1}}
		s.holds = []mig.User{hold}
		_, err := s.e.Apply(t.Context(), s.gpu(), steps)
		wantErr(t, "held", err, sharing.ErrConflict)
		s.holds, s.noWho = nil, errors.New("no answer")
		_, err = s.e.Apply(t.Context(), s.gpu(), steps)
		wantErr(t, "unknown", err, sharing.ErrUnavailable)
		s.noWho = nil
	}
	if s.writes != before || s.e.UnavailableReason(s.gpu()) != "" {
		t.Errorf("%d calls, trouble %q", s.writes-before, s.e.UnavailableReason(s.gpu()))
	}
	// A neighbour of one that is held can go.
	s.holds = []mig.User{{GI: held.GI, Who: "pod default/train"}}
	uuid := held.UUID
	if _, err := s.apply(s.e, "1g.10gb"); err != nil {
		t.Fatal(err)
	}
	in, err := s.find(held.GI)
	if err != nil || in.CIs[0].UUID != uuid {
		t.Errorf("the held instance became %+v, %v", in, err)
	}
}

// Who is asked last is asked before anything ends, and counts as all others do; not where instances are only made.
func TestHeldByWhoIsAskedLast(t *testing.T) {
	s := newScene(t)
	held := s.e.gpus[testGPU].mine[0]
	steps := []plan.Step{{Op: plan.DestroyCI, Place: held.Place, GI: held.GI, CI: 0},
		{Op: plan.DestroyGI, Place: held.Place, GI: held.GI, CI: -1}}
	for _, hold := range []mig.User{{GI: held.GI, Who: "container train"},
		{GI: mig.AnyInstance, Who: "container train"}} {
		before := s.writes
		s.last = listing{holds: []mig.User{hold}}
		_, err := s.e.Apply(t.Context(), s.gpu(), steps)
		wantErr(t, "held", err, sharing.ErrConflict)
		if s.last.asked == 0 || s.writes != before || !strings.Contains(err.Error(), "container train") {
			t.Errorf("asked %d times, %d calls, %v", s.last.asked, s.writes-before, err)
		}
		wantErr(t, "another mode", s.e.SetMode(t.Context(), s.gpu(), false, true), sharing.ErrConflict)
		s.last = listing{err: errors.New("no answer")}
		_, err = s.e.Apply(t.Context(), s.gpu(), steps)
		wantErr(t, "unknown", err, sharing.ErrUnavailable)
	}
	s.last = listing{}
	if _, err := s.e.Apply(t.Context(), s.gpu(), nil); err != nil || s.last.asked != 0 {
		t.Errorf("asked %d times where nothing ends, %v", s.last.asked, err)
	}
	if _, err := s.e.Apply(t.Context(), s.gpu(), steps); err != nil || s.last.asked == 0 {
		t.Errorf("asked %d times, %v", s.last.asked, err)
	}
}

// An instance that is taken after the change has begun is not destroyed.
func TestHeldMeanwhile(t *testing.T) {
	base, events := reference(t)
	kept := 0
	for at := 2; at <= events; at++ {
		s := base.fresh()
		var held Instance
		s.meanwhileAt, s.meanwhile = at, func() {
			i := slices.IndexFunc(s.have, func(in Instance) bool {
				return !slices.Contains(s.wanted, in.Place) && in.GI != s.foreign.GI && len(in.CIs) > 0
			})
			if i >= 0 {
				held = s.have[i]
				s.holds = []mig.User{{GI: held.GI, Who: "process 7"}}
			}
		}
		s.run(0, false, func() { _, _ = s.act() })
		if held.CIs == nil {
			continue
		}
		in, err := s.find(held.GI)
		// The one call that was under way when it was taken is for the driver to refuse.
		if err == nil && slices.Equal(in.CIs, held.CIs) {
			kept++
		}
		s.holds = nil
		s.end(s.ready(), fmt.Sprintf("taken at %d", at))
	}
	if kept < 3 {
		t.Errorf("kept %d times", kept)
	}
}

// A plan that was made of another state is refused before anything is done.
func TestStalePlans(t *testing.T) {
	s := newScene(t)
	mine := s.e.gpus[testGPU].mine[0]
	tests := map[string]plan.Step{
		"a foreign one":     {Op: plan.DestroyGI, Place: s.foreign.Place, GI: s.foreign.GI, CI: -1},
		"another id":        {Op: plan.DestroyGI, Place: mine.Place, GI: mine.GI + 9, CI: -1},
		"one that is there": {Op: plan.CreateGI, Place: mine.Place, GI: -1, CI: -1},
		"one without room":  {Op: plan.CreateGI, Place: mig.Place{Profile: 0, Start: 0}, GI: -1, CI: -1},
		"one at no place":   {Op: plan.CreateGI, Place: mig.Place{Profile: 9, Start: 3}, GI: -1, CI: -1},
	}
	before := s.writes
	for name, step := range tests {
		_, err := s.e.Apply(t.Context(), s.gpu(), []plan.Step{step})
		wantErr(t, name, err, sharing.ErrStale)
	}
	if s.writes != before {
		t.Errorf("%d calls", s.writes-before)
	}
}

// Another program destroys an instance and creates it again at the same place, with the same ID. Then it is unmanaged,
// before and after a restart.
func TestRemadeByHand(t *testing.T) {
	s := newScene(t)
	mine := s.e.gpus[testGPU].mine[0]
	in, err := s.find(mine.GI)
	if err != nil {
		t.Fatal(err)
	}
	in.CIs = nil
	if err := s.uncut(mine.GI); err != nil {
		t.Fatal(err)
	}
	if again := s.byHand(mine.Place); again.GI != mine.GI {
		t.Fatalf("id %d, want %d", again.GI, mine.GI)
	}
	for _, e := range []*Executor{s.e, s.ready()} {
		have, err := e.Observe(t.Context(), s.gpu())
		i := slices.IndexFunc(have, func(in plan.Instance) bool { return in.Place == mine.Place })
		if err != nil || i < 0 || have[i].Managed || !have[i].Ready {
			t.Errorf("%+v, %v", have, err)
		}
	}
}

// An unknown process uses an instance for a while: the driver returns IN_USE. If it stays, all is as before.
func TestInUse(t *testing.T) {
	s := newScene(t)
	s.refuse[plan.DestroyCI], s.refused[plan.DestroyCI] = fmt.Errorf("in use: %w", sharing.ErrUnavailable), attempts-1
	if _, err := s.act(); err != nil {
		t.Errorf("after %d refusals: %v", attempts-1, err)
	}
	s = newScene(t)
	uuids := fmt.Sprint(s.have)
	s.refuse[plan.DestroyCI] = fmt.Errorf("in use: %w", sharing.ErrUnavailable)
	before := s.writes
	_, err := s.act()
	wantErr(t, "in use for ever", err, sharing.ErrUnavailable)
	if fmt.Sprint(s.have) != uuids || s.writes != before+attempts || s.e.UnavailableReason(s.gpu()) != "" {
		t.Errorf("%v after %d calls, trouble %q", s.have, s.writes-before, s.e.UnavailableReason(s.gpu()))
	}
}

// A GPU that cannot do MIG has no instances, and is no trouble for that.
func TestGPUWithoutMIG(t *testing.T) {
	w := newWorld(t, "h100x8")
	w.noMIG = true
	e := w.start()
	if err := e.Recover(t.Context(), w.gpu(), false); err != nil || e.UnavailableReason(w.gpu()) != "" {
		t.Errorf("%v, trouble %q", err, e.UnavailableReason(w.gpu()))
	}
}

// After a reboot, mode and layout are set again, also if the next reboot interrupts that, or if it fails at first.
func TestReboot(t *testing.T) {
	for _, name := range []string{"h100x8", "a30x2"} {
		w := newWorld(t, name)
		e := w.ready()
		if _, err := w.apply(e, "2g", "1g"); err != nil {
			t.Fatal(err)
		}
		want := w.ours(e)
		w.reboot("boot 2")
		events := 0
		for at := 1; ; at++ {
			if !w.run(at, at%2 == 0, func() {
				if err := w.start().Recover(t.Context(), w.gpu(), false); err != nil {
					t.Fatal(err)
				}
				events = w.events
			}) {
				break
			}
			w.reboot(fmt.Sprintf("boot %d", at+2))
		}
		if got := w.ours(w.ready()); !slices.Equal(got, want) || events < 8 {
			t.Errorf("%s: %v after %d events, want %v", name, got, events, want)
		}
		w.reboot("boot 100")
		w.refuse[plan.CreateCI] = sharing.ErrExhausted
		e = w.start()
		wantErr(t, name, e.Recover(t.Context(), w.gpu(), false), sharing.ErrExhausted)
		if e.UnavailableReason(w.gpu()) == "" {
			t.Errorf("%s: no trouble", name)
		}
		clear(w.refuse)
		if got := w.ours(w.ready()); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestMode(t *testing.T) {
	ampere, hopper := newWorld(t, "a30x2"), newWorld(t, "h100x8")
	for _, w := range []*world{ampere, hopper} {
		w.mode.Current, w.mode.Pending = false, false
		e := w.ready()
		w.holds = []mig.User{{GI: mig.AnyInstance, Who: "process 7"}}
		wantErr(t, "held", e.SetMode(t.Context(), w.gpu(), true, true), sharing.ErrConflict)
		w.holds = nil
		if w.writes > 0 {
			t.Errorf("%d calls", w.writes)
		}
	}
	e := ampere.ready()
	wantErr(t, "without leave", e.SetMode(t.Context(), ampere.gpu(), true, false), sharing.ErrDenied)
	wantErr(t, "pending", e.SetMode(t.Context(), ampere.gpu(), true, true), sharing.ErrUnavailable)
	wantErr(t, "still pending", e.Recover(t.Context(), ampere.gpu(), false), sharing.ErrUnavailable)
	wantErr(t, "pending with leave", e.Recover(t.Context(), ampere.gpu(), true), sharing.ErrUnavailable)
	ampere.mode.Current = true // reset
	if _, err := ampere.apply(ampere.ready(), "2g"); err != nil {
		t.Error(err)
	}
	e = hopper.ready()
	if err := e.SetMode(t.Context(), hopper.gpu(), true, false); err != nil {
		t.Fatal(err)
	}
	hopper.reboot("boot 2")
	e = hopper.ready()
	if !hopper.mode.Current {
		t.Error("the mode is not back after a reboot")
	}
	if _, err := hopper.apply(e, "1g"); err != nil {
		t.Error(err)
	}
	wantErr(t, "off with an instance", e.SetMode(t.Context(), hopper.gpu(), false, false), sharing.ErrConflict)
	if _, err := hopper.apply(e); err != nil {
		t.Error(err)
	}
	if err := e.SetMode(t.Context(), hopper.gpu(), false, false); err != nil || hopper.mode.Current {
		t.Errorf("off: %v", err)
	}
	if hopper.ready(); hopper.mode.Current {
		t.Error("the mode came back by itself")
	}
}

func TestFiles(t *testing.T) {
	f := Files{t.TempDir()}
	if data, err := f.Load(testGPU); data != nil || err != nil {
		t.Errorf("nothing there: %q, %v", data, err)
	}
	if err := f.Save(testGPU, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if data, err := f.Load(testGPU); string(data) != "x" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []sharing.GPUID{"", "../x", "GPU-1/2"} {
		wantErr(t, string(name), f.Save(name, nil), sharing.ErrInvalid)
		_, err := f.Load(name)
		wantErr(t, string(name), err, sharing.ErrInvalid)
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "no directory", f.Save(testGPU, nil), sharing.ErrNotFound)
	if err := os.MkdirAll(filepath.Join(f.Path(testGPU), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := f.Load(testGPU)
	wantErr(t, "no file", err, sharing.ErrUnavailable)
}
