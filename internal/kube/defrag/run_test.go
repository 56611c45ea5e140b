// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

// step is one round of a program that has just started.
func (f *fake) step(r *Runner) (Status, error) {
	s, err := r.Step(f.t.Context(), f.now)
	f.others()
	return s, err
}

// finish runs a defragmentation to its end. Only the request that is to fail may fail.
func (f *fake) finish(r *Runner) {
	f.t.Helper()
	for range 25 {
		s, err := f.step(r)
		if err != nil && f.writes != f.fail {
			f.t.Error(err)
		}
		if err == nil && s.Act == control.Finished {
			return
		}
	}
}

// The plan moves the two pods of node n0, which may be moved, and no pod of a closed namespace or with an annotation.
func TestReadAndPlan(t *testing.T) {
	f := newFake(t)
	c, err := Read(t.Context(), f.open(), Options{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	plan := c.State.Make()
	if len(plan.Steps) != 1 || len(plan.Steps[0].Moves) != 2 || plan.Steps[0].Freed != 2000 ||
		len(plan.Steps[0].Empty) != 2 || len(plan.Left) > 0 {
		t.Fatalf("plan %+v, not read: %q", plan, c.Left)
	}
	for _, m := range plan.Steps[0].Moves {
		if p := c.State.Pods[m.Pod]; p.Name != "a" && p.Name != "b" || m.Cost != 3660 || m.From.Node != 0 {
			t.Errorf("moves pod %s at a cost of %d from %s", p.Name, m.Cost, c.State.Text(m.From))
		}
	}
	for i := range c.State.Pods {
		p := &c.State.Pods[i]
		if (p.Name == "e") != (p.StayReason == "annotation kerf.dev/do-not-disrupt") {
			t.Errorf("pod %s stays: %q", p.Name, p.StayReason)
		}
	}
	if len(c.State.Pods) != len(f.tasks) {
		t.Errorf("%d pods of %d are read", len(c.State.Pods), len(f.tasks))
	}
	if fit := plan.Steps[0].Fits[0]; c.State.Text(fit.To) != "n0/0,1" {
		t.Errorf("the pending pod gets %s", c.State.Text(fit.To))
	}
}

// A program is killed at any of its writes, before or after the write has an effect. The next one continues. The
// pending pod runs, each moved pod is evicted once, no other pod is touched, and no cordon stays. MIG instances move
// like shares.
func TestSurvivesAKillAtEachWrite(t *testing.T) {
	const writes = 16 // more than it has
	for name, fresh := range map[string]func(*testing.T) *fake{"shares": newFake, "MIG": newMIGFake} {
		for fail := range writes {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/write %d/after %t", name, fail, after), func(t *testing.T) {
					f := fresh(t)
					f.fail, f.after = fail, after
					survives(t, f, fresh(t))
				})
			}
		}
	}
}

// survives runs a defragmentation that is killed once to its end. untouched is the cluster before.
func survives(t *testing.T, f, untouched *fake) {
	f.finish(&Runner{API: f.open()})
	slices.Sort(f.evicted)
	if !slices.Equal(f.evicted, []string{"a", "b"}) {
		t.Errorf("evicted %q", f.evicted)
	}
	if big := f.tasks[5]; big.node != "n0" || len(f.cordons["n0"]) > 0 {
		t.Errorf("the pod is on %q, cordons %v, record %v", big.node, f.cordons, f.record)
	}
	for _, i := range []int{2, 3, 4} {
		if task := f.tasks[i]; task.node != untouched.tasks[i].node {
			t.Errorf("pod %s is on %q", task.name, task.node)
		}
	}
}

// A leader is paused at one of its requests until another one has finished the defragmentation. Whatever it then does
// moves no pod again, and leaves no cordon.
func TestLateLeaderChangesNothing(t *testing.T) {
	for rounds := range 10 {
		for paused := 1; ; paused++ {
			f := newFake(t)
			other := &Runner{API: f.open()}
			for range rounds {
				if _, err := f.step(other); err != nil {
					t.Fatal(err)
				}
			}
			requests := 0
			late := &Runner{API: f.openFor(func() {
				if requests++; requests == paused {
					f.finish(other)
				}
			})}
			_, _ = late.Step(t.Context(), f.now)
			f.others()
			if requests < paused {
				break // it has no more requests
			}
			slices.Sort(f.evicted)
			if !slices.Equal(f.evicted, []string{"a", "b"}) || len(f.cordons["n0"]) > 0 {
				t.Errorf("round %d, paused at request %d: evicted %q, cordons %v", rounds, paused, f.evicted, f.cordons)
			}
		}
	}
}

// No pod moves while none may: a plan is made again and again, and nothing is written.
func TestMovesNothingWithoutConsent(t *testing.T) {
	f := newFake(t)
	for _, task := range f.tasks {
		task.namespace = "closed"
	}
	r := &Runner{API: f.open()}
	for range 3 {
		if s, err := f.step(r); err != nil || s.Begun {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if f.writes > 0 {
		t.Errorf("%d writes", f.writes)
	}
}

// No pod moves while heartbeats cannot be read: the agent of its new node may be away.
func TestMovesNothingWithoutHeartbeats(t *testing.T) {
	f := newFake(t)
	f.noLeases = true
	r := &Runner{API: f.open()}
	for range 3 {
		if s, err := f.step(r); err != nil || s.Begun || !strings.Contains(s.Reason, "list leases") {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if f.writes > 0 {
		t.Errorf("%d writes", f.writes)
	}
}

// A cordon of an administrator stays.
func TestKeepsCordonsOfOthers(t *testing.T) {
	f := newFake(t)
	r := &Runner{API: f.open()}
	record := control.Record{Node: "n0", GPUs: []string{uuid(0, 0), uuid(0, 1)}}
	for _, cordon := range []bool{true, false} {
		o, err := r.gpuNode(t.Context(), "n0")
		if err == nil {
			err = r.mark(t.Context(), record, o, cordon)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.cordons["n0"][0].By = "ops"
	}
	if left := f.cordons["n0"]; len(left) != 1 || left[0].By != "ops" {
		t.Errorf("cordons %v", left)
	}
}
