// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
)

// blocker is an instance or a place in the way of a wish that is not served.
type blocker struct {
	place   mig.Place
	holders []string
	uses    uses
	// after are the blockers (bits) that must end before this one exists: it is the place that an earlier wish waits
	// for. 0 for existing instances, and for those that the plan makes.
	after uint32
}

// explain answers the wishes that are not served: each with the place that is had soonest, for whom it waits, or
// that there is none. The place for which a wish waits is kept from those that come after it.
func (s *search) explain(answers []Answer, choices []choice) {
	var blockers []blocker
	for _, i := range s.busy {
		blockers = append(blockers, s.blocker(s.Have[i].Place, s.Have[i].Users, 0))
	}
	for i, c := range choices {
		if c.served && c.busy == 0 {
			blockers = append(blockers, s.blocker(c.place, []string{s.who(i)}, 0))
		}
	}
	for i, c := range choices {
		if c.served {
			continue
		}
		a, ending := s.wait(s.Wishes[i], blockers)
		if answers[i] = a; a.State == Pending {
			blockers = append(blockers, s.blocker(a.Place, []string{s.who(i)}, ending))
		}
	}
}

func (s *search) blocker(place mig.Place, holders []string, after uint32) blocker {
	return blocker{place, holders, s.usesOf(place), after}
}

// who is who a wish is for.
func (s *search) who(i int) string {
	if s.Wishes[i].For != "" {
		return s.Wishes[i].For
	}
	return fmt.Sprintf("wish %d", i+1)
}

// wait finds the place of w that becomes free when the fewest blockers end; of equal ones the one with the most
// valuable free space. The second result has a bit for each blocker that must end.
func (s *search) wait(w Wish, blockers []blocker) (Answer, uint32) {
	p, ok := s.Table.Profile(w.Profile)
	if !ok {
		return Answer{Reason: fmt.Sprintf("the GPU has no MIG profile %d", w.Profile)}, 0
	}
	if w.Start != Any && !slices.Contains(p.Starts, w.Start) {
		return Answer{Reason: fmt.Sprintf("%s cannot begin at %d", p.Name, w.Start)}, 0
	}
	a := s.why(p, blockers)
	if a.Reason == "" {
		a.Reason = fmt.Sprintf("%s at %d is taken", p.Name, w.Start) // there is room elsewhere, and a start is demanded
	}
	f := s.finder(p, blockers)
	best := f.find(w)
	if !best.found {
		a.Reason += "; in the way are instances that Kerf did not make: " + s.foreignNames()
		return a, 0
	}
	a.State, a.Place, a.BlockedBy = Pending, mig.Place{Profile: p.ID, Start: best.start}, holders(blockers, best.ending)
	return a, best.ending
}

// why says what is in the way of the profile now, which is the same for each wish for it.
func (s *search) why(p mig.Profile, blockers []blocker) Answer {
	if a, ok := s.reasons[p.ID]; ok {
		return a
	}
	now := s.foreign()
	for _, other := range blockers {
		if other.after == 0 {
			now, _ = s.Table.Try(now, other.place) // blockers that exist at the same time do not overlap
		}
	}
	a := Answer{State: Unmanaged, Fragmented: s.Table.Rearranged(now, p.ID), Reason: s.Table.UnfitReason(now, p.ID)}
	if s.reasons == nil {
		s.reasons = map[int]Answer{}
	}
	s.reasons[p.ID] = a
	return a
}

// foreign is what instances take that are not ours.
func (s *search) foreign() mig.Occupancy {
	o := mig.Occupancy{}
	for _, in := range s.Have {
		if !in.Managed {
			o, _ = s.Table.Try(o, in.Place) // part of what was added before
		}
	}
	return o
}

func (s *search) foreignNames() string {
	var names []string
	for _, in := range s.Have {
		if !in.Managed {
			names = append(names, fmt.Sprintf("%s at %d", s.Table.Name(in.Place.Profile), in.Place.Start))
		}
	}
	return strings.Join(names, ", ")
}

func holders(blockers []blocker, ending uint32) []string {
	var names []string
	for i, p := range blockers {
		if ending&(1<<i) != 0 {
			names = append(names, p.holders...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
