// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const us = time.Microsecond

// sliced is an H200 in time slices, with the measured times, or without the time of changes.
func sliced(t *testing.T, measured bool) *Model {
	t.Helper()
	mach, err := machine.Load("h200x8")
	if err != nil {
		t.Fatal(err)
	}
	if !measured {
		mach, _ = mach.WithoutCosts().Shared(machine.SharingSlices)
	}
	return New(mach, testDriver(t, "r580"))
}

// whole is the grid of a kernel that takes all threads of an H200.
const wholeBlocks, wholeThreads = 2 * 132, 1024

// reaction is how long a program takes from the end of a kernel to the next launch.
const reaction = 10 * us

// runs lets programs run one kernel after the other, as one that waits for each. It returns when each ended.
func runs(t *testing.T, m *Model, all []process, each [2]time.Duration, to time.Duration) (ends [2][]time.Duration) {
	t.Helper()
	var wait [2]time.Duration
	start := func(i int, now time.Duration) {
		done, err := m.Run(all[i].id, Kernel{Context: all[i].ctx, Blocks: wholeBlocks, Threads: wholeThreads,
			Asked: each[i]}, now)
		if err != nil {
			t.Fatal(err)
		}
		wait[i] = done
	}
	for i := range all {
		start(i, sec)
	}
	for now := sec; now < to; {
		next := to
		for i, p := range all {
			at, err := m.Clock(p.id, wait[i], now)
			if err != nil {
				t.Fatal(err)
			}
			switch learns := at.Passed + reaction; {
			case at.Passed == 0:
				next = min(next, max(at.Soonest, now+us))
			case now < learns:
				next = min(next, learns)
			default:
				ends[i] = append(ends[i], at.Passed)
				start(i, now)
				next = min(next, now+us)
			}
		}
		now = next
	}
	return ends
}

// The figures of the report of the H200: kernels of 0.627 ms and of 5 ms, alone and next to others.
func TestFiguresOfTheH200(t *testing.T) {
	for name, test := range map[string]struct {
		first, second time.Duration
		// Milliseconds from one end to the next, on average, within 3%.
		every [2]float64
	}{
		"alone":                      {627 * us, 0, [2]float64{0.627, 0}},
		"two serving programs":       {627 * us, 627 * us, [2]float64{1.518, 1.518}},
		"two training programs":      {5 * ms, 5 * ms, [2]float64{11.0, 11.0}},
		"serving next to training":   {627 * us, 5 * ms, [2]float64{2.618, 0}},
		"a long kernel is no burden": {627 * us, time.Second, [2]float64{3.0, 1480}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sliced(t, true)
			all := []process{open(t, m, 0, 1, nil), open(t, m, 0, 2, nil)}
			if test.second == 0 {
				all = all[:1]
			}
			ends := runs(t, m, all, [2]time.Duration{test.first, test.second}, 7*sec)
			for i := range all {
				if test.every[i] == 0 {
					continue // not measured
				}
				got := (ends[i][len(ends[i])-1] - ends[i][0]).Seconds() * 1000 / float64(len(ends[i])-1)
				if want := test.every[i]; got < 0.97*want || got > 1.03*want {
					t.Errorf("program %d ends a kernel each %.3f ms, want %.3f", i+1, got, want)
				}
			}
		})
	}
}

