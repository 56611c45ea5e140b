// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// soak has the enumeration be of every moment, and not of every few.
var soak = flag.Bool("soak", false, "enumerate each moment of kills next to changes by hand")

// shared is a scene with a program on one of Kerf's instances, at a place that the layout has before and after.
type shared struct {
	*scene
	neighbour Instance
}

func newShared(t *testing.T) (base *shared, events int) {
	t.Helper()
	base = &shared{scene: newScene(t)}
	i := slices.IndexFunc(base.have, func(in Instance) bool { return base.table.Name(in.Place.Profile) == "2g.20gb" })
	if i < 0 {
		t.Fatalf("%v", base.have)
	}
	base.neighbour = base.have[i]
	s := base.again()
	s.run(0, false, func() {
		if _, err := s.act(); err != nil {
			t.Fatal(err)
		}
	})
	events = s.events
	base.wanted = s.ours(s.e, s.foreign)
	if slices.Equal(base.wanted, base.before) || !slices.Contains(base.wanted, base.neighbour.Place) || events < 12 {
		t.Fatalf("%d events from %v to %v are no test", events, base.before, base.wanted)
	}
	return base, events
}

// act is a change with that neighbor.
func (s *shared) act() ([]Own, error) { return s.apply(s.e, "2g.20gb", "3g.40gb") }

func (s *shared) again() *shared {
	out := &shared{s.fresh(), s.neighbour}
	out.holds = []mig.User{{GI: s.neighbour.GI, Who: "pod default/train"}}
	return out
}

// idle is a managed instance without a program; nil if there is none.
func (s *shared) idle() *Instance {
	i := slices.IndexFunc(s.have, func(in Instance) bool {
		return in.GI != s.foreign.GI && in.GI != s.neighbour.GI &&
			(slices.Contains(s.before, in.Place) || slices.Contains(s.wanted, in.Place))
	})
	if i < 0 {
		return nil
	}
	return &s.have[i]
}

// byAdmin are what an administrator's nvidia-smi does meanwhile; each returns the instance that is theirs by then, if
// one is.
func byAdmin() map[string]func(s *shared) *Instance {
	create := func(s *shared, compute bool) *Instance {
		for start := range 7 {
			at := mig.Place{Profile: 19, Start: start}
			if slices.Contains(s.before, at) || slices.Contains(s.wanted, at) {
				continue
			}
			if gi, err := s.create(at); err == nil {
				if compute {
					_, _ = s.compute(gi)
				}
				in, _ := s.find(gi)
				theirs := *in
				theirs.CIs = slices.Clone(in.CIs)
				return &theirs
			}
		}
		return nil
	}
	destroy := func(s *shared) (at mig.Place, gi int, ok bool) {
		in := s.idle()
		if in == nil {
			return mig.Place{}, 0, false
		}
		at, gi, in.CIs = in.Place, in.GI, nil
		return at, gi, s.uncut(gi) == nil
	}
	return map[string]func(s *shared) *Instance{
		"makes an instance": func(s *shared) *Instance { return create(s, true) },
		"makes half of one": func(s *shared) *Instance { return create(s, false) },
		"destroys one":      func(s *shared) *Instance { destroy(s); return nil },
		"empties one": func(s *shared) *Instance {
			if in := s.idle(); in != nil {
				in.CIs = nil
			}
			return nil
		},
		"makes one again": func(s *shared) *Instance {
			// GPU instances have no UUID, and the UUID of a created one is on disk only with the next write. Before
			// that, an instance that another program creates with the same ID cannot be distinguished.
			if in := s.idle(); in == nil || len(in.CIs) == 0 || !slices.Contains(s.before, in.Place) {
				return nil
			}
			at, _, ok := destroy(s)
			if !ok {
				return nil
			}
			theirs := s.byHand(at)
			theirs.CIs = slices.Clone(theirs.CIs)
			return &theirs
		},
		"sets another mode": func(s *shared) *Instance { s.mode.Pending = false; return nil },
	}
}

