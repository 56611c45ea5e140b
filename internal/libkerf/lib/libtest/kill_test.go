// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

var kills = flag.Int("kills", 24, "how many processes to kill at random moments")

// killFamilies are the families of memory that several threads of kerfcheck can take at once.
func killFamilies() []string {
	return []string{
		"linear", "managed", "pitch", "async", "async-thread", "vmm", "array", "mipmap", "graph", "again", "again-v2",
		"capture",
		"capture-thread", "first-array",
	}
}

// Programs are killed at random moments. Their threads allocate and free with every family, or another program does the
// same. Others start, register and make their context, whose size is known or not. Their counts are all removed, and no
// process hangs.
func TestKilledAtAnyMoment(t *testing.T) {
	n := start(t, "h200x8", "r580")
	context := n.contextOf(t)

	b := n.cap(t, 46*mib) // a pool takes 32 MiB
	for _, f := range killFamilies() {
		if got := b.check(t, "gpu:0", "hammer:1:2:2097152:"+f); got != "0" {
			t.Errorf("%s: %s of 2 refused while there is room", f, got)
		}
	}
	known, unknown := n.cap(t, 3*context), n.cap(t, 3*context)
	for box, size := range map[*box]sharing.Bytes{&known: context, &unknown: libkerf.UnknownContext} {
		if err := box.region.SetContext(box.gpu(0), size); err != nil {
			t.Fatal(err)
		}
	}
	for i := range *kills {
		in := b
		switch i % 4 {
		case 0, 1:
			b.killAtWork(t)
		case 2:
			b.killOneOfTwo(t)
		case 3:
			if in = known; i%8 == 3 {
				in = unknown
			}
			in.killAtStart(t)
		}
		if i%3 == 0 {
			continue // the next one finds what it left
		}
		in.reclaim(t)
		if used := in.used(); used != 0 {
			t.Fatalf("after %d kills %d bytes are left", i+1, used)
		}
	}
	b.reclaim(t)
	if got := b.check(t, "gpu:0", "fill:linear:2097152"); got != "23" {
		t.Errorf("afterwards %s fit, want 23", got)
	}
	known.reclaim(t)
	if got := known.check(t, "several:3"); got != "3" {
		t.Errorf("afterwards %s contexts fit, want 3", got)
	}
	unknown.reclaim(t)
	if used := unknown.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// hammering is a program of so many threads that are about to take and give back, for ever or so often.
func (b box) hammering(t *testing.T, threads, rounds int, then ...string) running {
	t.Helper()
	families := killFamilies()
	work := fmt.Sprintf("hammer:%d:%d:2097152:%s", threads, rounds, families[rand.IntN(len(families))])
	r := b.begin(t, append([]string{"gpu:0", "wait", work}, then...)...)
	r.until(t)
	return r
}

// killWithin kills a program at some moment of so long.
func (r running) killWithin(t *testing.T, most time.Duration) {
	t.Helper()
	time.Sleep(time.Duration(rand.Int64N(int64(most))))
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end()
}

func (b box) killAtWork(t *testing.T) {
	t.Helper()
	r := b.hammering(t, 4, 0)
	r.goOn(t)
	r.killWithin(t, 4*time.Millisecond)
}

// killOneOfTwo kills one of two that count in the same region: the other one comes to its end.
func (b box) killOneOfTwo(t *testing.T) {
	t.Helper()
	other, r := b.hammering(t, 2, 40, "wait"), b.hammering(t, 4, 0)
	other.goOn(t)
	r.goOn(t)
	r.killWithin(t, 4*time.Millisecond)
	other.until(t)
	_ = other.in.Close()
	other.end()
}

func (b box) killAtStart(t *testing.T) {
	t.Helper()
	b.begin(t, "gpu:0", "hammer:1:0:2097152").killWithin(t, 20*time.Millisecond)
}
