// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const s = time.Second

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestMeter(t *testing.T) {
	var m Meter
	half := Observation{Grant: "a", GPU: sharing.GPURef{UUID: "g"}, Model: "H100", Share: 0.5,
		Granted: 10 * sharing.GiB,
		Active:  true, Busy: 40, Used: 5 * sharing.GiB, UsedKnown: true, Watts: 300}
	other := Observation{Grant: "b", GPU: sharing.GPURef{UUID: "g"}, Share: 0.25, Active: true, Busy: 20, Watts: 300}
	m.Step(0, []Observation{half, other})
	m.Step(10*s, []Observation{half, other})
	half.Busy = 0
	other.Busy = -1
	m.Step(20*s, []Observation{half, other})
	if got := m.Idle("a", 25*s); got != 15*s {
		t.Errorf("idle for %s", got)
	}
	if got := m.Idle("b", 25*s); got != 5*s {
		t.Errorf("what is not known is taken for idle: %s", got)
	}
	m.Step(20*s+longest+s, []Observation{half, other}) // a gap without a sample
	ended := m.Step(20*s+longest+2*s, []Observation{other})
	r := ended["a"][0]
	if r.GPU != "g" || r.Model != "H100" || r.Share != 0.5 || r.Seconds != 20 || r.Known != 20 || r.Busy != 4 ||
		r.Idle != 10 || !near(r.Joules, 3000*40.0/60+3000*0.5/0.75) {
		t.Errorf("%+v", r)
	}
	if r.Memory.Quantile(0.99) != 50 || r.Compute.Quantile(0.5) != 0 || r.Compute.Quantile(0.99) != 40 {
		t.Errorf("histograms %v %v", r.Memory, r.Compute)
	}
	b := m.Take()["b"][0]
	if b.Seconds != 21 || b.Known != 10 || b.Busy != 2 || b.Idle != 0 || b.Powered != 10 {
		t.Errorf("%+v", b)
	}
	if again := m.Take(); len(again) != 0 {
		t.Errorf("taken twice: %v", again)
	}
	if got := m.Idle("a", 1000*s); got != 0 {
		t.Errorf("a grant that has ended is idle for %s", got)
	}
}

func TestAGrantThatNothingUsesIsIdle(t *testing.T) {
	var m Meter
	for i := range 4 {
		m.Step(time.Duration(i)*s, []Observation{{Grant: "a", GPU: sharing.GPURef{UUID: "g"}, Share: 1, Busy: -1}})
	}
	if got := m.Idle("a", 3*s); got != 3*s {
		t.Errorf("idle for %s", got)
	}
	if r := m.Take()["a"][0]; r.Seconds != 3 || r.Idle != 3 || r.Known != 3 {
		t.Errorf("%+v", r)
	}
}

// Whenever records are taken, they add up to the time that there was, and to what was used of it; and the energy of all
// grants on a GPU is never more than that of the GPU.
func TestRecordsAddUp(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var m Meter
		var got, want Record
		now := time.Duration(0)
		was := map[string]bool{}
		add := func(of map[string][]Record) {
			for _, rs := range of {
				for _, r := range rs {
					got.Seconds, got.Busy, got.Idle, got.Known, got.Joules = got.Seconds+r.Seconds, got.Busy+r.Busy,
						got.Idle+r.Idle, got.Known+r.Known, got.Joules+r.Joules
					if r.Known > r.Seconds+1e-6 || r.Idle > r.Known+1e-6 || !near(r.Compute.Seconds(), r.Known) {
						t.Fatalf("seed %d: %+v", seed, r)
					}
				}
			}
		}
		for range 60 {
			dt := time.Duration(1+rnd.IntN(20)) * s
			now += dt
			var looks []Observation
			is := map[string]bool{}
			for i := range 4 {
				id := fmt.Sprint(i)
				if rnd.IntN(8) == 0 {
					continue
				}
				l := Observation{Grant: id, GPU: sharing.GPURef{UUID: "g"}, Share: 0.25, Active: true,
					Busy:  rnd.IntN(26),
					Watts: 100}
				is[id] = true
				if was[id] {
					want.Seconds += dt.Seconds()
					want.Busy += dt.Seconds() * float64(l.Busy) / 100
					if l.Busy == 0 {
						want.Idle += dt.Seconds()
					}
				}
				looks = append(looks, l)
			}
			add(m.Step(now, looks))
			if rnd.IntN(5) == 0 {
				add(m.Take())
			}
			was = is
		}
		add(m.Take())
		if !near(got.Seconds, want.Seconds) || !near(got.Busy, want.Busy) || !near(got.Idle, want.Idle) ||
			!near(got.Known, want.Seconds) {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		if got.Joules <= 0 || got.Joules > 100*now.Seconds()+1e-6 {
			t.Fatalf("seed %d: %f joules of %f", seed, got.Joules, 100*now.Seconds())
		}
	}
}
