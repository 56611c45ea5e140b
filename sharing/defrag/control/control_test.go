// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

// world is a cluster in which controllers replace evicted pods. A scheduler places the pending pod once the GPUs take
// grants and the moved pods are gone.
type world struct {
	stored  control.Record
	pods    []control.Pod
	cordons []string
	evicted []string
	now     time.Time
	ended   []control.Act
	why     string
	// stuck has the replacements stay pending, refuse has evictions refused, and foreign keeps one GPU from a cordon.
	stuck, refuse, foreign bool
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.pods = []control.Pod{{Ref: control.Ref{Namespace: "ns", Name: "big", UID: "big"}}}
	var moves []control.Move
	for i := range 2 {
		uid := fmt.Sprintf("small-%d", i)
		w.pods = append(w.pods, control.Pod{Ref: control.Ref{Namespace: "ns", Name: uid, UID: uid}, Owner: "set",
			Node: "n0", Ready: true})
		moves = append(moves, control.Move{Pod: w.pods[i+1].Ref, Owner: "set", Node: "n0", Pool: "a", To: "n1"})
	}
	w.pods = append(w.pods, control.Pod{Ref: control.Ref{Namespace: "ns", Name: "other", UID: "other"}, Owner: "set",
		Node: "n2", Ready: true})
	w.stored = control.Begin(control.Record{}, w.pods[0].Ref, "n0", []string{"g0", "g1"}, moves, w.now)
	return w
}

// round is one round. It ends after so many of its two writes: the record, and the act.
func (w *world) round(writes int) control.Decision {
	d := control.Next(w.stored, control.View{Pods: w.pods, Cordoned: w.cordons}, control.Limits{}, w.now)
	if writes < 1 {
		return d
	}
	w.stored = d.Record
	if writes < 2 {
		return d
	}
	switch d.Act {
	case control.Cordon:
		if w.cordons = []string{"g0", "g1"}; w.foreign {
			w.cordons = w.cordons[:1]
		}
	case control.Uncordon:
		w.cordons = nil
	case control.Evict:
		if !w.refuse {
			w.evict(d.Move.Pod.UID)
		}
	case control.Finished, control.Failed:
		w.ended, w.why = append(w.ended, d.Act), d.Reason
	case control.Nothing:
	}
	return d
}

func (w *world) evict(uid string) {
	w.evicted = append(w.evicted, uid)
	for i := range w.pods {
		if w.pods[i].UID == uid {
			w.pods[i].Ending = true
		}
	}
}

// others lets kubelet, controllers and scheduler do one step.
func (w *world) others() {
	w.now = w.now.Add(time.Minute)
	for i := range w.pods {
		switch p := &w.pods[i]; {
		case p.Ending:
			p.UID, p.Name, p.Node, p.Ending, p.Ready = p.UID+"-again", p.Name+"-again", "", false, false
		case p.Node == "" && p.Owner != "" && !w.stuck:
			p.Node, p.Ready = "n1", true
			if len(w.cordons) == 0 {
				p.Node = "n0" // The scheduler would put it back.
			}
		case p.UID == "big" && len(w.cordons) == 0 &&
			!slices.ContainsFunc(w.pods, func(p control.Pod) bool { return p.Node == "n0" }):
			p.Node = "n0"
		}
	}
}

func (w *world) run(rounds int, writes func(round int) int) {
	for i := range rounds {
		w.round(writes(i))
		w.others()
	}
}

