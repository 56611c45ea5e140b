// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// plainWorld is a GPU outside of MIG mode that changes its mode at once.
func plainWorld(t testing.TB) *world {
	w := newWorld(t, "h100x8")
	w.mode = Mode{}
	return w
}

func TestTurn(t *testing.T) {
	w := plainWorld(t)
	e := w.ready()
	w.holds = []mig.User{{GI: mig.AnyInstance, Who: "pod default/train"}}
	wantErr(t, "held", e.SwitchMode(t.Context(), w.gpu(), true, false), sharing.ErrConflict)
	if held, err := e.Users(t.Context(), w.gpu()); err != nil || len(held) != 1 || held[0] != "pod default/train" {
		t.Errorf("held by %v, %v", held, err)
	}
	w.holds, w.noWho = nil, errors.New("no answer")
	wantErr(t, "unknown", e.SwitchMode(t.Context(), w.gpu(), true, false), sharing.ErrUnavailable)
	w.noWho = nil
	if w.writes > 0 {
		t.Fatalf("%d calls", w.writes)
	}
	if err := e.SwitchMode(t.Context(), w.gpu(), true, false); err != nil || !w.mode.Current ||
		!e.SwitchedByKerf(w.gpu()) {
		t.Fatalf("%v, mode %+v, kept %t", err, w.mode, e.SwitchedByKerf(w.gpu()))
	}
	wantErr(t, "again", e.SwitchMode(t.Context(), w.gpu(), true, false), sharing.ErrStale)
	theirs := w.byHand(mig.Place{Profile: 19, Start: 6})
	wantErr(t, "off next to an instance", e.SwitchMode(t.Context(), w.gpu(), false, false), sharing.ErrConflict)
	in, err := w.find(theirs.GI)
	if err != nil {
		t.Fatal(err)
	}
	in.CIs = nil
	if err := w.uncut(theirs.GI); err != nil {
		t.Fatal(err)
	}
	if err := e.SwitchMode(t.Context(), w.gpu(), false, false); err != nil || w.mode.Current ||
		e.SwitchedByKerf(w.gpu()) {
		t.Fatalf("%v, mode %+v, kept %t", err, w.mode, e.SwitchedByKerf(w.gpu()))
	}
	if e = w.ready(); w.mode.Current || e.UnavailableReason(w.gpu()) != "" {
		t.Errorf("after a restart: mode %+v, trouble %q", w.mode, e.UnavailableReason(w.gpu()))
	}
}

// A GPU that would need a reset which does not come is left as it was, and stays usable.
func TestTurnTakesBack(t *testing.T) {
	w := plainWorld(t)
	w.mode.NeedsReset = true
	e := w.ready()
	wantErr(t, "without leave", e.SwitchMode(t.Context(), w.gpu(), true, false), sharing.ErrDenied)
	wantErr(t, "pending", e.SwitchMode(t.Context(), w.gpu(), true, true), sharing.ErrUnavailable)
	if w.mode.Current || w.mode.Pending || e.UnavailableReason(w.gpu()) != "" || e.SwitchedByKerf(w.gpu()) {
		t.Errorf("mode %+v, trouble %q, kept %t", w.mode, e.UnavailableReason(w.gpu()), e.SwitchedByKerf(w.gpu()))
	}
	w.refuseMode = true
	wantErr(t, "refused", e.SwitchMode(t.Context(), w.gpu(), true, true), sharing.ErrUnavailable)
	if e.UnavailableReason(w.gpu()) != "" {
		t.Errorf("trouble %q", e.UnavailableReason(w.gpu()))
	}
	w.refuseMode, w.refuseBack = false, true
	wantErr(t, "taken back in vain", e.SwitchMode(t.Context(), w.gpu(), true, true), sharing.ErrUnavailable)
	if e.UnavailableReason(w.gpu()) == "" {
		t.Error("no trouble while a mode is pending that was not wanted")
	}
	w.refuseBack = false
	if err := e.Recover(t.Context(), w.gpu(), false); err != nil || w.mode.Pending {
		t.Errorf("%v, mode %+v", err, w.mode)
	}
}

