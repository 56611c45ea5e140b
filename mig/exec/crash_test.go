// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// scene is a GPU that is about to change: a foreign instance, some of Kerf's, and a layout that needs some of them
// gone.
type scene struct {
	*world
	e              *Executor
	foreign        Instance
	before, wanted []mig.Place
}

func newScene(t testing.TB) *scene {
	t.Helper()
	w := newWorld(t, "h100x8")
	s := &scene{world: w, foreign: w.byHand(mig.Place{Profile: 19, Start: 6}), e: w.ready()}
	if _, err := w.apply(s.e, "2g.20gb", "1g.10gb", "1g.10gb"); err != nil {
		t.Fatal(err)
	}
	s.before = w.ours(s.e, s.foreign)
	return s
}

// fresh is a scene as s was when it was new.
func (s *scene) fresh() *scene {
	s.t.Helper()
	w := *s.world
	w.have = slices.Clone(s.have)
	w.refuse, w.refused = map[plan.Op]error{}, map[plan.Op]int{}
	return &scene{world: &w, e: w.ready(), foreign: s.foreign, before: s.before, wanted: s.wanted}
}

func (s *scene) act() ([]Own, error) { return s.apply(s.e, "3g.40gb", "1g.10gb") }

// end checks a process after its change was interrupted or failed: the GPU has all of the wanted state, or all of the
// state before.
func (s *scene) end(e *Executor, what string) {
	s.t.Helper()
	got := s.ours(e, s.foreign)
	if !slices.Equal(got, s.before) && !slices.Equal(got, s.wanted) {
		s.t.Fatalf("%s: %v is neither %v nor %v", what, got, s.before, s.wanted)
	}
}

// reference is a scene that is not acted in, and the number of events when the change runs whole.
func reference(t *testing.T) (r *scene, events int) {
	t.Helper()
	r = newScene(t)
	s := r.fresh()
	s.run(0, false, func() {
		if _, err := s.act(); err != nil {
			t.Fatal(err)
		}
	})
	events = s.events
	r.wanted = s.ours(s.e, s.foreign)
	if slices.Equal(r.wanted, s.before) || events < 12 {
		t.Fatalf("%d events to %v are no test", events, r.wanted)
	}
	return r, events
}

// Killed at each event, and its recovery killed at each of its events: the next one ends in one of the two states.
func TestKilledAnywhere(t *testing.T) {
	base, events := reference(t)
	finished, undone := 0, 0
	for at := 1; at <= events; at++ {
		for _, after := range []bool{false, true} {
			for again := 0; again == 0 || !after; again++ { // 0: the recovery is not killed
				s := base.fresh()
				if !s.run(at, after, func() { _, _ = s.act() }) {
					t.Fatalf("event %d did not come", at)
				}
				wasKilled := s.run(again, after, func() { _ = s.start().Recover(t.Context(), s.gpu(), false) })
				e := s.ready()
				s.end(e, fmt.Sprintf("killed at %d (after: %v), then at %d", at, after, again))
				if slices.Equal(s.ours(e, s.foreign), s.wanted) {
					finished++
				} else {
					undone++
				}
				if again == 0 { // and it goes on from there
					if _, err := s.apply(e, "3g.40gb", "1g.10gb"); err != nil ||
						!slices.Equal(s.ours(e, s.foreign), s.wanted) {
						t.Fatalf("the change after the recovery: %v", err)
					}
				}
				if again > 0 && !wasKilled {
					break
				}
			}
		}
	}
	if finished == 0 || undone == 0 {
		t.Errorf("%d finished, %d not: one of the two was not seen", finished, undone)
	}
}

// Each call fails, and the calls that would undo it fail too. The GPU reports an error, and gives and changes nothing.
// When the driver works again, a recovery repairs it. A process that is killed meanwhile changes nothing.
func TestUndoFailsToo(t *testing.T) {
	for _, op := range []plan.Op{plan.DestroyCI, plan.DestroyGI, plan.CreateGI, plan.CreateCI} {
		for _, why := range []error{sharing.ErrUnavailable, sharing.ErrExhausted} {
			for _, restart := range []bool{false, true} {
				s := newScene(t)
				s.refuse = map[plan.Op]error{op: why, plan.CreateGI: why, plan.CreateCI: why, plan.DestroyGI: why}
				_, err := s.act()
				wantErr(t, op.String(), err, why)
				if op != plan.DestroyCI && s.e.UnavailableReason(s.gpu()) == "" {
					t.Errorf("%s: no trouble after %v", op, err)
				}
				if trouble := s.e.UnavailableReason(s.gpu()); trouble != "" {
					_, err = s.e.Observe(t.Context(), s.gpu())
					wantErr(t, "look", err, sharing.ErrUnavailable)
					_, err = s.e.Apply(t.Context(), s.gpu(), nil)
					wantErr(t, "apply", err, sharing.ErrUnavailable)
					if err := s.e.Recover(t.Context(), s.gpu(), false); err == nil {
						t.Errorf("%s: recovered while the driver refuses", op)
					}
				}
				clear(s.refuse)
				if restart {
					s.e = s.start()
				}
				if err := s.e.Recover(t.Context(), s.gpu(), false); err != nil {
					t.Fatal(err)
				}
				s.wanted = s.before
				s.end(s.e, fmt.Sprintf("%s refused with %v", op, why))
			}
		}
	}
}

