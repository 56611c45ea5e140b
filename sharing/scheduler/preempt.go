// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"maps"
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

// mostTried bounds the sets of victims that are looked at for one GPU. Beyond it, fewer are found by sparing one after
// the other, which may miss the fewest.
const mostTried = 2000

// toll is what victims cost, what counts most first.
type toll struct {
	protected, pods int
	highest         int32
	cost            int64
}

func (t toll) compare(u toll) int {
	return cmp.Or(cmp.Compare(t.protected, u.protected), cmp.Compare(t.pods, u.pods), cmp.Compare(t.highest, u.highest),
		cmp.Compare(t.cost, u.cost))
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

// Victims are the pods of a node whose end frees capacity for the pod. It prefers the fewest protected ones, then the
// fewest, then the lowest highest priority, then the cheapest. For a share of one GPU it compares all sets on each GPU,
// as long as they are not too many. Else every candidate goes, and those that can be spared come back, the most
// important first. Only candidates below the pod's priority count. It changes nothing; none when there is no way.
func (j *judge) Victims(w PodRequest, name string, candidates []Victim, now time.Time) []Victim {
	return j.victims(w, name, candidates, WhatIf{}, now)
}

// victims is Victims after a change that is not made.
func (j *judge) victims(w PodRequest, name string, candidates []Victim, change WhatIf, now time.Time) []Victim {
	n := j.nodes[name]
	if _, trusted := trusted(n, now); !trusted {
		return nil
	}
	s := j.stateOf(n)
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
		return v.Priority >= w.Priority || len(s.held[v.UID]) == 0
	})
	byToll(candidates)
	enough := func(set []Victim) bool {
		return j.FitIf(w, name, WhatIf{Without: slices.Concat(change.Without, uids(set)), With: change.With},
			now).Reason == Fits
	}
	if len(candidates) == 0 || !enough(candidates) {
		return nil
	}
	best := spare(candidates, enough)
	if len(w.Containers) != 1 || w.Containers[0].Request.GPUs != 1 {
		return best
	}
	for _, g := range s.gpus {
		on := slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
			_, holds := s.held[v.UID].On(g.GPU.Ref())
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

// fewestOf is the best set of these pods that costs less than the one known; nil when there is none among the first so
// many.
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

// mostGangTried bounds the sets of victims that are looked at for a gang: each is as much work as the gang.
const mostGangTried = 100

// GangVictims returns the pods whose end frees capacity for all of these pods at once. It prefers sets with the fewest
// protected pods, then the fewest pods, then the lowest highest priority, then the lowest cost. No pod of a set can be
// left out. For each pod of the gang, largest first, it takes the result of Victims if no node has free capacity. Then
// it tries smaller sets, up to a bound. Pods that already end are going. The result is true if their end is enough, or
// if no pod must end.
func (q *gangs) GangVictims(wants []PodRequest, names []string, candidates []Victim, going []string,
	now time.Time) (victims []Victim, coming bool) {
	q.refresh()
	wants = largestFirst(wants)
	priority := slices.MinFunc(wants, func(x, y PodRequest) int { return cmp.Compare(x.Priority, y.Priority) }).Priority
	going = slices.Clone(going)
	for uid, p := range q.pods {
		if p.gone() {
			going = append(going, uid)
		}
	}
	enough := func(set []Victim) bool {
		return q.placedIf(wants, names, slices.Concat(going, uids(set)), now) == len(wants)
	}
	if enough(nil) {
		return nil, true
	}
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
		p := q.pods[v.UID]
		return v.Priority >= priority || p == nil || slices.Contains(going, v.UID) || !slices.Contains(names, p.node)
	})
	byToll(candidates)
	if len(candidates) == 0 || !enough(candidates) {
		return nil, false
	}
	best := q.oneByOne(wants, names, candidates, going, now)
	if best == nil || !enough(best) {
		best = candidates
	}
	best = spare(best, enough)
	if found := fewestOf(candidates, best, enough, mostGangTried); found != nil {
		best = found
	}
	return best, false
}

// oneByOne makes room for the pods one after the other; nil where one of them has no way.
func (q *gangs) oneByOne(wants []PodRequest, names []string, candidates []Victim, going []string,
	now time.Time) []Victim {
	var gone []Victim
	with := map[string][]PodRequest{}
	for _, w := range wants {
		away := slices.Concat(going, uids(gone))
		at := slices.IndexFunc(names, func(name string) bool {
			return q.FitIf(w, name, WhatIf{Without: away, With: with[name]}, now).Reason == Fits
		})
		var best []Victim
		on := 0
		for i, name := range names {
			if at >= 0 {
				break
			}
			left := slices.DeleteFunc(slices.Clone(candidates),
				func(v Victim) bool { return slices.Contains(away, v.UID) })
			if set := q.victims(w, name, left, WhatIf{Without: away, With: with[name]}, now); len(set) > 0 &&
				(best == nil || Cheaper(set, best) < 0) {
				best, on = set, i
			}
		}
		if at < 0 && best == nil {
			return nil
		} else if at < 0 {
			gone, at = append(gone, best...), on
		}
		with[names[at]] = append(with[names[at]], w)
	}
	byToll(gone)
	return gone
}

// Without makes the state treat pods as gone from their nodes, until the next call. A caller can then ask how a gang
// would fit.
func (b *ClusterState) Without(pods []string) {
	changed := slices.Concat(pods, slices.Collect(maps.Keys(b.away)))
	b.away = map[string]bool{}
	for _, uid := range pods {
		b.away[uid] = true
	}
	for _, uid := range changed {
		if p := b.pods[uid]; p != nil {
			b.node(p.node).change()
		}
	}
}
