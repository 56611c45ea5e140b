// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
)

// bounded is a box for whose first GPU only a bound of contexts is known.
func (n node) bounded(t *testing.T, limit, bound sharing.Bytes) box {
	t.Helper()
	b := n.unseen(t, limit)
	if err := b.region.SetBound(b.gpu(0), bound); err != nil {
		t.Fatal(err)
	}
	return b
}

// counted waits until programs have counted so much.
func (b box) counted(t *testing.T, want sharing.Bytes) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); b.used() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are counted, want %d", b.used(), want)
		}
	}
}

// A context takes the bound and does not wait. What it does not need is another's once the agent has seen it.
func TestABoundThatFits(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.bounded(t, gib+context+64*mib, gib)
	first := b.begin(t, "several:1", "wait")
	if got := first.until(t); got != "1" {
		t.Fatalf("the first: %s", got)
	}
	b.counted(t, gib)
	// The second finds less room than the bound, takes it all, and waits until the agent has seen its context.
	second := b.begin(t, "several:1", "wait")
	b.counted(t, gib+context+64*mib)
	b.takesOver(t, context)
	if b.used() > 0 { // the second did not count yet
		b.takesOver(t, 2*context)
	}
	if got := second.until(t); got != "1" {
		t.Errorf("the second: %s", got)
	}
	for _, r := range []running{first, second} {
		_ = r.in.Close()
		r.end()
	}
}

// A program without free memory waits for a context that is being made with more memory than it needs. It is rejected
// only if none is free then.
func TestNoMemoryDuringABound(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.bounded(t, 2*context+64*mib, 2*gib)
	first := b.begin(t, "several:1", "wait")
	b.counted(t, 2*context+64*mib)
	second := b.begin(t, "gpu:0", "take:linear:67108864", "wait")
	b.takesOver(t, context)
	if got := first.until(t); got != "1" {
		t.Fatalf("the first: %s", got)
	}
	b.takesOver(t, 2*context)
	if got := second.until(t); got != "0" {
		t.Errorf("the second: %s", got)
	}
	// No process makes a context, and the memory does not fit: that is an error at once.
	began := b.region.Usage()[0].Refused
	if got := b.check(t, "several:1"); got != "0" {
		t.Errorf("a third context, without room: %s", got)
	}
	if u := b.region.Usage()[0]; u.Refused != began+1 {
		t.Errorf("%d calls were refused, want one more than %d", u.Refused, began)
	}
	for _, r := range []running{first, second} {
		_ = r.in.Close()
		r.end()
	}
}

// Bytes that move from the counters to the overhead count twice for a moment. A program that finds no room for a
// context then waits for the end of it.
func TestABoundWhileBytesMove(t *testing.T) {
	t.Parallel()
	b := start(t, "h200x8", "r580").bounded(t, 2*gib, gib)
	gpu := b.gpu(0)
	var r running
	err := b.region.Moving(func() error {
		if err := b.region.Correct(gpu, 2*gib, nil); err != nil {
			return err
		}
		r = b.begin(t, "several:1", "wait")
		b.foundNoRoom(t)
		return b.region.Correct(gpu, 0, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.until(t); got != "1" {
		t.Errorf("made: %s", got)
	}
	_ = r.in.Close()
	r.end()
}

// foundNoRoom waits until a program has begun to make a context and has stopped again.
func (b box) foundNoRoom(t *testing.T) {
	t.Helper()
	const least = 3 // steps: making, a reservation, not making
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if all := b.region.Counts(); len(all) == 1 && all[0].Quiet && all[0].Steps >= least {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no program has tried to make a context")
		}
	}
}

// A program waits for another one's context, also if the driver needs longer than the agent's interval.
func TestASlowDriverDuringABound(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.bounded(t, 2*context+64*mib, 2*gib)
	slow, err := control.ParseSettings([]string{"gpu=all", "latency.ctx-create=4s"})
	if err != nil {
		t.Fatal(err)
	}
	n.ask(t, control.Request{Command: control.CmdSet, Set: &slow}, nil)
	first := b.begin(t, "several:1", "wait")
	b.counted(t, 2*context+64*mib)
	second := b.begin(t, "several:1", "wait")
	b.takesOver(t, context)
	if got := first.until(t); got != "1" {
		t.Errorf("the first: %s", got)
	}
	b.takesOver(t, 2*context)
	if got := second.until(t); got != "1" {
		t.Errorf("the second, which waits longer than for an agent: %s", got)
	}
	for _, r := range []running{first, second} {
		_ = r.in.Close()
		r.end()
	}
}

// A context that turns out larger than the rest of the room is undone. If the region has seen what a context takes at
// least, none is tried in less room.
func TestLessRoomThanAContext(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.bounded(t, 64*mib, gib)
	r := b.begin(t, "several:1", "wait")
	b.takesOver(t, context)
	if got := r.until(t); got != "0" {
		t.Errorf("made: %s", got)
	}
	if held := n.holds(t, r.cmd.Process.Pid); held != 0 {
		t.Errorf("the driver holds %d for it", held)
	}
	_ = r.in.Close()
	r.end()
	again := n.bounded(t, 64*mib, gib)
	if err := again.region.SawContext(again.gpu(0), context); err != nil {
		t.Fatal(err)
	}
	n.countPeak(t)
	if got := again.check(t, "several:1"); got != "0" {
		t.Errorf("made in 64 MiB: %s", got)
	}
	if most := n.peak(t); most != 0 {
		t.Errorf("the driver gave %d", most)
	}
}

// A program that asks for the free memory gets it once the agent has seen its context.
func TestFreeMemoryDuringABound(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)
	b := n.bounded(t, 4*gib, gib)
	r := b.begin(t, "gpu:0", "info", "wait")
	b.takesOver(t, context)
	want := fmt.Sprintf("0 %d %d %d", 4*gib-context, 4*gib, 4*gib)
	if got := r.until(t); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_ = r.in.Close()
	r.end()
}

// Without an agent that sees contexts the bound stays reserved, and no process waits forever.
func TestABoundWithoutAnAgent(t *testing.T) {
	t.Parallel()
	b := start(t, "h200x8", "r580").bounded(t, 2*gib, gib)
	if got := b.check(t, "gpu:0", "take:linear:805306368", "take:linear:805306368",
		"info"); got != "0|2|0 268435456 2147483648 2147483648" {
		t.Errorf("%s", got)
	}
}

// A region that an older agent made gets its bound from this one.
func TestABoundInAnOlderRegion(t *testing.T) {
	t.Parallel()
	n := start(t, "h200x8", "r580")
	b := n.unseen(t, 2*gib)
	const words = 2 * libkerf.MaxDevices * 8 // the bytes that came later
	file := filepath.Join(b.dir, libkerf.LimitsFile)
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()-words)
	}
	if err != nil {
		t.Fatal(err)
	}
	grown, err := libkerf.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(grown.SetBound(b.gpu(0), gib), grown.Close()); err != nil {
		t.Fatal(err)
	}
	if u := b.region.Usage()[0]; u.Bound != gib || u.Context != libkerf.UnknownContext {
		t.Errorf("%+v", u)
	}
	r := b.begin(t, "several:1", "wait")
	if got := r.until(t); got != "1" || b.used() != gib {
		t.Errorf("made: %s, %d are counted", got, b.used())
	}
	_ = r.in.Close()
	r.end()
}
