// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Memory is a GPU's memory as one caller sees it: Total is always Reserved + Free + Used.
type Memory struct{ Total, Reserved, Free, Used sharing.Bytes }

// Memory returns what a process in chain sees of a GPU. If its own cgroup has a hard limit below the GPU's usable
// memory, the limit is the GPU's size. Free is then what it can still have, so Used includes what others use of the
// free memory under the limit. A limit further up does not show. Errors: Invalid, Lost.
func (m *Model) Memory(index int, chain Chain) (Memory, error) {
	g, err := m.gpu(index)
	if err != nil {
		return Memory{}, err
	}
	if len(chain) > 0 {
		l, limited := g.limits[chain[0].ID]
		if limited && l.hard <= g.hw.Model.Memory.SubFloor(g.hw.Model.Reserved) {
			free := min(l.hard.SubFloor(l.used), g.free())
			return Memory{Total: l.hard, Free: free, Used: l.hard - free}, nil
		}
	}
	return g.whole(), nil
}

// InstanceMemory returns that of a MIG device, which is its GPU instance's. Errors: Invalid, NotFound, Lost.
func (m *Model) InstanceMemory(index int, instance uint64) (Memory, error) {
	g, err := m.gpu(index)
	if err != nil {
		return Memory{}, err
	}
	part, _, err := g.part(instance)
	if err != nil {
		return Memory{}, err
	}
	free := g.capacity[part].SubFloor(g.used[part])
	return Memory{Total: g.capacity[part], Free: free, Used: g.capacity[part] - free}, nil
}

func (g *gpu) whole() Memory {
	free := g.free()
	model := g.hw.Model
	return Memory{Total: model.Memory, Reserved: model.Reserved, Free: free, Used: model.Memory - model.Reserved - free}
}

// Process is what one process holds on one GPU or MIG instance.
type Process struct {
	PID   int
	GPU   int
	Bytes sharing.Bytes
	GI    uint64 // GPU instance id, wire.NoInstance outside MIG mode
	CI    uint64 // compute instance id, the same
}

// Use is what one client holds on one GPU or MIG instance.
type Use struct {
	Client ClientID
	Process
}

// Uses returns what each client holds on a GPU, by client and instance, whatever list its process stands in. Managed
// memory is in none of it. Errors: Invalid, Lost.
func (m *Model) Uses(index int) ([]Use, error) {
	return m.uses(index, func(int) bool { return true })
}

// Listed is Uses for one of NVML's lists. A process that is in several has all that it holds in each.
func (m *Model) Listed(index int, list wire.List) ([]Use, error) {
	g, err := m.gpu(index)
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	for _, c := range m.clients {
		if c.gpu == g && c.list == list && c.objects() > 0 && !c.file {
			in[c.pid] = true
		}
	}
	return m.uses(index, func(pid int) bool { return in[pid] })
}

// Processes returns what processes hold on a GPU, by pid and instance. Errors: Invalid, Lost.
func (m *Model) Processes(index int) ([]Process, error) {
	all, err := m.Uses(index)
	return Sum(all, func(u Use) int { return u.PID }), err
}

// Sum adds up the uses of each process as a driver does: by pid, so that a process that has ended and one that was
// given its number are one. pid says under which number a use is listed; 0 leaves it out.
func Sum(all []Use, pid func(Use) int) []Process {
	sums := map[Process]sharing.Bytes{}
	for _, u := range all {
		p := u.Process
		if p.PID, p.Bytes = pid(u), 0; p.PID != 0 {
			sums[p] += u.Bytes
		}
	}
	out := make([]Process, 0, len(sums))
	for p, bytes := range sums {
		p.Bytes = bytes
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI))
	})
	return out
}

func (m *Model) uses(index int, which func(pid int) bool) ([]Use, error) {
	g, err := m.gpu(index)
	if err != nil {
		return nil, err
	}
	type instance struct {
		part int
		ci   uint64
	}
	var all []Use
	for _, id := range slices.Sorted(maps.Keys(m.clients)) {
		c := m.clients[id]
		if c.gpu != g || c.state == Saved || c.file || !which(c.pid) {
			continue
		}
		sum := map[instance]sharing.Bytes{}
		for _, h := range c.contexts {
			sum[instance{h.part, h.ci}] += h.bytes
		}
		for _, a := range c.allocs {
			if a.managed == 0 { // a driver lists no process with managed memory
				sum[instance{a.part, a.ci}] += a.bytes
			}
		}
		for _, s := range c.imports {
			if s.counts() {
				sum[instance{s.part, s.by}] += s.bytes
			}
		}
		for in, bytes := range sum {
			p := Process{PID: c.pid, GPU: index, Bytes: bytes, GI: wire.NoInstance, CI: wire.NoInstance}
			if g.hw.MIG {
				p.GI, p.CI = uint64(in.part)+1, in.ci // #nosec G115 -- an index
			}
			all = append(all, Use{id, p})
		}
	}
	return all, nil
}

// Status is a GPU's state for people, lost or not.
type Status struct {
	Memory Memory // the whole GPU's
	// the most that programs, MPS servers aside, held at any moment since the start or Change.CountPeak
	Peak     sharing.Bytes
	Lost     bool
	Recovery Recovery
	Slice    TimeSlice
	Mode     ComputeMode
	// PowerLimit is in milliwatts, 0 where the model does not say it.
	PowerLimit uint64
	MIG        bool
	Faults
}

// Status returns GPU index's state; Invalid when there is no such GPU.
func (m *Model) Status(index int) (Status, error) {
	if index < 0 || index >= len(m.gpus) {
		return Status{}, wire.Invalid
	}
	g := m.gpus[index]
	return Status{Memory: g.whole(), Peak: g.peak, Lost: g.lost, Recovery: g.recovery, Slice: g.slice, Mode: g.mode,
		PowerLimit: g.powerLimit(), MIG: g.hw.MIG, Faults: Faults{Util: g.util, Latency: g.late.most}}, nil
}
