// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each step with each outcome, as a person would draw it.
func TestNext(t *testing.T) {
	want := map[step][2]step{ // on success, on failure
		freeze:   {move, rejected},
		move:     {stop, giveBack},
		stop:     {check, giveBack},
		check:    {thaw, giveBack},
		thaw:     {unmark, giveBack},
		unmark:   {entered, entered},
		giveBack: {rejected, letGo},
		letGo:    {kept, kept},
		entered:  {entered, entered},
		rejected: {rejected, rejected},
		kept:     {kept, kept},
	}
	for s := freeze; s <= kept; s++ {
		if got := [2]step{next(s, true), next(s, false)}; got != want[s] {
			t.Errorf("after %s: %v, want %v", s, got, want[s])
		}
		if s.final() != slices.Contains([]step{entered, rejected, kept}, s) {
			t.Errorf("%s is final: %v", s, s.final())
		}
	}
}

// world is what a step changes. A step that fails has changed all, some or nothing of it.
type world struct {
	marked, freezing, inside, checked bool
}

func (w world) after(s step) world {
	switch s {
	case freeze:
		w.marked, w.freezing = true, true
	case move:
		w.inside = true
	case check:
		w.checked = true
	case thaw, letGo:
		w.freezing = false
	case unmark:
		w.marked = false
	case giveBack:
		w.inside, w.freezing = false, false
	case stop, entered, rejected, kept:
	}
	return w
}

// halves are what a step that failed, or in which the agent died, may have made of the world.
func (w world) halves(s step) []world {
	all := []world{w, w.after(s)}
	if s == freeze {
		half := w
		half.marked = true
		all = append(all, half)
	}
	if s == giveBack { // the process is out, the group is still frozen
		half := w
		half.inside = false
		all = append(all, half)
	}
	return all
}

// recovered is what the next agent makes of it.
func (w world) recovered() world {
	switch remedyFor(w.marked, w.freezing) {
	case finish:
		w.marked = false
	case undo:
		w.inside, w.freezing, w.marked = false, false, false
	case leave:
	}
	return w
}

// Whatever fails, and wherever the agent dies, the process is never frozen for good. It is in the group only if it was
// checked, or if the kernel did not let it out.
func TestNoPathLeavesAFrozenProcess(t *testing.T) {
	paths := 0
	var walk func(s step, w world, path string)
	walk = func(s step, w world, path string) {
		if s.final() {
			paths++
			// A kernel that does not thaw a group leaves nothing to do before a restart.
			if !strings.HasSuffix(path, letGo.String()+" failed") {
				wantSound(t, path, w, s == kept)
			}
			wantSound(t, path+", then a restart", w.recovered(), s == kept)
			return
		}
		for _, half := range w.halves(s) {
			wantSound(t, fmt.Sprintf("%s, death in %s", path, s), half.recovered(), s == letGo)
			walk(next(s, false), half, fmt.Sprintf("%s, %s failed", path, s))
		}
		walk(next(s, true), w.after(s), fmt.Sprintf("%s, %s", path, s))
	}
	walk(freeze, world{}, "start")
	if paths < 30 {
		t.Errorf("only %d paths", paths)
	}
}

// wantSound says what is wrong with the world. stuck is true where the process could not be taken out of the group.
func wantSound(t *testing.T, path string, w world, stuck bool) {
	t.Helper()
	if w.inside && w.freezing {
		t.Errorf("%s: frozen for good", path)
	}
	if w.inside && !w.checked && !stuck {
		t.Errorf("%s: in the group without a check", path)
	}
}

func TestRemedyFor(t *testing.T) {
	for _, tc := range []struct {
		marked, freezing bool
		want             remedy
	}{{false, false, leave}, {false, true, leave}, {true, false, finish}, {true, true, undo}} {
		if got := remedyFor(tc.marked, tc.freezing); got != tc.want {
			t.Errorf("marked %v, freezing %v: %v, want %v", tc.marked, tc.freezing, got, tc.want)
		}
	}
}
