// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// NoLimit as a hard limit means that there is none.
const NoLimit sharing.Bytes = math.MaxUint64

// Group is a cgroup.
type Group struct {
	ID  uint64 // inode of its directory, never used again for another
	Dir string // absolute path as the daemon sees it
}

// Chain is a cgroup and those above it, the innermost first. The root group is not part of it, so the root's
// own chain is empty.
type Chain []Group

// Model is the state of all GPUs. It is not safe for concurrent use.
type Model struct {
	machine machine.Machine
	driver  machine.Driver
	gpus    []*gpu
	clients map[ClientID]*client
	lastID  uint64 // the last client or context id given
	leaving []ClientID
	events  events
}

// gpu is the state of one GPU.
type gpu struct {
	hw    machine.GPU
	index int

	// used is the memory held: one entry for the GPU or, in MIG mode, one for each instance id from 1. Each is at
	// most capacity's, which is 0 where there is no instance of that id.
	used     []sharing.Bytes
	capacity []sharing.Bytes
	// peak is the most that programs, MPS servers aside, used on the whole GPU at any moment since the start, or since
	// the count was restarted.
	peak sharing.Bytes
	// instances are the MIG instances, in the order of used; nil where there is none.
	instances []*Instance
	// blocks are the blocks of capability numbers that the last instances with each id had.
	blocks     map[uint64]int
	pendingMIG bool              // MIG mode after the next reset
	passed     bool              // it is passed through to this node as a virtual machine, which cannot reset it
	limits     map[uint64]*limit // by Group.ID
	place      addresses
	memory     map[uint64]*allocation // by address, as long as a client holds it
	busy       busy
	lanes      lanes
	engines    map[uint64]*engine // see sliced; by MIG compute instance, one for a GPU
	ran        time.Duration      // until when they have run
	sampler    sampler

	lost     bool
	recovery Recovery
	util     int // percent that is reported, AutoUtil: computed
	late     lateness
	mode     ComputeMode
	// power is the limit that was set, in milliwatts; 0 for the model's own.
	power uint64
	slice TimeSlice
	costs machine.Costs
	// listsWait is until when lists of processes wait.
	listsWait time.Duration
	// unlisted is the memory of contexts that is in no list.
	unlisted sharing.Bytes

	ecc    ECC
	remap  Remap
	slowed Slowed
	// linksDown is how many of its NVLinks, from the first on, are down.
	linksDown int
	calls     map[wire.Op]CallFault
}

// New returns a machine on which nothing runs.
func New(mach machine.Machine, driver machine.Driver) *Model {
	m := &Model{machine: mach, driver: driver, clients: map[ClientID]*client{}}
	for i, hw := range mach.GPUs {
		g := &gpu{hw: hw, index: i, pendingMIG: hw.MIG, limits: map[uint64]*limit{}, blocks: map[uint64]int{},
			place: newAddresses(i), memory: map[uint64]*allocation{}, lanes: newLanes(), sampler: newSampler(),
			engines: map[uint64]*engine{},
			util:    AutoUtil, costs: hw.Model.Costs, calls: map[wire.Op]CallFault{}}
		if hw.MIG {
			for k, in := range hw.Instances {
				g.capacity = append(g.capacity, in.Profile.Memory)
				id := uint64(k) + 1 // #nosec G115 -- an index
				g.blocks[id] = k + 1
				g.instances = append(g.instances, &Instance{GI: id, Instance: in, Block: k + 1,
					Computes: []Compute{{Slices: in.Profile.Slices}}})
			}
		} else {
			g.capacity = []sharing.Bytes{hw.Model.Memory.SubFloor(hw.Model.Reserved)}
		}
		g.used = make([]sharing.Bytes, len(g.capacity))
		m.gpus = append(m.gpus, g)
	}
	return m
}

// gpu returns a GPU that answers: Invalid for one that does not exist, Lost for one that is off the bus.
func (m *Model) gpu(index int) (*gpu, error) {
	if index < 0 || index >= len(m.gpus) {
		return nil, wire.Invalid
	}
	if m.gpus[index].lost {
		return nil, wire.Lost
	}
	return m.gpus[index], nil
}

// Hardware returns what GPU index is, or Invalid or Lost.
func (m *Model) Hardware(index int) (machine.GPU, error) {
	g, err := m.gpu(index)
	if err != nil {
		return machine.GPU{}, err
	}
	return g.hw, nil
}

// inUse is the memory held on the whole GPU.
func (g *gpu) inUse() sharing.Bytes {
	var sum sharing.Bytes
	for _, u := range g.used {
		sum += u // each is at most a capacity, whose sum is far from wrapping
	}
	return sum
}

// free is what is left of the whole GPU.
func (g *gpu) free() sharing.Bytes {
	return g.hw.Model.Memory.SubFloor(g.hw.Model.Reserved).SubFloor(g.inUse())
}