func TestStreamsRunTogetherIfTheyHaveRoom(t *testing.T) {
	const all = 132 * 2048 / 1024
	for name, test := range map[string]struct {
		blocks []uint64 // of 1024 threads
		after  []time.Duration
		want   []time.Duration
	}{
		"two halves":       {[]uint64{all / 2, all / 2}, []time.Duration{0, 0}, []time.Duration{ms, ms}},
		"two that fill it": {[]uint64{all, all}, []time.Duration{0, 0}, []time.Duration{ms, 2 * ms}},
		"one stream":       {[]uint64{1, 1}, []time.Duration{0, ms}, []time.Duration{ms, 2 * ms}},
		"no room for a third": {[]uint64{all / 2, all / 2, 1}, []time.Duration{0, 0, 0}, []time.Duration{ms, ms,
			2 * ms}},
		"room behind a gap": {[]uint64{all, all}, []time.Duration{3 * ms, 0}, []time.Duration{4 * ms,
			ms}},
		"no room in a small gap": {[]uint64{all, all}, []time.Duration{ms / 2, 0}, []time.Duration{ms + ms/2,
			2*ms + ms/2}},
		"more than all": {[]uint64{3 * all, 1}, []time.Duration{0, 0}, []time.Duration{ms, 2 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sliced(t, false)
			p := open(t, m, 0, 1, nil)
			for i, blocks := range test.blocks {
				done, err := m.Run(p.id, Kernel{Context: p.ctx, Blocks: blocks, Threads: 1024, Asked: ms,
					After: sec + test.after[i]}, sec)
				if err != nil || done != sec+test.want[i] {
					t.Errorf("kernel %d: done after %v, %v; want %v", i, done-sec, err, test.want[i])
				}
			}
		})
	}
}

// Copies of two clients have half of the bandwidth each, also while a third has its turn. One alone has all of it.
func TestCopiesShareTheBandwidth(t *testing.T) {
	m := sliced(t, false)
	p, q, r := open(t, m, 0, 1, nil), open(t, m, 0, 2, nil), open(t, m, 0, 3, nil)
	k := Kernel{Context: r.ctx, Blocks: wholeBlocks, Threads: wholeThreads, Asked: sec}
	if _, err := m.Run(r.id, k, sec); err != nil {
		t.Fatal(err)
	}
	copied := func(p process, size time.Duration, now time.Duration) time.Duration {
		done, err := m.Copy(p.id, p.ctx, bandwidth*sharing.Bytes(size), 0, now)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	first, second := copied(p, 10*ms, sec), copied(q, 4*ms, sec)
	if _, err := m.Clock(p.id, first, sec+20*ms); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p    process
		v    time.Duration
		want time.Duration
	}{"first": {p, first, sec + 14*ms}, "second": {q, second, sec + 8*ms}} {
		if at, err := m.Clock(c.p.id, c.v, sec+20*ms); err != nil || at.Passed != c.want {
			t.Errorf("%s: %+v, %v; want it to end after %v", name, at, err, c.want-sec)
		}
	}
}

// queued is a kernel, with what its client's clock said of its end.
type queued struct {
	p             int
	done, soonest time.Duration
}

