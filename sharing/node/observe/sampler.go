// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

const (
	// deadline bounds one reading of all GPUs.
	deadline = 2 * time.Second
	// maxAge is how old a sample may be before a new one is taken.
	maxAge = 100 * time.Millisecond
)

// Driver reads one GPU. An error wraps sharing.ErrLost or sharing.ErrUnavailable.
type Driver interface {
	lists.Driver
	// Sample reads all but the processes.
	Sample(ctx context.Context, gpu sharing.GPURef) (Reading, error)
}

// Caps reads the driver's own count of what a cgroup uses of a GPU.
type Caps interface {
	Read(ctx context.Context, dir string, gpu sharing.GPURef) (limit, used sharing.Bytes, err error)
}

// View is what a Sampler sees of the node, at one moment.
type View struct {
	// Driver is nil while no driver answers. Caps is nil if the driver has no limits.
	Driver Driver
	Caps   Caps
	GPUs   []sharing.GPU
	Grants []ledger.Grant
	Owners []lists.Grant
}

// Sampler takes one sample at a time, and gives a fresh one to all who ask meanwhile. Its lock is taken before those of
// View.
type Sampler struct {
	Lists *lists.Lists
	View  func() View
	// Managed is the managed memory that programs of grants count, by GPU.
	Managed func([]ledger.Grant) map[sharing.GPURef]sharing.Bytes
	// Changes is how many changes of the node there were. A sample from before the last one is old.
	Changes func() uint64
	// Daemons is the cgroup of the daemons of grants. Their processes are managed.
	Daemons string

	mu      sync.Mutex
	last    Sample
	at      time.Time
	changes uint64
}

// Sample returns a fresh sample. It takes as long as the slowest GPU, 2 s at most. It leaves out what the driver does
// not answer in time.
func (s *Sampler) Sample(ctx context.Context) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Changes()
	if s.changes == now && time.Since(s.at) < maxAge {
		return s.last
	}
	// Others get this sample too: a caller that leaves must not leave them an empty one.
	s.last = s.take(context.WithoutCancel(ctx), s.View())
	s.at, s.changes = time.Now(), now
	return s.last
}

func (s *Sampler) take(ctx context.Context, v View) Sample {
	p := Sample{
		GPUs: map[sharing.GPURef]Reading{}, PIDs: map[ledger.GrantID][]int{}, Unmanaged: map[sharing.GPURef][]int{},
		capped: map[Key]sharing.Bytes{}, looks: map[sharing.GPURef]lists.Observation{},
	}
	for _, o := range v.Owners {
		if pids, err := o.Procs(); err == nil {
			p.PIDs[ledger.GrantID(o.Owner)] = pids
		}
	}
	if v.Driver == nil {
		return p
	}
	looks := s.Lists.Attribute(s.read(ctx, v, &p), v.Owners)
	for _, l := range looks {
		p.looks[l.GPU] = l
		p.Unmanaged[l.GPU] = s.unmanaged(l)
	}
	p.Ended = endedUses(s.Lists, looks, v.Owners)
	p.setUnattributed(s.last, v.GPUs, s.Managed(v.Grants))
	return p
}

// read reads all GPUs at once, so that one that hangs delays the others by at most its deadline. It returns the process
// lists.
func (s *Sampler) read(ctx context.Context, v View, p *Sample) []lists.Answer {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make([]lists.Answer, len(v.GPUs))
	for i, g := range v.GPUs {
		wg.Go(func() {
			if reading, err := v.Driver.Sample(ctx, g.Ref()); err != nil {
				answers[i] = lists.Answer{GPU: g.Ref(), Err: err}
			} else if answers[i] = s.Lists.Query(ctx, v.Driver, g.Ref()); answers[i].Err == nil {
				reading.Processes = answers[i].Uses
				mu.Lock()
				p.GPUs[g.Ref()] = reading
				mu.Unlock()
			}
			for _, gr := range v.Grants {
				if v.Caps == nil || gr.Active == nil || !limitedOn(gr, g.Ref()) {
					continue
				}
				if _, used, err := v.Caps.Read(ctx, gr.Active.Cgroup, g.Ref()); err == nil {
					mu.Lock()
					p.capped[Key{gr.ID, g.Ref()}] = used
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return answers
}

// unmanaged are the running processes of a list that no grant accounts for: also those of grants without a share of the
// GPU.
func (s *Sampler) unmanaged(look lists.Observation) (pids []int) {
	for _, line := range look.Lines {
		if line.Kind == listing.Running && line.Owner == "" && line.Cgroup != "" &&
			!cgroup.Beneath(line.Cgroup, s.Daemons) {
			pids = append(pids, line.PID)
		}
	}
	slices.Sort(pids)
	return pids
}

// limitedOn reports whether the driver limits a grant on the GPU.
func limitedOn(g ledger.Grant, gpu sharing.GPURef) bool {
	return g.Level == sharing.LevelDriver &&
		slices.ContainsFunc(g.InForce(), func(f sharing.Share) bool { return f.GPU == gpu && !f.Whole })
}
