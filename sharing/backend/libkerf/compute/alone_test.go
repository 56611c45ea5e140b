// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// measuring is a program that always wants, launches one kernel after the other, and charges what it measures.
func measuring(id ID, percent sharing.Percent, kernel time.Duration) *worker {
	return &worker{grant: Grant{ID: id, Percent: percent}, kernel: kernel, depth: 1, wants: always,
		measures: &estimate{}}
}

// Kernels that take longer than a time slice seem longer while others run. Each grant gets its percent all the same, as
// the hardware kit measures it: over some seconds, from the first one on.
func TestSharesOfLongKernels(t *testing.T) {
	for _, percent := range []sharing.Percent{10, 30, 50} {
		for _, kernel := range []time.Duration{2 * ms, 5 * ms, 20 * ms} {
			for _, mode := range []Mode{Strict, Fair} {
				a, b := measuring("a", percent, kernel), measuring("b", 100-percent, kernel)
				g := &gpu{workers: []*worker{a, b}, slice: 2 * ms}
				g.run(&Controller{}, mode, 8*time.Second, nil)
				got := 100 * float64(a.used) / float64(a.used+b.used)
				if want := float64(percent); got < 0.9*want || got > 1.1*want {
					t.Errorf("%d%%, kernels of %v, mode %d: %.1f%% of the work", percent, kernel, mode, got)
				}
				if busy := (a.used + b.used).Seconds() / 8; busy < 0.9 {
					t.Errorf("%d%%, kernels of %v, mode %d: the GPU ran for %.0f%% of the time", percent, kernel, mode,
						100*busy)
				}
			}
		}
	}
}

// If a change between programs takes time, the charges suggest that the GPU is idle for a part of it. In fair mode that
// time stays with a grant that is below its percent and wants more.
func TestFairLendsNothingOfAGrantThatIsCrowded(t *testing.T) {
	a, b := measuring("a", 30, 6*tick), measuring("b", 70, 6*tick)
	g := &gpu{workers: []*worker{a, b}, slice: 2 * ms, change: tick}
	g.run(&Controller{}, Fair, 8*time.Second, nil)
	first, second := 100*a.used.Seconds()/8, 100*b.used.Seconds()/8
	if first < 27 || first > 33 {
		t.Errorf("30%% has %.1f%% of the GPU's time", first)
	}
	if changes := second / 6; second < 100-first-first/6-changes-5 {
		t.Errorf("70%% has %.1f%% of the GPU's time, and 30%% has %.1f%%", second, first)
	}
}

// If the launches of a grant pause, others get the time that it leaves.
func TestFairLendsOfAGrantThatPauses(t *testing.T) {
	a, b := measuring("a", 30, 6*tick), measuring("b", 70, 6*tick)
	b.waits, b.lag = true, 24*tick
	g := &gpu{workers: []*worker{a, b}, slice: 2 * ms}
	g.run(&Controller{}, Fair, 8*time.Second, nil)
	if got := 100 * a.used.Seconds() / 8; got < 60 {
		t.Errorf("the grant with 30%% has %.1f%% of the GPU's time, and the other one runs for a fifth of it", got)
	}
}

// A grant that runs while the others are idle is measured alone as it is. No other grant holds.
func TestAloneAsItIs(t *testing.T) {
	a, b := measuring("a", 30, 5*ms), measuring("b", 70, 5*ms)
	b.wants = never
	g := &gpu{workers: []*worker{a, b}, slice: 2 * ms}
	alone := 0
	g.run(&Controller{}, Strict, 2*time.Second, func(refills []TokenUpdate) {
		if refills[0].Launch == Alone {
			alone++
		}
		if refills[1].Launch != Open {
			t.Fatalf("%+v: a grant that is idle may launch at once", refills[1])
		}
	})
	if alone < 90 {
		t.Errorf("it ran alone in %d of 100 steps", alone)
	}
}

// An older libkerf does not report for how long launches are pending: no grant holds for it.
func TestNoTurnForAnOlderLibkerf(t *testing.T) {
	a := &worker{grant: Grant{ID: "a", Percent: 50}, kernel: 5 * ms, depth: 1, bias: 100, wants: always}
	b := &worker{grant: Grant{ID: "b", Percent: 50}, kernel: 5 * ms, depth: 1, bias: 100, wants: always}
	g := &gpu{workers: []*worker{a, b}, slice: 2 * ms}
	g.run(&Controller{}, Strict, 2*time.Second, func(refills []TokenUpdate) {
		if refills[0].Launch != Open || refills[1].Launch != Open {
			t.Fatalf("%+v", refills)
		}
	})
}