// askOften lets three clients of two equal GPUs queue the same kernels at random times, and asks one of the two about
// its clocks.
func askOften(t *testing.T, rnd *rand.Rand, asked, unasked []process) (all []queued, work, now time.Duration) {
	t.Helper()
	now = sec
	for range 40 {
		i := rnd.IntN(3)
		p, q := asked[i], unasked[i]
		k := Kernel{Context: p.ctx, Blocks: wholeBlocks, Threads: wholeThreads}
		k.Asked = time.Duration(1+rnd.IntN(6000)) * us
		done, err := p.m.Run(p.id, k, now)
		k.Context = q.ctx
		again, err2 := q.m.Run(q.id, k, now)
		if err != nil || err2 != nil || done != again {
			t.Fatalf("done at %v, %v; without questions %v, %v", done, err, again, err2)
		}
		at, err := p.m.Clock(p.id, done, now)
		if err != nil || at.Clock > now {
			t.Fatalf("a clock is at %v, time at %v; %v", at.Clock, now, err)
		}
		work += k.Asked
		all = append(all, queued{i, done, at.Soonest})
		for range rnd.IntN(5) {
			now += time.Duration(rnd.IntN(700)) * us
			if _, err := p.m.Clock(asked[rnd.IntN(3)].id, 0, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all, work, now
}

// What a clock says of a moment holds: it passes at Soonest or later. When and how often it is asked changes nothing. A
// clock is never ahead of time, and the GPU does not do more than it can.
func TestClocksKeepTheirWord(t *testing.T) {
	for seed := range uint64(30) {
		m, silent := sliced(t, seed%2 == 0), sliced(t, seed%2 == 0)
		var asked, unasked []process
		for i := range 3 {
			asked, unasked = append(asked, open(t, m, 0, i+1, nil)), append(unasked, open(t, silent, 0, i+1, nil))
		}
		all, work, now := askOften(t, rand.New(rand.NewPCG(seed, 21)), asked, unasked)
		var last time.Duration
		for _, q := range all {
			at, err := m.Clock(asked[q.p].id, q.done, now+sec)
			was, err2 := silent.Clock(unasked[q.p].id, q.done, now+sec)
			if err != nil || err2 != nil || at.Passed != was.Passed || at.Passed == 0 || at.Passed < q.soonest {
				t.Fatalf("seed %d: passed at %v, %v without questions, soonest at %v; %v, %v", seed, at.Passed,
					was.Passed, q.soonest, err, err2)
			}
			last = max(last, at.Passed)
		}
		if last-sec < work {
			t.Fatalf("seed %d: %v of work in %v", seed, work, last-sec)
		}
	}
}

// Clients of an MPS server have their turn together, and run at the same time if they have room.
func TestMPSInSlices(t *testing.T) {
	m := sliced(t, false)
	_, clients := mpsOn(t, m, 2, NoLimit, 50)
	other := open(t, m, 0, 99, nil)
	kernel := func(id ClientID, ctx uint64) time.Duration {
		done, err := m.Run(id, Kernel{Context: ctx, Blocks: wholeBlocks, Threads: wholeThreads, Asked: 4 * ms}, sec)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	var done []time.Duration
	for _, id := range clients {
		ctx, err := m.CreateContext(id, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, kernel(id, ctx))
	}
	last := kernel(other.id, other.ctx)
	for i, id := range clients {
		if at, err := m.Clock(id, done[i], sec+20*ms); err != nil || at.Passed != sec+6*ms {
			t.Errorf("client %d: %+v, %v", i, at, err)
		}
	}
	if at, err := m.Clock(other.id, last, sec+20*ms); err != nil || at.Passed != sec+8*ms {
		t.Errorf("the other: %+v, %v", at, err)
	}
}

// A client that ends gives its turn up at once, and its clock's end is an error.
func TestEndInATurn(t *testing.T) {
	m := sliced(t, false)
	p, q := open(t, m, 0, 1, nil), open(t, m, 0, 2, nil)
	for _, one := range []process{p, q} {
		if _, err := m.Run(one.id, Kernel{Context: one.ctx, Blocks: 1, Threads: 1, Asked: 10 * ms}, sec); err != nil {
			t.Fatal(err)
		}
	}
	m.Close(p.id, sec+3*ms)
	if _, err := m.Clock(p.id, sec, sec+3*ms); !errors.Is(err, wire.NotFound) {
		t.Errorf("a client that is gone: %v", err)
	}
	at, err := m.Clock(q.id, sec+10*ms, sec+20*ms)
	if err != nil || at.Passed != sec+12*ms {
		t.Errorf("%+v, %v; want the end 12 ms after the start", at, err)
	}
	if got, _, err := m.Utilization(0, sec+1000*ms); err != nil || got != 1 {
		t.Errorf("%d%% busy, %v", got, err)
	}
}

// The first of two equal programs ends one slice before the second.
func TestTimeSliceSetting(t *testing.T) {
	for setting, slice := range map[TimeSlice]time.Duration{
		TimeSliceDefault: 2 * ms, TimeSliceShort: ms, TimeSliceMedium: 4 * ms, TimeSliceLong: 8 * ms,
	} {
		m := sliced(t, false)
		wantErr(t, m.Apply([]int{0}, Change{TimeSlice: &setting}, 0), nil)
		for i, want := range []time.Duration{160*ms - slice, 160 * ms} {
			p := open(t, m, 0, 1+i, nil)
			done, err := m.Run(p.id, Kernel{Context: p.ctx, Blocks: wholeBlocks, Threads: wholeThreads,
				Asked: 80 * ms}, sec)
			wantErr(t, err, nil)
			defer func() {
				at, err := m.Clock(p.id, done, 2*sec)
				wantErr(t, err, nil)
				if got := at.Passed - sec; got != want {
					t.Errorf("%v: program %d ends after %v, want %v", setting, i, got, want)
				}
			}()
		}
	}
}
