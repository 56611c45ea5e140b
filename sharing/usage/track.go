// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Track is the values of one grant on one GPU, or on one MIG instance of it, at moments that are equally far apart.
type Track struct {
	GPU, Model string
	// Labels are by name: see Keys.
	Labels map[string]string
	Points []Point
}

// Point is one moment. It stands for the time since the one before.
type Point struct {
	// Share is the part of the GPU that it was granted, from 0 to 1, and Granted the memory. A point without a share is
	// left out: nothing was granted then.
	Share   float64
	Granted sharing.Bytes
	// Busy is the part of the GPU's time that it used, from 0 to 1, and Watts its part of the GPU's power. Each is set
	// only if it is known.
	Busy, Watts           float64
	BusyKnown, WattsKnown bool
	// Used is the memory that it held, where that is known.
	Used      sharing.Bytes
	UsedKnown bool
}

// Part adds the points of a track up, each of which stands for step. Share and memory of the record are means over the
// time in which it was granted. ok is false where there is no such time.
func (t Track) Part(step time.Duration) (p Part, ok bool) {
	r := Record{GPU: t.GPU, Model: t.Model, Memory: Histogram{}, Compute: Histogram{}}
	seconds := step.Seconds()
	var share, granted float64
	for _, at := range t.Points {
		if !(at.Share > 0) || math.IsInf(at.Share, 0) { // not a number is no share either
			continue
		}
		r.Seconds += seconds
		share += at.Share * seconds
		granted += float64(at.Granted) * seconds
		if at.BusyKnown {
			r.Known += seconds
			r.Busy += at.Busy * seconds
			r.Compute.add(100*at.Busy, seconds)
			if at.Busy == 0 {
				r.Idle += seconds
			}
		}
		if at.UsedKnown && at.Granted > 0 {
			r.Memory.add(100*float64(at.Used)/float64(at.Granted), seconds)
		}
		if at.WattsKnown {
			r.Powered += seconds
			r.Joules += at.Watts * seconds
		}
	}
	if r.Seconds == 0 {
		return Part{}, false
	}
	r.Share, r.GrantedBytes = min(share/r.Seconds, 1), uint64(granted/r.Seconds)
	return Part{Record: r, Labels: t.Labels}, true
}

// Again is how long it is until a pod that was to be evicted, and is still there and idle, is to be once more.
const Again = time.Minute

// IdleCandidate is a grant as the policy for idle ones looks at it.
type IdleCandidate struct {
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

// IdleTracker remembers who is idle. The zero value is ready for use.
type IdleTracker struct{ since map[string]time.Duration }

// Step takes all grants. It returns those that need an action, in the order of their ids. It also returns all idle
// ones, by the grant that is named for them.
func (k *IdleTracker) Step(now time.Duration, p IdlePolicy, all []IdleCandidate) (acts []Sat, idle []string) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b IdleCandidate) int { return cmp.Compare(a.Grant, b.Grant) })
	least, first := map[string]time.Duration{}, map[string]IdleCandidate{}
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
		act := Sat{Grant: s.Grant, Idle: least[name], First: !before, Evict: p.Evict && s.Group != "" &&
			(!before || now >= due)}
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

const (
	// step is the width of a bucket in percent, and most the bound of the one that has all that is more.
	step = 5
	most = 1000
)

// Histogram has seconds by upper bounds in percent: multiples of 5 up to 1000; 0 is nothing at all.
type Histogram map[int]float64

func (h Histogram) add(percent, seconds float64) {
	h[bound(percent)] += seconds
}

func bound(percent float64) int {
	if percent >= most {
		return most
	}
	return step * int(math.Ceil(max(percent, 0)/step))
}

// Merge adds another's seconds.
func (h Histogram) Merge(o Histogram) {
	for b, s := range o {
		h[b] += s
	}
}

// Seconds is how many there are in all.
func (h Histogram) Seconds() (sum float64) {
	for _, s := range h {
		sum += s
	}
	return sum
}

// Quantile is the bound below or at which the part q of the time was; 0 without any.
func (h Histogram) Quantile(q float64) int {
	want, sum := q*h.Seconds(), 0.0
	for _, b := range slices.Sorted(maps.Keys(h)) {
		if sum += h[b]; sum >= want && h[b] > 0 {
			return b
		}
	}
	return 0
}
