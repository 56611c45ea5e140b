// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// contextOf is what the driver takes for one context of the first GPU.
func (n node) contextOf(t *testing.T) sharing.Bytes {
	t.Helper()
	probe := n.cap(t, 64*gib).begin(t, "several:1", "wait")
	probe.until(t)
	context := n.holds(t, probe.cmd.Process.Pid)
	_ = probe.in.Close()
	probe.end()
	return context
}

// unseen is a box on whose first GPU no context was seen.
func (n node) unseen(t *testing.T, limit sharing.Bytes) box {
	t.Helper()
	b := n.cap(t, limit)
	if err := b.region.SetContext(b.gpu(0), libkerf.UnknownContext); err != nil {
		t.Fatal(err)
	}
	return b
}

// takesOver does what the agent does once it has seen contexts: what waits is overhead from then on.
func (b box) takesOver(t *testing.T, overhead sharing.Bytes) {
	t.Helper()
	gpu := b.gpu(0)
	var seen []libkerf.Reserved
	for deadline := time.Now().Add(time.Minute); len(seen) == 0; time.Sleep(time.Millisecond) {
		for _, c := range b.region.Counts() {
			if c.Waiting[gpu] > 0 && c.Quiet {
				seen = append(seen, libkerf.Reserved{Process: c.Process, Bytes: c.Waiting[gpu]})
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no one waits for its context to be seen")
		}
	}
	if err := b.region.Correct(gpu, overhead, seen); err != nil {
		t.Fatal(err)
	}
}

// The first context of all takes all free memory, and its program waits until the agent has seen it. So does another
// process, and both have the free memory afterwards.
func TestTheFirstContextOfAll(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	limit := 2*context + 64*mib
	b := n.unseen(t, limit)
	first := b.begin(t, "several:1", "wait")
	for b.used() != limit {
		time.Sleep(time.Millisecond) // until's deadline bounds it
	}
	second := b.begin(t, "gpu:0", "take:linear:67108864", "wait")
	b.takesOver(t, context)
	if got := first.until(t); got != "1" {
		t.Fatalf("the first: %s", got)
	}
	if err := b.region.SetContext(b.gpu(0), context); err != nil {
		t.Fatal(err)
	}
	// The second may have been the one to wait for the agent, if it came in between.
	if b.used() == limit-context {
		b.takesOver(t, 2*context)
	}
	if got := second.until(t); got != "0" {
		t.Errorf("the second: %s", got)
	}
	if held := n.holds(t, 0); held != limit {
		t.Errorf("%d are held, want %d", held, limit)
	}
	if got := b.check(t, "several:1"); got != "0" {
		t.Errorf("a third context, without room: %s", got)
	}
	for _, r := range []running{first, second} {
		_ = r.in.Close()
		r.end()
	}
}

// One that turns out to be larger than the cap is undone.
func TestAFirstContextThatDoesNotFit(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	b := n.unseen(t, 64*mib)
	r := b.begin(t, "several:1", "wait")
	b.takesOver(t, 500*mib)
	if got := r.until(t); got != "0" {
		t.Errorf("made: %s", got)
	}
	if held := n.holds(t, r.cmd.Process.Pid); held != 0 {
		t.Errorf("the driver holds %d for it", held)
	}
	_ = r.in.Close()
	r.end()
}

// Who finds no room because more is put aside for a context than it takes gets it once the agent has seen the context.
func TestRoomThatAContextDoesNotTake(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	b := n.cap(t, 2*gib)
	if err := b.region.SetContext(b.gpu(0), gib); err != nil {
		t.Fatal(err)
	}
	r := b.begin(t, "gpu:0", "take:linear:1342177280", "wait")
	b.takesOver(t, n.contextOf(t))
	if got := r.until(t); got != "0" {
		t.Errorf("1.25 of 2 GiB next to a small context: %s", got)
	}
	_ = r.in.Close()
	r.end()
}

// Without an agent the program goes on, and more than a context stays put aside; the room of one that died is
// another's.
func TestAFirstContextWithoutAnAgent(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	b := n.unseen(t, 2*gib)
	dead := b.begin(t, "several:1", "wait")
	for b.used() != 2*gib {
		time.Sleep(time.Millisecond)
	}
	if err := dead.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	dead.end()
	if got := b.check(t, "gpu:0", "take:linear:805306368", "take:linear:805306368",
		"info"); got != "0|2|0 268435456 2147483648 2147483648" {
		t.Errorf("%s", got)
	}
}
