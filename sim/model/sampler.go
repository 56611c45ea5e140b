// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// A driver does not count what each process uses of a GPU. It keeps a ring of samples (NV2080_CTRL_PERF_GPUMON_SAMPLE
// in open-gpu-kernel-modules 580.142): each has the percent of its period in which the engine worked, and the one
// process that was on the engine when it was taken. Where none was just then, it is the last one of the period. What
// NVML makes of the ring is inferred: for each process the mean over the samples that were asked for, of which others'
// count as 0.
const (
	ringSamples  = 72
	ringTime     = 10 * time.Second
	samplePeriod = ringTime / ringSamples
)

// sample is one entry of the ring; pid 0 for a period in which nothing ran.
type sample struct {
	at      time.Duration
	percent int
	pid     int
}

// sampler is the ring of a GPU, and what is wrong with its answers.
type sampler struct {
	ring  []sample // by time, at most ringSamples
	next  int64    // number of the next sample, which is taken at its number of periods
	noise SampleNoise
	rand  *rand.Rand
}

// SampleNoise is how often an answer about processes is wrong, in percent. The zero value is a driver that answers what
// is in its ring.
type SampleNoise struct {
	// Stale: a process's row is one from before the time that was asked for.
	Stale int
	// Missing: the answer is that there are no rows.
	Missing int
	// Dead: the answer also has a row of a process that has ended.
	Dead int
	// Garbage: a row has more than 100 percent, and the answer has one of process 0.
	Garbage int
	// Seed makes answers the same in each run.
	Seed uint64
}

func newSampler() sampler { return sampler{rand: rand.New(rand.NewPCG(0, 0))} } // #nosec G404 -- noise that repeats

// deadPID is of no process: above the largest that Linux gives.
const deadPID = 1<<22 + 1

// sample takes the samples that are due. Work is known until now, and not what comes after.
func (g *gpu) sample(now time.Duration) {
	s := &g.sampler
	last := int64(now / samplePeriod)
	if first := last - ringSamples + 1; s.next < first {
		s.next = first
	}
	for ; s.next <= last; s.next++ {
		s.ring = append(s.ring, g.sampleAt(time.Duration(s.next)*samplePeriod))
	}
	if over := len(s.ring) - ringSamples; over > 0 {
		s.ring = slices.Delete(s.ring, 0, over)
	}
}

func (g *gpu) sampleAt(at time.Duration) sample {
	s := sample{at: at, percent: g.percent(at, samplePeriod)}
	var last []int // those that were on the engine, at or last before
	var latest time.Duration
	for _, w := range g.spans() {
		if to := min(w.to, at); w.from < at && to > max(latest, at-samplePeriod) {
			last, latest = []int{w.pid}, to
		} else if w.from < at && len(last) > 0 && to == latest {
			last = append(last, w.pid)
		}
	}
	if len(last) > 0 {
		s.pid = last[g.sampler.next%int64(len(last))] // clients of MPS run at the same time
	}
	return s
}

// ProcessUse is what a driver tells of a process's share of a GPU's time.
type ProcessUse struct {
	PID         int
	GPU, Memory int           // percent; the memory's is taken to be half of the GPU's
	At          time.Duration // when it was sampled last
}

// ProcessUtilization returns the processes in the samples that were taken after since, by pid. What Change.Util
// overrides is the GPU's alone. Errors: Invalid, Lost, NotFound (there is no such sample, or SampleNoise.Missing).
func (m *Model) ProcessUtilization(index int, since, now time.Duration) ([]ProcessUse, error) {
	g, err := m.gpu(index)
	if err != nil {
		return nil, err
	}
	g.pass(now)
	all := g.sampler.rows(since)
	return g.sampler.disturbed(all, since, now)
}

// rows are the processes in the samples after since.
func (s *sampler) rows(since time.Duration) []ProcessUse {
	sums := map[int]ProcessUse{}
	n := 0
	for _, x := range s.ring {
		if x.at <= since {
			continue
		}
		n++
		if x.pid != 0 {
			u := sums[x.pid]
			sums[x.pid] = ProcessUse{PID: x.pid, GPU: u.GPU + x.percent, At: x.at}
		}
	}
	all := make([]ProcessUse, 0, len(sums))
	for _, u := range sums {
		u.GPU /= n
		u.Memory = u.GPU / 2
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b ProcessUse) int { return cmp.Compare(a.PID, b.PID) })
	return all
}

// disturbed is what is answered instead of all.
func (s *sampler) disturbed(all []ProcessUse, since, now time.Duration) ([]ProcessUse, error) {
	happens := func(percent int) bool { return percent > 0 && s.rand.IntN(100) < percent }
	if len(all) == 0 || happens(s.noise.Missing) {
		return nil, wire.NotFound
	}
	for i := range all {
		if happens(s.noise.Stale) {
			all[i].At = max(0, min(since, now)-time.Duration(s.rand.IntN(int(ringTime))))
			all[i].GPU = s.rand.IntN(101)
		}
		if happens(s.noise.Garbage) {
			all[i].GPU = 101 + s.rand.IntN(1<<20)
		}
	}
	if happens(s.noise.Dead) {
		all = append(all, ProcessUse{PID: deadPID, GPU: s.rand.IntN(101), At: now})
	}
	if happens(s.noise.Garbage) {
		all = append(all, ProcessUse{GPU: s.rand.IntN(101), At: now})
	}
	return all, nil
}
