// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"time"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// WorkOf returns the percent of the last second for which each process had work on a GPU, by pid. No driver tells it so
// exactly: see ProcessUtilization. Errors: Invalid, Lost.
func (m *Model) WorkOf(index int, now time.Duration) (map[int]int, error) {
	g, err := m.gpu(index)
	if err != nil {
		return nil, err
	}
	g.pass(now)
	busy := map[int]time.Duration{}
	for _, s := range g.spans() {
		if d := min(s.to, now) - max(s.from, now-utilWindow); d > 0 {
			busy[s.pid] += d
		}
	}
	all := map[int]int{}
	for pid, d := range busy {
		all[pid] = int(d * 100 / utilWindow)
	}
	return all, nil
}

// Telemetry is what a GPU's sensors say. Power and clocks follow its utilisation, from a tenth and a fifth of
// the most up to it.
type Telemetry struct {
	Power, PowerLimit           uint64 // milliwatts
	SMClock, MaxSMClock         uint64 // MHz
	MemoryClock, MaxMemoryClock uint64 // MHz
	Temperature                 uint64 // degrees Celsius
	ECC                         ECC
	Remap                       Remap
	Slowed                      Slowed
}

// Remap says that memory rows are to be replaced by spare ones.
type Remap struct {
	// Pending is true for a row that is replaced at the next reset, Failed for one for which there is no spare row
	// left.
	Pending, Failed bool
}

// Slowed is why the hardware slows a GPU down.
type Slowed uint8

// The reasons.
const (
	SlowedNot Slowed = iota
	SlowedByHeat
	SlowedByPower
)

// Bits are the reason as nvmlClocksEventReason* have it: hardware thermal slowdown, or power brake.
func (s Slowed) Bits() uint64 {
	const slowdown, thermal, brake = 0x8, 0x40, 0x80
	switch s {
	case SlowedByHeat:
		return slowdown | thermal
	case SlowedByPower:
		return slowdown | brake
	case SlowedNot:
	}
	return 0
}

// ECC counts memory errors.
type ECC struct{ Corrected, Uncorrected uint64 }

// Telemetry returns a GPU's sensors' values. Errors: Invalid, Lost.
func (m *Model) Telemetry(index int, now time.Duration) (Telemetry, error) {
	percent, _, err := m.Utilization(index, now)
	if err != nil {
		return Telemetry{}, err
	}
	g := m.gpus[index]
	model, p := g.hw.Model, uint64(percent) // #nosec G115 -- 0 to 100
	between := func(most, least uint64) uint64 { return least + (most-least)*p/100 }
	limit := g.powerLimit()
	t := Telemetry{
		Power: between(limit, min(limit, model.PowerLimit/10)), PowerLimit: limit,
		SMClock: between(model.SMClock, model.SMClock/5), MaxSMClock: model.SMClock,
		MemoryClock: model.MemoryClock, MaxMemoryClock: model.MemoryClock,
		Temperature: between(75, 30), ECC: g.ecc, Remap: g.remap, Slowed: g.slowed,
	}
	return t, nil
}

// LinksDown is how many of a GPU's NVLinks are down, from the first on. Errors: Invalid, Lost.
func (m *Model) LinksDown(index int) (int, error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, err
	}
	return g.linksDown, nil
}

// CallFault is what is wrong with one call on a GPU.
type CallFault struct {
	// Latency delays the answer, in addition to the GPU's own.
	Latency time.Duration
	// Status is the answer instead of the true one; wire.OK: the true one.
	Status wire.Status
}

// CallFault returns what is wrong with a call, nothing for a GPU that does not exist.
func (m *Model) CallFault(index int, op wire.Op) CallFault {
	if index < 0 || index >= len(m.gpus) {
		return CallFault{}
	}
	return m.gpus[index].calls[op]
}

// applyCalls does the part of a Change that is about calls, ECC and lists of processes.
func (m *Model) applyCalls(g *gpu, c Change) {
	for op, d := range c.CallLatency {
		f := g.calls[op]
		f.Latency = d
		g.calls[op] = f
	}
	for op, s := range c.CallStatus {
		f := g.calls[op]
		f.Status = s
		g.calls[op] = f
	}
	if c.Samples != nil {
		g.sampler.noise = *c.Samples
		// #nosec G115,G404 -- an index; noise that repeats
		g.sampler.rand = rand.New(rand.NewPCG(c.Samples.Seed, uint64(g.index)))
	}
	if c.ECCCorrected != nil {
		g.ecc.Corrected = *c.ECCCorrected
	}
	if c.ECCUncorrected != nil {
		g.ecc.Uncorrected = *c.ECCUncorrected
	}
	if c.RemapPending != nil {
		g.remap.Pending = *c.RemapPending
	}
	if c.RemapFailed != nil {
		g.remap.Failed = *c.RemapFailed
	}
	if c.Slowed != nil {
		g.slowed = *c.Slowed
	}
	if c.LinksDown != nil {
		g.linksDown = *c.LinksDown
	}
	for _, cl := range m.clients {
		if list, ok := c.Lists[cl.pid]; ok && cl.gpu == g {
			cl.list = list
		}
	}
}

// on tells whether a process has opened a GPU.
func (m *Model) on(g *gpu, pid int) bool {
	for _, c := range m.clients {
		if c.gpu == g && c.pid == pid {
			return true
		}
	}
	return false
}
