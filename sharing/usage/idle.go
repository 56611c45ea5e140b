// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Again is how long it is until a pod that was to be evicted, and is still there and idle, is to be once more.
const Again = time.Minute

// Sitter is a grant as the policy for idle ones looks at it.
type Sitter struct {
	Grant string
	// Group is shared by the containers of one pod, which are idle only together; empty for a process of no pod.
	Group string
	// Namespace is the pod's.
	Namespace string
	Idle      time.Duration
}

// IdlePolicy is what a pool says of idle grants.
type IdlePolicy struct {
	// After is 0 for no policy.
	After  time.Duration
	Evict  bool
	Except []string
}

// Sat says that a pod, or a process of no pod, is idle.
type Sat struct {
	// Grant is the first of the pod's.
	Grant string
	Idle  time.Duration
	// First is true when that is new. Evict is true when its pod is to be evicted.
	First, Evict bool
}

// Idler remembers who is idle. The zero value is ready for use.
type Idler struct{ since map[string]time.Duration }

// Step takes all grants, and returns those about whom there is something to do, in the order of their ids, and all who are
// idle, by the grant that is named for them.
func (k *Idler) Step(now time.Duration, p IdlePolicy, all []Sitter) (acts []Sat, idle []string) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Sitter) int { return cmp.Compare(a.Grant, b.Grant) })
	least, first := map[string]time.Duration{}, map[string]Sitter{}
	var order []string
	for _, s := range all {
		name := cmp.Or(s.Group, s.Grant)
		if _, seen := first[name]; !seen {
			first[name], least[name] = s, s.Idle
			order = append(order, name)
		}
		least[name] = min(least[name], s.Idle)
	}
	sits := func(name string) bool {
		return p.After > 0 && least[name] >= p.After && !slices.Contains(p.Except, first[name].Namespace)
	}
	maps.DeleteFunc(k.since, func(name string, _ time.Duration) bool { return !sits(name) })
	for _, name := range order {
		if !sits(name) {
			continue
		}
		s := first[name]
		idle = append(idle, s.Grant)
		due, before := k.since[name]
		act := Sat{Grant: s.Grant, Idle: least[name], First: !before, Evict: p.Evict && s.Group != "" && (!before || now >= due)}
		if act.First || act.Evict {
			if k.since == nil {
				k.since = map[string]time.Duration{}
			}
			k.since[name] = now + Again
			acts = append(acts, act)
		}
	}
	return acts, idle
}