// Another program creates an instance at each moment, where Kerf wants one, with a compute instance or without. Kerf
// does not change it.
func TestByHandMeanwhile(t *testing.T) {
	base, events := reference(t)
	place := mig.Place{Profile: 9, Start: 0}
	if !slices.Contains(base.wanted, place) {
		t.Fatalf("%v", base.wanted)
	}
	met := 0
	for at := 1; at <= 2*events; at++ {
		s := base.fresh()
		gi := -1
		var cis []Compute
		s.meanwhileAt, s.meanwhile = at/2, func() {
			id, err := s.create(place)
			if err != nil {
				return
			}
			if gi = id; at%2 == 0 {
				c, _ := s.compute(gi)
				cis = []Compute{c}
			}
		}
		var err error
		s.run(0, false, func() { _, err = s.act() })
		if gi < 0 {
			if err != nil {
				t.Errorf("event %d: %v", at, err)
			}
			continue
		}
		met++
		if err == nil {
			t.Errorf("event %d: no error though the place is taken", at)
		}
		in, found := s.find(gi)
		if found != nil || !slices.Equal(in.CIs, cis) {
			t.Fatalf("event %d: the instance made by hand became %+v, %v", at, in, found)
		}
		// Once it is gone again, so is the trouble.
		in.CIs = nil
		if err := s.uncut(gi); err != nil {
			t.Fatal(err)
		}
		s.end(s.ready(), fmt.Sprintf("by hand at %d", at))
	}
	if met < 4 {
		t.Errorf("met %d times: too few to be a test", met)
	}
}

// The disk fails at each write: no call follows it, and a recovery with a good disk ends well.
func TestDiskFails(t *testing.T) {
	base, events := reference(t)
	for at := 1; at <= events; at++ {
		s := base.fresh()
		writes := -1
		s.meanwhileAt, s.meanwhile = at, func() {
			s.diskErr, writes = fmt.Errorf("full: %w", sharing.ErrUnavailable),
				s.writes
		}
		var err error
		s.run(0, false, func() { _, err = s.act() })
		if err == nil {
			continue // the last write was before
		}
		if s.writes > writes+1 {
			t.Errorf("event %d: %d calls after the disk had failed", at, s.writes-writes)
		}
		s.diskErr = nil
		e := s.ready()
		s.end(e, fmt.Sprintf("disk full at %d", at))
	}
	s := newScene(t)
	s.diskErr = sharing.ErrUnavailable
	before := s.writes
	if _, err := s.act(); !errors.Is(err, sharing.ErrUnavailable) || s.writes != before ||
		s.e.UnavailableReason(s.gpu()) != "" {
		t.Errorf("a full disk: %v after %d calls, trouble %q", err, s.writes-before, s.e.UnavailableReason(s.gpu()))
	}
}

// A journal that is truncated at any byte, or has a bit flipped, is not used: nothing is touched while there are
// instances.
func TestJournalCut(t *testing.T) {
	s := newScene(t)
	s.wanted = s.before
	s.run(9, true, func() { _, _ = s.act() })
	whole := slices.Clone(s.disk)
	want, err := decode(whole)
	if err != nil || want.Change == nil || want.Change.Doing == nil {
		t.Fatalf("%+v, %v", want, err)
	}
	have := fmt.Sprint(s.have)
	for n := 1; n < len(whole); n++ {
		s.disk = whole[:n]
		before := s.writes
		e := s.start()
		wantErr(t, "a cut journal", e.Recover(t.Context(), s.gpu(), false), sharing.ErrUnavailable)
		if s.writes != before || fmt.Sprint(s.have) != have || e.UnavailableReason(s.gpu()) == "" {
			t.Fatalf("cut at %d: %d calls, %v", n, s.writes-before, s.have)
		}
	}
	for i := range whole {
		flipped := slices.Clone(whole)
		flipped[i] ^= 1 << (i % 7)
		if got, err := decode(flipped); err == nil {
			if !reflect.DeepEqual(want, got) {
				t.Errorf("bit flipped at %d is believed: %+v", i, got)
			}
		}
	}
	// Emptied by hand, the GPU is Kerf's again.
	s.disk, s.have = whole[:len(whole)/2], nil
	e := s.ready()
	if _, err := s.apply(e, "7g.80gb"); err != nil {
		t.Error(err)
	}
}
