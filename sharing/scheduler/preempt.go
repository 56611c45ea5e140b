// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Victim is a pod that could be made to give way.
type Victim struct {
	UID      string
	Priority int32
	// Protected pods would break a disruption budget: one gives way only where there is no other way.
	Protected bool
	// Cost decides among equally many of equal priority, such as the seconds for which the pod has run; 0 or more.
	Cost int64
}

// mostTried bounds the sets of victims that are looked at for one GPU. Beyond it, fewer are found by sparing one after the
// other, which may miss the fewest.
const mostTried = 2000

// toll is what victims cost, what counts most first.
type toll struct {
	protected, pods int
	highest         int32
	cost            int64
}

func (t toll) compare(u toll) int {
	return cmp.Or(cmp.Compare(t.protected, u.protected), cmp.Compare(t.pods, u.pods), cmp.Compare(t.highest, u.highest), cmp.Compare(t.cost, u.cost))
}

func tollOf(set []Victim) toll {
	t := toll{pods: len(set), highest: math.MinInt32}
	for _, v := range set {
		if v.Protected {
			t.protected++
		}
		t.highest, t.cost = max(t.highest, v.Priority), t.cost+v.Cost
	}
	return t
}

// Victims are the pods of a node that make room for the pod when they are gone: the fewest protected ones, of those the
// fewest, of those the ones whose highest priority is lowest, then the cheapest. For a share of one GPU all sets on each
// GPU are compared, as long as they are not too many; else every pod goes that may, and those that can be spared come
// back, the most important first. Only candidates below the pod's priority count. It changes nothing; none when there is
// no way.
func (j *judge) Victims(w Want, name string, candidates []Victim, now time.Time) []Victim {
	return j.victims(w, name, candidates, WhatIf{}, now)
}

// victims is Victims after a change that is not made.
func (j *judge) victims(w Want, name string, candidates []Victim, change WhatIf, now time.Time) []Victim {
	n := j.nodes[name]
	if _, trusted := trusted(n, now); !trusted {
		return nil
	}
	s := j.books(n)
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
		return v.Priority >= w.Priority || len(s.held[v.UID]) == 0
	})
	byToll(candidates)
	enough := func(set []Victim) bool {
		return j.FitIf(w, name, WhatIf{Without: slices.Concat(change.Without, uids(set)), With: change.With}, now).Reason == Fits
	}
	if len(candidates) == 0 || !enough(candidates) {
		return nil
	}
	best := spare(candidates, enough)
	if len(w.Asks) != 1 || w.Asks[0].Request.GPUs != 1 {
		return best
	}
	for _, g := range s.gpus {
		on := slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
			_, holds := s.held[v.UID].On(g.GPU.UUID)
			return !holds
		})
		if found := fewestOf(on, best, enough, mostTried); found != nil {
			best = found
		}
	}
	return best
}

// spare takes those out of a set that is enough, the dearest first, without which it still is.
func spare(set []Victim, enough func([]Victim) bool) []Victim {
	out := slices.Clone(set)
	for i := len(out) - 1; i >= 0 && len(out) > 1; i-- {
		if less := slices.Delete(slices.Clone(out), i, i+1); enough(less) {
			out = less
		}
	}
	return out
}

// byToll sorts pods by what each costs, the cheapest first.
func byToll(all []Victim) {
	slices.SortFunc(all, func(x, y Victim) int {
		return cmp.Or(tollOf([]Victim{x}).compare(tollOf([]Victim{y})), cmp.Compare(x.UID, y.UID))
	})
}

// fewestOf is the best set of these pods that costs less than the one known; nil when there is none among the first so many.
func fewestOf(on, known []Victim, enough func([]Victim) bool, most int) []Victim {
	var best []Victim
	limit, tried := tollOf(known), 0
	for size := 1; size <= len(on) && (limit.protected > 0 || size <= limit.pods); size++ {
		sets(on, size, func(set []Victim) bool {
			tried++
			if t := tollOf(set); t.compare(limit) < 0 && enough(set) {
				best, limit = slices.Clone(set), t
			}
			return tried < most
		})
		if tried >= most {
			break
		}
	}
	return best
}

// sets calls do with every set of so many until it returns false.
func sets(of []Victim, size int, do func([]Victim) bool) {
	set := make([]Victim, 0, size)
	var next func(from int) bool
	next = func(from int) bool {
		if len(set) == size {
			return do(set)
		}
		for i := from; i <= len(of)-(size-len(set)); i++ {
			set = append(set, of[i])
			on := next(i + 1)
			set = set[:len(set)-1]
			if !on {
				return false
			}
		}
		return true
	}
	next(0)
}

func uids(set []Victim) []string {
	out := make([]string, len(set))
	for i, v := range set {
		out[i] = v.UID
	}
	return out
}

// Cheaper compares two sets of victims by what Victims goes by: below 0 when a costs less.
func Cheaper(a, b []Victim) int { return tollOf(a).compare(tollOf(b)) }