// Killed at each event of a change to MIG mode and back, and its recovery killed at each of its events: the GPU is in
// one of the two modes, usable, and a MIG mode that it is in is Kerf's to end.
func TestTurnKilledAnywhere(t *testing.T) {
	base := plainWorld(t)
	for _, on := range []bool{true, false} {
		for _, reset := range []bool{false, true} {
			done, left, at := 0, 0, 1
			for ; ; at++ {
				survived := true
				for _, after := range []bool{false, true} {
					for again := range 12 {
						one := *base
						w := &one
						e := w.ready()
						if !on {
							if err := e.SwitchMode(t.Context(), w.gpu(), true, false); err != nil {
								t.Fatal(err)
							}
						}
						w.mode.NeedsReset = reset
						killed := w.run(at, after, func() { _ = e.SwitchMode(t.Context(), w.gpu(), on, true) })
						survived = survived && !killed
						w.run(again, after, func() { _ = w.start().Recover(t.Context(), w.gpu(), false) })
						e = w.ready()
						what := fmt.Sprintf("to %t, with a reset %t, killed at %d (after: %t), then at %d", on, reset,
							at, after, again)
						if w.mode.Current != w.mode.Pending || e.SwitchedByKerf(w.gpu()) != w.mode.Current {
							t.Fatalf("%s: mode %+v, kept %t", what, w.mode, e.SwitchedByKerf(w.gpu()))
						}
						if w.mode.Current == on {
							done++
						} else {
							left++
						}
						if err := e.SwitchMode(t.Context(), w.gpu(), !w.mode.Current, true); (err == nil) == reset {
							t.Fatalf("%s: the next change: %v", what, err)
						}
					}
				}
				if survived {
					break
				}
			}
			if at < 5 || left == 0 || done == 0 && !reset {
				t.Errorf("to %t: %d events, %d done and %d not are no test", on, at, done, left)
			}
		}
	}
}

// A mode that an administrator ends is not set again at the next start if no managed instance was on the GPU, even if
// it is in use by then.
func TestModeEndedByHand(t *testing.T) {
	w := plainWorld(t)
	if err := w.ready().SwitchMode(t.Context(), w.gpu(), true, false); err != nil {
		t.Fatal(err)
	}
	w.mode = Mode{}
	w.holds = []mig.User{{GI: mig.AnyInstance, Who: "process 7"}}
	if e := w.ready(); w.mode.Current || e.UnavailableReason(w.gpu()) != "" || e.SwitchedByKerf(w.gpu()) {
		t.Errorf("mode %+v, trouble %q, kept %t", w.mode, e.UnavailableReason(w.gpu()), e.SwitchedByKerf(w.gpu()))
	}
}

// A reset has more let go than an end, and an end more than a new instance.
func TestTouch(t *testing.T) {
	for name, tt := range map[string]struct {
		reset bool
		act   func(w *world, e *Executor) error
		want  Touch
	}{
		"an instance is made": {false, func(w *world, e *Executor) error { _, err := w.apply(e, "1g"); return err },
			Makes},
		"one ends": {false, func(w *world, e *Executor) error {
			if _, err := w.apply(e, "1g"); err != nil {
				return err
			}
			w.touched = nil
			_, err := w.apply(e)
			return err
		}, Ends},
		"a mode ends": {false, func(w *world, e *Executor) error {
			return e.SetMode(t.Context(), w.gpu(), false,
				false)
		}, Ends},
		"with a reset": {true, func(w *world, e *Executor) error {
			_ = e.SetMode(t.Context(), w.gpu(), false,
				true)
			return nil
		}, Resets},
		"on demand": {false, func(w *world, e *Executor) error {
			return e.SwitchMode(t.Context(), w.gpu(), false,
				false)
		}, Ends},
		"on demand, a reset": {true, func(w *world, e *Executor) error {
			_ = e.SwitchMode(t.Context(), w.gpu(), false,
				true)
			return nil
		}, Resets},
	} {
		w := newWorld(t, "h100x8")
		w.mode.NeedsReset = tt.reset
		if err := tt.act(w, w.ready()); err != nil {
			t.Fatal(err)
		}
		if len(w.touched) != 1 || w.touched[0] != tt.want {
			t.Errorf("%s: %v, want %v", name, w.touched, tt.want)
		}
	}
}

