// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const gib = sharing.GiB

// use is a process of grant "a" whose pid is also its start time.
func use(pid int, n sharing.Bytes) Use {
	return Use{Process: Process{pid, uint64(pid)}, Grant: "a", Bytes: n, Known: true}
}

// one is a sample of one GPU, with a cap of 4 GiB for grant "a".
func one(action Action, uses ...Use) Sample {
	return Sample{GPUs: []GPU{{ID: sharing.GPURef{UUID: "g"}, Answered: true, Uses: uses}},
		Caps: []Cap{{Grant: "a", GPU: sharing.GPURef{UUID: "g"}, Memory: 4 * gib, Action: action}}}
}

// steps feeds the samples, a tenth of a second apart, and returns the victims' pids by step, -1 for a warning.
func steps(w *Watch, samples ...Sample) [][]int {
	var out [][]int
	for i, s := range samples {
		var pids []int
		for _, v := range w.Step(time.Unix(100, 0).Add(time.Duration(i)*100*time.Millisecond), s).Verdicts {
			pid := v.Victim.PID
			if v.Action == Warn {
				pid = -1
			}
			pids = append(pids, pid)
		}
		out = append(out, pids)
	}
	return out
}

// ended is what a process of grant "a" held that has ended.
func ended(pid int, n sharing.Bytes) Use {
	return Use{Process: Process{PID: pid}, Grant: "a", Bytes: n, Known: true, Ended: true}
}

// kept is a sample in which processes of grant "a" keep what others held.
func kept(s Sample, retainers ...int) Sample {
	for _, pid := range retainers {
		s.GPUs[0].Retainers = append(s.GPUs[0].Retainers, Retainer{Process{pid, uint64(pid)}, "a"})
	}
	return s
}

// TestEnded has memory of processes that have ended, with a cap of 4 GiB.
func TestEnded(t *testing.T) {
	inferred := ended(1, 5*gib)
	inferred.Inferred = true
	unclear := kept(one(Kill, ended(1, 5*gib)), 11)
	unclear.GPUs[0].Unclear = []GrantID{"a"}
	others := kept(one(Kill, ended(1, 5*gib)), 11)
	others.GPUs[0].Unclear = []GrantID{"b"}
	twice := func(s Sample) []Sample { return []Sample{s, s} }
	for name, tt := range map[string]struct {
		samples []Sample
		want    [][]int
	}{
		"all who keep it": {twice(kept(one(Kill, ended(1, 5*gib)), 11, 12)),
			[][]int{nil, {11, 12}}},
		"within the cap": {twice(kept(one(Kill, ended(1, 4*gib)), 11)), [][]int{nil, nil}},
		"it counts": {twice(kept(one(Kill, ended(1, gib), use(2, 4*gib)), 11)),
			[][]int{nil, {2}}},
		"the largest": {twice(kept(one(Kill, ended(1, 3*gib), use(2, 2*gib)), 11)),
			[][]int{nil, {11}}},
		"no process that keeps it is found": {twice(one(Kill, ended(1, 5*gib))), [][]int{nil, nil}},
		"it is on its way back":             {twice(one(Kill, ended(1, 5*gib), use(2, gib))), [][]int{nil, nil}},
		"who keeps it was not there before": {[]Sample{one(Kill, ended(1, 5*gib)),
			kept(one(Kill, ended(1, 5*gib)), 11), kept(one(Kill, ended(1, 5*gib)), 11)}, [][]int{nil, nil, {11}}},
		"those that are dying have given back": {[]Sample{kept(one(Kill, ended(1, 3*gib), use(2, 2*gib)), 11),
			kept(one(Kill, ended(1, 3*gib), use(2, 2*gib)), 11), kept(one(Kill, ended(1, 3*gib), use(2, 2*gib)), 11)},
			[][]int{nil, {11}, nil}},
		"it was not enough": {[]Sample{kept(one(Kill, ended(1, 6*gib), use(2, 5*gib)), 11),
			kept(one(Kill, ended(1, 6*gib), use(2, 5*gib)), 11), one(Kill, use(2, 5*gib))}, [][]int{nil, {11}, {2}}},
		"another one keeps it, too": {[]Sample{kept(one(Kill, ended(1, 5*gib), use(2, 2*gib)), 11),
			kept(one(Kill, ended(1, 5*gib), use(2, 2*gib)), 11), one(Kill, ended(1, 5*gib), use(2, 2*gib))},
			[][]int{nil, {11}, nil}},
		"warn":                              {twice(kept(one(Warn, ended(1, 5*gib)), 11)), [][]int{nil, {-1}}},
		"what is only inferred":             {twice(kept(one(Kill, inferred, use(2, gib)), 11)), [][]int{nil, {-1}}},
		"what is inferred next to too much": {twice(kept(one(Kill, inferred, use(2, 5*gib)), 11)), [][]int{nil, {2}}},
		"unclear":                           {twice(unclear), [][]int{nil, nil}},
		"another attachment is unclear":     {twice(others), [][]int{nil, {11}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, steps(New(), tt.samples...)); diff != "" {
				t.Error(diff)
			}
		})
	}
	// If no process of the grant keeps the memory, the watch waits for it, and then kills running ones.
	w, at := New(), time.Unix(100, 0)
	outside := one(Kill, ended(1, 5*gib), use(2, gib))
	for _, later := range []time.Duration{0, time.Second, ReturnTime - 1} {
		if d := w.Step(at.Add(later), outside); len(d.Verdicts) > 0 {
			t.Errorf("after %s: %+v", later, d.Verdicts)
		}
	}
	if d := w.Step(at.Add(ReturnTime), outside); len(d.Verdicts) != 1 || d.Verdicts[0].Victim != (Process{2, 2}) {
		t.Errorf("after %s: %+v", ReturnTime, d.Verdicts)
	}
	w = New()
	s := kept(one(Kill, ended(1, 5*gib)), 11, 12)
	w.Step(time.Unix(100, 0), s)
	d := w.Step(time.Unix(101, 0), s)
	v := Verdict{Action: Kill, GPU: sharing.GPURef{UUID: "g"}, Grant: "a", Victim: Process{11, 11}, Orphaned: true,
		Used: 5 * gib, Cap: 4 * gib, First: true, Delay: time.Second}
	next := v
	next.Victim, next.First = Process{12, 12}, false
	if diff := cmp.Diff([]Verdict{v, next}, d.Verdicts); diff != "" {
		t.Error(diff)
	}
}

