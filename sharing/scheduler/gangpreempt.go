// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// mostGangTried bounds the sets of victims that are looked at for a gang: each is as much work as the gang.
const mostGangTried = 100

// GangVictims are the pods that make room for all of these pods at once when they are gone. Of what is found it is the set
// with the fewest protected ones, of those the fewest, of those whose highest priority is lowest, then the cheapest; none
// of them can be spared. For each pod of the gang, largest first, those are taken that Victims finds, where no node has
// room without; then other sets of fewer are looked for, as long as they are not too many. going are pods that end already:
// true where their end is enough, or where nobody's is needed.
func (q *gangs) GangVictims(wants []Want, names []string, candidates []Victim, going []string, now time.Time) (victims []Victim, coming bool) {
	q.refresh()
	wants = largestFirst(wants)
	priority := slices.MinFunc(wants, func(x, y Want) int { return cmp.Compare(x.Priority, y.Priority) }).Priority
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
func (q *gangs) oneByOne(wants []Want, names []string, candidates []Victim, going []string, now time.Time) []Victim {
	var gone []Victim
	with := map[string][]Want{}
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
			left := slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool { return slices.Contains(away, v.UID) })
			if set := q.victims(w, name, left, WhatIf{Without: away, With: with[name]}, now); len(set) > 0 && (best == nil || Cheaper(set, best) < 0) {
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

// Without has the books think pods away, which count as gone from their nodes, until it is called again. Others are asked
// meanwhile how a gang would fit then.
func (b *Books) Without(pods []string) {
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