// If the call itself resets a GPU before Hopper, its mode is current at once, with permission. A temporary obstacle to
// the reset leaves the mode pending. The next recovery sets it again, only with permission, and once no process uses
// the GPU.
func TestTheModeCallResets(t *testing.T) {
	ampere := func(resets bool) (*world, *Executor) {
		w := newWorld(t, "a100x8")
		w.mode.Current, w.mode.Pending, w.resets = false, false, resets
		e := w.ready()
		return w, e
	}
	w, e := ampere(true)
	wantErr(t, "without leave", e.SetMode(t.Context(), w.gpu(), true, false), sharing.ErrDenied)
	wantErr(t, "a turn without leave", e.SwitchMode(t.Context(), w.gpu(), true, false), sharing.ErrDenied)
	if w.writes > 0 || w.mode.Pending || len(w.touched) > 0 {
		t.Errorf("without leave: %d calls, %+v, touched %v", w.writes, w.mode, w.touched)
	}
	wantErr(t, "with leave", e.SetMode(t.Context(), w.gpu(), true, true), nil)
	if !w.mode.Current || e.UnavailableReason(w.gpu()) != "" || !slices.Equal(w.touched, []Touch{Resets}) {
		t.Errorf("with leave: %+v, trouble %q, touched %v", w.mode, e.UnavailableReason(w.gpu()), w.touched)
	}
	wantErr(t, "back", e.SetMode(t.Context(), w.gpu(), false, true), nil)
	wantErr(t, "a turn", e.SwitchMode(t.Context(), w.gpu(), true, true), nil)
	if !w.mode.Current || !e.SwitchedByKerf(w.gpu()) {
		t.Errorf("after a turn: %+v", w.mode)
	}

	w, e = ampere(false)
	wantErr(t, "open elsewhere", e.SetMode(t.Context(), w.gpu(), true, true), sharing.ErrUnavailable)
	w.resets = true
	calls := w.writes
	e = w.start()
	wantErr(t, "leave was taken away", e.Recover(t.Context(), w.gpu(), false), sharing.ErrUnavailable)
	w.holds = []mig.User{{GI: mig.AnyInstance, Who: "process 7"}}
	wantErr(t, "held", e.Recover(t.Context(), w.gpu(), true), sharing.ErrConflict)
	if w.writes != calls || !strings.Contains(e.UnavailableReason(w.gpu()), "process 7") {
		t.Errorf("%d calls, trouble %q", w.writes-calls, e.UnavailableReason(w.gpu()))
	}
	w.holds = nil
	wantErr(t, "once no one holds it", e.Recover(t.Context(), w.gpu(), true), nil)
	if !w.mode.Current || e.UnavailableReason(w.gpu()) != "" {
		t.Errorf("recovered: %+v, trouble %q", w.mode, e.UnavailableReason(w.gpu()))
	}
}

// A mode that could not be ended, because a process had the GPU open, is ended by a later recovery, with permission if
// it needs a reset. It is not ended if an instance exists, or if Kerf did not mean to end it.
func TestAModeThatDoesNotEndAtOnce(t *testing.T) {
	w := newWorld(t, "a100x8")
	w.resets = true
	e := w.ready()
	wantErr(t, "on", e.SetMode(t.Context(), w.gpu(), true, false), nil) // it has it
	w.resets = false
	wantErr(t, "open elsewhere", e.SetMode(t.Context(), w.gpu(), false, true), sharing.ErrUnavailable)
	wantErr(t, "without leave", w.start().Recover(t.Context(), w.gpu(), false), sharing.ErrUnavailable)
	w.resets = true
	w.byHand(mig.Place{Profile: 19, Start: 6})
	wantErr(t, "with an instance", w.start().Recover(t.Context(), w.gpu(), true), sharing.ErrConflict)
	if len(w.have) != 1 || !w.mode.Current {
		t.Fatalf("%v, %+v", w.have, w.mode)
	}
	w.have = nil
	e = w.start()
	wantErr(t, "with leave", e.Recover(t.Context(), w.gpu(), true), nil)
	if w.mode.Current || w.mode.Pending || e.UnavailableReason(w.gpu()) != "" {
		t.Errorf("%+v, trouble %q", w.mode, e.UnavailableReason(w.gpu()))
	}
	w.mode.Current, w.mode.Pending = true, true // by hand
	calls := w.writes
	wantErr(t, "a mode by hand", w.start().Recover(t.Context(), w.gpu(), true), nil)
	if !w.mode.Current || w.writes != calls {
		t.Errorf("a mode that was set by hand: %+v, %d calls", w.mode, w.writes-calls)
	}
}

// A process that is killed while it ends a mode leaves no error behind. If another program creates an instance before
// the next process starts, the instance stays unmanaged, and is reported.
func TestKilledWhileAModeEnds(t *testing.T) {
	kills := 0
	for kill := 1; ; kill++ {
		w := newWorld(t, "h100x8")
		e := w.ready()
		if !w.run(kill, false, func() { _ = e.SetMode(t.Context(), w.gpu(), false, false) }) {
			break
		}
		kills++
		if w.mode.Current {
			w.byHand(mig.Place{Profile: 19, Start: 6})
		}
		_, foreign, err := w.ready().List(t.Context(), w.gpu())
		if err != nil || len(foreign) != len(w.have) {
			t.Fatalf("killed at %d: %v of %v, %v", kill, foreign, w.have, err)
		}
	}
	if kills < 4 {
		t.Errorf("killed %d times: too few to be a test", kills)
	}
}