// A defragmentation is killed at any step, once or again and again. It goes on. Each pod is evicted once, no other pod
// is evicted, and the pending pod runs.
func TestSurvivesAKillAtEachStep(t *testing.T) {
	t.Parallel()
	const rounds = 40
	for at := range rounds {
		for writes := range 3 {
			for name, kill := range map[string]func(int) bool{
				"once":  func(i int) bool { return i == at },
				"often": func(i int) bool { return i <= at && i%2 == at%2 },
			} {
				w := newWorld()
				w.run(2*rounds, func(i int) int {
					if kill(i) {
						return writes
					}
					return 2
				})
				if !slices.Equal(w.evicted, []string{"small-0", "small-1"}) {
					t.Errorf("killed %s at round %d after %d writes: evicted %q", name, at, writes, w.evicted)
				}
				if w.pods[0].Node != "n0" || w.stored.Phase != control.Idle || len(w.cordons) > 0 {
					t.Errorf("killed %s at round %d after %d writes: pod is on %q, record %+v, cordons %q", name, at,
						writes, w.pods[0].Node, w.stored, w.cordons)
				}
			}
		}
	}
}

// It stops and uncordons the GPUs if a moved pod does not run again, or if a disruption budget refuses evictions. It
// also does so if the pod must not be moved any more. Nothing begins for an hour.
func TestStops(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*world)
		evicted []string
		why     string
	}{
		"replacement pending": {func(w *world) { w.stuck = true }, []string{"small-0"}, "did not run within 10m0s"},
		"eviction refused":    {func(w *world) { w.refuse = true }, nil, "did not end within 10m0s"},
		"cordoned by others":  {func(w *world) { w.foreign = true }, nil, "could be cordoned within 10m0s"},
		"not allowed": {func(w *world) { w.pods[1].StayReason = "no label" }, nil,
			"cannot be moved any more: no label"},
	} {
		w := newWorld()
		tc.change(w)
		w.run(30, func(int) int { return 2 })
		if !slices.Equal(w.evicted, tc.evicted) || !slices.Equal(w.ended, []control.Act{control.Failed}) ||
			!strings.Contains(w.why, tc.why) {
			t.Errorf("%s: evicted %q, ended %q: %s", name, w.evicted, w.ended, w.why)
		}
		if len(w.cordons) > 0 || w.stored.Phase != control.Idle {
			t.Errorf("%s: cordons %q, record %+v", name, w.cordons, w.stored)
		}
		stopped := w.stored.StoppedAt
		if control.MayBegin(w.stored, stopped.Add(59*time.Minute)) == "" ||
			control.MayBegin(w.stored, stopped.Add(time.Hour)) != "" {
			t.Errorf("%s: the next one does not begin after an hour", name)
		}
	}
}

// A pool has at most two evictions in an hour.
func TestEvictsSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.stored.Evictions = []control.Eviction{{Pool: "a", At: w.now.Add(-30 * time.Minute)},
		{Pool: "b", At: w.now.Add(-time.Minute)}, {Pool: "a", At: w.now.Add(-61 * time.Minute)}}
	w.run(25, func(int) int { return 2 })
	if !slices.Equal(w.evicted, []string{"small-0"}) {
		t.Errorf("evicted %q within the hour", w.evicted)
	}
	w.run(60, func(int) int { return 2 })
	if !slices.Equal(w.evicted, []string{"small-0", "small-1"}) || w.pods[0].Node != "n0" {
		t.Errorf("evicted %q, the pod is on %q", w.evicted, w.pods[0].Node)
	}
}

// It ends without another eviction once the pending pod runs or is gone, and passes pods that left by themselves.
func TestEndsEarly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"pod runs": func(w *world) { w.pods[0].Node = "n2" },
		"pod gone": func(w *world) { w.pods = w.pods[1:] },
	} {
		w := newWorld()
		w.round(2)
		change(w)
		w.run(10, func(int) int { return 2 })
		if len(w.evicted) > 0 || len(w.cordons) > 0 || !slices.Equal(w.ended, []control.Act{control.Finished}) {
			t.Errorf("%s: evicted %q, cordons %q, ended %q", name, w.evicted, w.cordons, w.ended)
		}
	}
	w := newWorld()
	w.pods = slices.Delete(w.pods, 1, 3)
	w.run(10, func(int) int { return 2 })
	if len(w.evicted) > 0 || w.pods[0].Node != "n0" {
		t.Errorf("evicted %q, the pod is on %q", w.evicted, w.pods[0].Node)
	}
}