// An administrator changes the GPU at each moment of a change. The change is killed at each of its moments, or at none,
// and the next process recovers. Running programs go on, unmanaged instances stay unmanaged, and each instance on the
// GPU is reported. If neither the change nor its undo works, the GPU reports an error with its reason.
func TestByHandAtEachMoment(t *testing.T) {
	base, events := newShared(t)
	step := 4
	if *soak {
		step = 1
	}
	for name, act := range byAdmin() {
		t.Run(name, func(t *testing.T) {
			well, trouble, kept := 0, 0, 0
			for hand := 1; hand <= events; hand++ {
				for kill := hand % step; kill <= events; kill += step {
					s := base.again()
					var theirs *Instance
					s.meanwhileAt, s.meanwhile = hand, func() {
						// A call that destroys something by its ID affects an instance that another program created
						// with this ID.
						if s.ending {
							return
						}
						theirs = act(s)
					}
					s.run(kill, (kill+hand)%2 == 0, func() { _, _ = s.act() })
					s.meanwhile = nil
					what := fmt.Sprintf("by hand at %d, killed at %d", hand, kill)
					e := s.start()
					err := e.Recover(t.Context(), s.gpu(), false)
					s.same(what, s.neighbour)
					s.same(what, s.foreign)
					if theirs != nil {
						kept++
						s.same(what, *theirs)
					}
					if err != nil {
						trouble++
						_, look := e.Observe(t.Context(), s.gpu())
						if e.UnavailableReason(s.gpu()) == "" || !errors.Is(look, sharing.ErrUnavailable) {
							t.Fatalf("%s: not recovered (%v), and trouble %q, look %v", what, err,
								e.UnavailableReason(s.gpu()),
								look)
						}
						continue
					}
					well++
					s.reports(what, e, theirs)
				}
			}
			if well+trouble < 100 || well == 0 && trouble == 0 {
				t.Errorf("%d well, %d in trouble, %d made by hand: too few to be a test", well, trouble, kept)
			}
			if trouble > well/100 && (name == "destroys one" || name == "empties one") {
				t.Errorf("%d in trouble: what others have destroyed is not to come back", trouble)
			}
			t.Logf("%d well, %d in trouble, %d made by hand", well, trouble, kept)
		})
	}
}

// same checks that an instance is there as it was.
func (s *shared) same(what string, was Instance) {
	s.t.Helper()
	in, err := s.find(was.GI)
	if err != nil || in.Place != was.Place || !slices.Equal(in.CIs, was.CIs) {
		s.t.Fatalf("%s: %+v became %+v, %v", what, was, in, err)
	}
}

// reports checks that a process reports what the driver has, each instance once, with its owner.
func (s *shared) reports(what string, e *Executor, theirs *Instance) {
	s.t.Helper()
	mine, foreign, err := e.List(s.t.Context(), s.gpu())
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	var reported []int
	for _, o := range mine {
		reported = append(reported, o.GI)
		in, err := s.find(o.GI)
		if err != nil || in.Place != o.Place || (o.CI < 0) != (len(in.CIs) == 0) || theirs != nil && theirs.GI == o.GI {
			s.t.Fatalf("%s: %+v is taken for Kerf's, and is %+v, %v", what, o, in, err)
		}
	}
	for _, f := range foreign {
		reported = append(reported, f.GI)
	}
	var have []int
	for _, in := range s.have {
		have = append(have, in.GI)
	}
	slices.Sort(reported)
	slices.Sort(have)
	if !slices.Equal(reported, have) {
		s.t.Fatalf("%s: reported %v, and the driver has %v", what, reported, have)
	}
	if j := e.of(s.gpu()).journal; j.Change != nil {
		s.t.Fatalf("%s: recovered with a change left open: %+v", what, j.Change)
	}
}

// Another agent, with a separate directory, starts at each moment at which the first one was killed. It takes no
// instance as managed and changes nothing. The first one then recovers as without it.
func TestAnotherAgentAtEachMoment(t *testing.T) {
	base, events := newShared(t)
	for kill := 1; kill <= events; kill++ {
		for _, after := range []bool{false, true} {
			s := base.again()
			if !s.run(kill, after, func() { _, _ = s.act() }) {
				t.Fatalf("event %d did not come", kill)
			}
			what := fmt.Sprintf("killed at %d (after: %t)", kill, after)
			disk, have, writes := slices.Clone(s.disk), fmt.Sprint(s.have), s.writes
			s.disk = nil
			other := s.start()
			if err := other.Recover(t.Context(), s.gpu(), false); err != nil {
				t.Fatalf("%s: another agent: %v", what, err)
			}
			mine, foreign, err := other.List(t.Context(), s.gpu())
			if err != nil || len(mine) > 0 || len(foreign) != len(s.have) || fmt.Sprint(s.have) != have ||
				s.writes != writes {
				t.Fatalf("%s: another agent takes %v for its own, leaves %v to others, of %v, after %d calls: %v", what,
					mine, foreign, s.have, s.writes-writes, err)
			}
			s.disk = disk
			e := s.ready()
			s.same(what, s.neighbour)
			s.reports(what, e, nil)
			s.end(e, what)
		}
	}
}