func TestVerdicts(t *testing.T) {
	unknown := use(9, 0)
	unknown.Known = false
	other := use(7, 9*gib)
	other.Grant = "b"
	later := use(2, 3*gib)
	later.Start = 99
	again := use(1, 5*gib)
	again.Start = 77
	unanswered := one(Kill)
	unanswered.GPUs[0].Answered = false
	tests := map[string]struct {
		samples []Sample
		want    [][]int
	}{
		"one sample does nothing": {[]Sample{one(Kill, use(1, 5*gib)), one(Kill, use(1, 4*gib)),
			one(Kill, use(1, 5*gib))}, [][]int{nil, nil, nil}},
		"two do, once": {[]Sample{one(Kill, use(1, 5*gib)), one(Kill, use(1, 5*gib)),
			one(Kill, use(1, 5*gib))}, [][]int{nil, {1}, nil}},
		"at the cap is within":  {[]Sample{one(Kill, use(1, 4*gib)), one(Kill, use(1, 4*gib))}, [][]int{nil, nil}},
		"one byte over is over": {[]Sample{one(Kill, use(1, 4*gib+1)), one(Kill, use(1, 4*gib+1))}, [][]int{nil, {1}}},
		"the largest": {[]Sample{one(Kill, use(1, gib), use(2, 3*gib), use(3, gib)),
			one(Kill, use(1, gib), use(2, 3*gib), use(3, gib))}, [][]int{nil, {2}}},
		"of equals the latest": {[]Sample{one(Kill, later, use(3, 3*gib)), one(Kill, later, use(3, 3*gib))},
			[][]int{nil, {2}}},
		"until it is enough": {
			[]Sample{one(Kill, use(1, 5*gib), use(2, 6*gib), use(3, gib)),
				one(Kill, use(1, 5*gib), use(2, 6*gib), use(3, gib)), one(Kill, use(1, 5*gib), use(3, gib)),
				one(Kill, use(3, gib))},
			[][]int{nil, {2}, {1}, nil},
		},
		"what is dying counts as returned": {[]Sample{one(Kill, use(1, 5*gib), use(2, gib)),
			one(Kill, use(1, 5*gib), use(2, gib)), one(Kill, use(1, 5*gib), use(2, gib))}, [][]int{nil, {1}, nil}},
		"a newcomer is never named": {[]Sample{one(Kill, use(1, 5*gib)), one(Kill, use(1, gib), use(2, 6*gib))},
			[][]int{nil, {1}}},
		"a reused pid is a newcomer": {[]Sample{one(Kill, use(1, 5*gib)), one(Kill, again), one(Kill, again)},
			[][]int{nil, nil, {1}}},
		"unknown use": {[]Sample{one(Kill, use(1, 5*gib), unknown), one(Kill, use(1, 5*gib), unknown),
			one(Kill, use(1, 5*gib), unknown)}, [][]int{nil, nil, nil}},
		"a gap breaks the row": {[]Sample{one(Kill, use(1, 5*gib)), unanswered, one(Kill, use(1, 5*gib)),
			one(Kill, use(1, 5*gib))}, [][]int{nil, nil, nil, {1}}},
		"others do not count": {[]Sample{one(Kill, use(1, gib), other), one(Kill, use(1, gib), other)},
			[][]int{nil, nil}},
		"warn tells once": {[]Sample{one(Warn, use(1, 5*gib)), one(Warn, use(1, 5*gib)), one(Warn, use(1, 6*gib)),
			one(Warn), one(Warn, use(1, 5*gib)), one(Warn, use(1, 5*gib))}, [][]int{nil, {-1}, nil, nil, nil, {-1}}},
		"warn becomes kill": {[]Sample{one(Warn, use(1, 5*gib)), one(Warn, use(1, 5*gib)), one(Kill, use(1, 5*gib))},
			[][]int{nil, {-1}, {1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, steps(New(), tt.samples...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSpareNamesAgain(t *testing.T) {
	w := New()
	over := one(Kill, use(1, 5*gib))
	if got := steps(w, over, over); cmp.Diff([][]int{nil, {1}}, got) != "" {
		t.Fatal(got)
	}
	w.Spare(Process{1, 1})
	if got := steps(w, over); cmp.Diff([][]int{{1}}, got) != "" {
		t.Error("a process that was spared is not named again:", got)
	}
}

func TestStandingsAndDelay(t *testing.T) {
	w := New()
	at := time.Unix(100, 0)
	w.Step(at, one(Kill, use(1, gib)))
	if d := w.Step(at.Add(100*time.Millisecond), one(Kill, use(1, 6*gib))); d.Standings[0].Over ||
		!d.Standings[0].Known || len(d.Verdicts) != 0 {
		t.Errorf("after one sample: %+v", d)
	}
	d := w.Step(at.Add(120*time.Millisecond), one(Kill, use(1, 6*gib)))
	want := []Verdict{{Action: Kill, Reason: OverCap, GPU: sharing.GPURef{UUID: "g"}, Grant: "a", Victim: Process{1, 1},
		Used: 6 * gib, Cap: 4 * gib, First: true, Delay: 120 * time.Millisecond}}
	if diff := cmp.Diff(want, d.Verdicts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Standing{{Grant: "a", GPU: sharing.GPURef{UUID: "g"}, Known: true, Used: 6 * gib, Over: true,
		Action: Kill}}, d.Standings); diff != "" {
		t.Error(diff)
	}
	unknown := use(1, 0)
	unknown.Known = false
	if d := w.Step(at.Add(time.Second), one(Kill, unknown)); d.Standings[0].Known || d.Standings[0].Over {
		t.Errorf("use that is unknown: %+v", d.Standings)
	}
}

func TestInterval(t *testing.T) {
	costly := one(Warn, use(1, gib))
	costly.Cost = 50 * time.Millisecond
	hung := one(Warn)
	hung.Cost = 5 * time.Second
	strange := Sample{EndUnmanaged: true,
		GPUs: []GPU{{ID: sharing.GPURef{UUID: "g"}, Answered: true, Unmanaged: []Process{{5, 5}}}}}
	tests := map[string]struct {
		s    Sample
		want time.Duration
	}{
		"nothing to watch":   {Sample{}, 0},
		"idle":               {one(Kill), Idle},
		"only others":        {one(Kill, Use{Process: Process{8, 8}, Grant: "b", Bytes: gib, Known: true}), Idle},
		"in use":             {one(Kill, use(1, gib)), Default},
		"near the cap":       {one(Kill, use(1, 4*gib-1)), Fast},
		"seen over once":     {one(Kill, use(1, 5*gib)), Fast},
		"unknown":            {Sample{Caps: one(Kill).Caps}, Default},
		"cost":               {costly, time.Second},
		"cost is bounded":    {hung, Slowest},
		"a new process":      {strange, Fast},
		"unmanaged are none": {Sample{EndUnmanaged: true}, Idle},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := New()
			for range costSamples - 1 { // fewer expensive samples cause no wait.
				w.cost(tt.s.Cost)
			}
			if got := w.Step(time.Unix(1, 0), tt.s).Next; got != tt.want {
				t.Errorf("next after %v, want %v", got, tt.want)
			}
		})
	}
}

func TestUnmanagedProcesses(t *testing.T) {
	at := func(told bool, pids ...int) Sample {
		g := GPU{ID: sharing.GPURef{UUID: "g"}, Answered: told}
		for _, p := range pids {
			g.Unmanaged = append(g.Unmanaged, Process{p, uint64(p)})
		}
		return Sample{GPUs: []GPU{g}, EndUnmanaged: true}
	}
	off := at(true, 5)
	off.EndUnmanaged = false
	tests := map[string]struct {
		samples []Sample
		want    [][]int
	}{
		"two in a row":  {[]Sample{at(true, 5), at(true, 5), at(true, 5)}, [][]int{nil, {5}, nil}},
		"a gap":         {[]Sample{at(true, 5), at(false), at(true, 5)}, [][]int{nil, nil, nil}},
		"only reported": {[]Sample{off, off, off}, [][]int{nil, nil, nil}},
		"each":          {[]Sample{at(true, 5, 6), at(true, 5, 6)}, [][]int{nil, {5, 6}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, steps(New(), tt.samples...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A process of a grant with MPS that does not use MPS is over its cap, once two samples in a row show it.
func TestEscapes(t *testing.T) {
	out := use(1, gib)
	out.Escaped = true
	unanswered := out
	unanswered.Known = false
	again := out
	again.Start = 77
	for name, test := range map[string]struct {
		samples []Sample
		want    [][]int
	}{
		"two do, once":      {[]Sample{one(Kill, out), one(Kill, out), one(Kill, out)}, [][]int{nil, {1}, nil}},
		"whatever it holds": {[]Sample{one(Kill, unanswered), one(Kill, unanswered)}, [][]int{nil, {1}}},
		"not one": {[]Sample{one(Kill, out), one(Kill, use(1, gib)), one(Kill, out)},
			[][]int{nil, nil, nil}},
		"not another under its id": {[]Sample{one(Kill, out), one(Kill, again)}, [][]int{nil, nil}},
		"also by a policy to warn": {[]Sample{one(Warn, out), one(Warn, out), one(Warn, out)}, [][]int{nil, {1}, nil}},
		"not its neighbour": {[]Sample{one(Kill, out, use(2, gib)), one(Kill, out, use(2, gib))},
			[][]int{nil, {1}}},
		"named once for both": {[]Sample{one(Kill, Use{Process: out.Process, Grant: "a", Bytes: 9 * gib, Known: true,
			Escaped: true}), one(Kill, Use{Process: out.Process, Grant: "a", Bytes: 9 * gib, Known: true,
			Escaped: true})}, [][]int{nil, {1}}},
	} {
		if d := cmp.Diff(test.want, steps(New(), test.samples...)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	w := New()
	w.Step(time.Unix(100, 0), one(Kill, out))
	d := w.Step(time.Unix(101, 0), one(Kill, out))
	want := Verdict{Action: Kill, Reason: Escaped, GPU: sharing.GPURef{UUID: "g"}, Grant: "a", Victim: out.Process,
		Used: gib, Cap: 4 * gib, First: true, Delay: time.Second}
	if diff := cmp.Diff([]Verdict{want}, d.Verdicts); diff != "" {
		t.Error(diff)
	}
	w.Spare(out.Process)
	if got := w.Step(time.Unix(102, 0), one(Kill, out)).Verdicts; len(got) != 1 || got[0].First {
		t.Errorf("after it was spared: %+v", got)
	}
}

// An eviction is asked for at the second sample over the cap, and again after a while as long as it is.
func TestEvict(t *testing.T) {
	w, at := New(), time.Unix(100, 0)
	over := one(Evict, use(1, 5*gib))
	var asked []time.Duration
	for now := time.Duration(0); now <= 25*time.Second; now += time.Second {
		s := over
		if now == 13*time.Second {
			s = one(Evict, use(1, gib))
		}
		for _, v := range w.Step(at.Add(now), s).Verdicts {
			if v.Action != Evict || v.Victim != (Process{}) ||
				v.First != (now == time.Second || now == 15*time.Second) {
				t.Errorf("after %v: %+v", now, v)
			}
			asked = append(asked, now)
		}
	}
	if d := cmp.Diff([]time.Duration{time.Second, 11 * time.Second, 15 * time.Second, 25 * time.Second},
		asked); d != "" {
		t.Error(d)
	}
}

// One that escapes MPS has its pod evicted in the same way.
func TestEvictEscaped(t *testing.T) {
	u := use(1, gib)
	u.Escaped = true
	w, n := New(), 0
	for now := range 12 {
		n += len(w.Step(time.Unix(int64(now), 0), one(Evict, u)).Verdicts)
	}
	if n != 2 {
		t.Errorf("requested %d times in 12 s, want 2", n)
	}
}

// If a grant has slack, it is not killed for so much per process, up to the cap in all. The slack is reported.
func TestSlack(t *testing.T) {
	with := func(uses ...Use) Sample {
		s := one(Kill, uses...)
		s.Caps[0].Slack = gib
		return s
	}
	for name, tc := range map[string]struct {
		uses []Use
		want Action
	}{
		"one process, its slack": {[]Use{use(1, 5*gib)}, Warn},
		"one process, more":      {[]Use{use(1, 5*gib+1)}, Kill},
		"two processes":          {[]Use{use(1, 3*gib), use(2, 3*gib)}, Warn},
		"two processes, more":    {[]Use{use(1, 3*gib), use(2, 3*gib+1)}, Kill},
		"twice the cap in all": {[]Use{use(1, 2*gib), use(2, 2*gib), use(3, 2*gib), use(4, gib), use(5, gib)},
			Warn},
		"more than twice the cap": {[]Use{use(1, 2*gib), use(2, 2*gib), use(3, 2*gib), use(4, gib), use(5, gib+1)},
			Kill},
		"another attachment's processes": {[]Use{use(1, 5*gib+1), {Process: Process{2, 2}, Grant: "b", Bytes: 1,
			Known: true}}, Kill},
	} {
		t.Run(name, func(t *testing.T) {
			w := New()
			w.Step(time.Unix(1, 0), with(tc.uses...))
			d := w.Step(time.Unix(2, 0), with(tc.uses...))
			if len(d.Verdicts) != 1 || d.Verdicts[0].Action != tc.want || d.Standings[0].Action != tc.want {
				t.Errorf("%+v, want action %d", d, tc.want)
			}
		})
	}
	// A process with a warning is killed if it continues.
	w := New()
	got := steps(w, with(use(1, 5*gib)), with(use(1, 5*gib)), with(use(1, 6*gib)))
	if d := cmp.Diff([][]int{nil, {-1}, {1}}, got); d != "" {
		t.Error(d)
	}
}

// A sample is late while a program makes its context, and the program may be over its cap right after. The next sample
// comes soon; only samples that are expensive again and again come less often.
func TestOneLateSampleDoesNotDelayTheNext(t *testing.T) {
	w := New()
	late := one(Kill, use(1, gib))
	late.Cost = 60 * time.Millisecond
	for i, want := range []time.Duration{Default, Default, Default, 1200 * time.Millisecond} {
		if got := w.Step(time.Unix(int64(i), 0), late).Next; got != want {
			t.Errorf("after %d late samples the next one comes in %v, want %v", i+1, got, want)
		}
	}
	cheap := one(Kill, use(1, gib))
	cheap.Cost = time.Millisecond
	if got := w.Step(time.Unix(9, 0), cheap).Next; got != Default {
		t.Errorf("after a cheap sample the next one comes in %v", got)
	}
}
