// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const ms = time.Millisecond

// fill has each process run for so long, one after the other, again and again from a second to another.
func fill(t *testing.T, m *Model, from, to time.Duration, turns []process, each []time.Duration) {
	t.Helper()
	for now := from; now < to; {
		for i, p := range turns {
			end, err := m.Launch(p.id, p.ctx, 1, 1, each[i], now)
			if err != nil {
				t.Fatal(err)
			}
			now = end
		}
	}
}

// Each sample has the one process that was on the engine when it was taken: over 10 s a share of a tenth comes to a few
// samples of 72, and over a second to none or one.
func TestSamplesOfProcesses(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p, q := open(t, m, 0, 100, nil), open(t, m, 0, 101, nil)
	both, turns := []process{p, q}, []time.Duration{1700 * time.Microsecond, 15300 * time.Microsecond}
	fill(t, m, 0, 10*sec, both, turns)
	seen := map[int]int{}
	for at := 11 * sec; at <= 20*sec; at += sec {
		fill(t, m, at-sec, at, both, turns)
		one, err := m.ProcessUtilization(0, at-sec, at)
		wantErr(t, err, nil)
		for _, u := range one {
			if u.PID == 100 {
				seen[u.GPU]++
			}
		}
	}
	for percent := range seen {
		if percent%14 > 2 && percent%12 > 2 { // of 7 or 8 samples
			t.Errorf("in single seconds the tenth is seen as %v", seen)
		}
	}
	got, err := m.ProcessUtilization(0, 10*sec, 20*sec)
	wantErr(t, err, nil)
	if len(got) != 2 || got[0].PID != 100 || got[1].PID != 101 || got[0].GPU < 3 || got[0].GPU > 20 ||
		got[1].GPU < 80 || got[1].Memory != got[1].GPU/2 {
		t.Errorf("over 10 s: %+v", got)
	}
	for _, u := range got {
		if u.At <= 10*sec || u.At > 20*sec || u.At%samplePeriod != 0 {
			t.Errorf("sampled at %v", u.At)
		}
	}
	last, err := m.ProcessUtilization(0, 20*sec-samplePeriod, 20*sec)
	if err != nil || len(last) != 1 || last[0].GPU != 100 {
		t.Errorf("one sample has one process: %+v, %v", last, err)
	}
	_, err = m.ProcessUtilization(0, 20*sec, 20*sec)
	wantErr(t, err, wire.NotFound)
}

// The ring goes back for ten seconds, whatever process reads it and however long none did. An ended process stays in
// it. If a part of a period was idle, its use includes that. A period in which nothing ran belongs to no process.
func TestRingOfSamples(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, nil)
	_, err := m.ProcessUtilization(0, -1, 100*sec)
	wantErr(t, err, wire.NotFound)
	for at := 100 * sec; at < 105*sec; at += 100 * ms {
		if _, err := m.Launch(p.id, p.ctx, 1, 1, 50*ms, at); err != nil {
			t.Fatal(err)
		}
	}
	m.Close(p.id, 105*sec)
	got, err := m.ProcessUtilization(0, -1, 105*sec)
	if err != nil || len(got) != 1 || got[0].PID != 100 || got[0].GPU < 22 || got[0].GPU > 28 { // half of half the ring
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = m.ProcessUtilization(0, -1, 114*sec); err != nil || len(got) != 1 || got[0].GPU > 6 ||
		got[0].At > 105*sec+samplePeriod {
		t.Errorf("nine seconds later: %+v, %v", got, err)
	}
	_, err = m.ProcessUtilization(0, -1, 116*sec)
	wantErr(t, err, wire.NotFound)
	if n := len(m.gpus[0].sampler.ring); n != ringSamples {
		t.Errorf("%d samples are kept", n)
	}
}

// What is wrong is so as often as it was asked for, of its kind alone, and the same for the same seed.
func TestNoiseOfSamples(t *testing.T) {
	run := func(n SampleNoise) (answers [][]ProcessUse, missing int) {
		m := testMachine(t, "t4x4", machine.Dmem)
		p := open(t, m, 0, 100, nil)
		wantErr(t, m.Apply([]int{0}, Change{Samples: &n}, 0), nil)
		fill(t, m, 0, sec, []process{p}, []time.Duration{sec})
		for at := 2 * sec; at <= 400*sec; at += sec {
			fill(t, m, at-sec, at, []process{p}, []time.Duration{sec})
			got, err := m.ProcessUtilization(0, at-sec, at)
			if errors.Is(err, wire.NotFound) {
				missing++
			} else {
				wantErr(t, err, nil)
			}
			answers = append(answers, got)
		}
		return answers, missing
	}
	count := func(answers [][]ProcessUse, is func(u ProcessUse, since time.Duration) bool) (n int) {
		for i, a := range answers {
			for _, u := range a {
				if is(u, time.Duration(i+1)*sec) {
					n++
				}
			}
		}
		return n
	}
	for name, tt := range map[string]struct {
		noise SampleNoise
		is    func(u ProcessUse, since time.Duration) bool
	}{
		"stale": {SampleNoise{Stale: 50, Seed: 3},
			func(u ProcessUse, since time.Duration) bool { return u.At <= since }},
		"dead": {SampleNoise{Dead: 50, Seed: 3},
			func(u ProcessUse, _ time.Duration) bool { return u.PID == deadPID }},
		"garbage": {SampleNoise{Garbage: 50, Seed: 3}, func(u ProcessUse, _ time.Duration) bool { return u.GPU > 100 }},
		"no-one":  {SampleNoise{Garbage: 50, Seed: 3}, func(u ProcessUse, _ time.Duration) bool { return u.PID == 0 }},
	} {
		answers, missing := run(tt.noise)
		if n := count(answers, tt.is); n < 150 || n > 250 || missing != 0 {
			t.Errorf("%s: %d of %d answers, %d missing", name, n, len(answers), missing)
		}
		again, _ := run(tt.noise)
		if d := cmp.Diff(answers, again); d != "" {
			t.Errorf("%s, once more (-first +second):\n%s", name, d)
		}
	}
	if answers, missing := run(SampleNoise{Missing: 50, Seed: 3}); missing < 150 || missing > 250 {
		t.Errorf("%d of %d answers are missing", missing, len(answers))
	}
	if answers, missing := run(SampleNoise{}); missing != 0 ||
		count(answers, func(u ProcessUse, since time.Duration) bool {
			return u.PID != 100 || u.GPU != 100 ||
				u.At <= since
		}) != 0 {
		t.Error("without noise something is wrong")
	}
}
