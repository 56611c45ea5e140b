// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/listing"
)

// Lists follow the lists of a node's GPUs. Make them with New. They are safe for concurrent use.
type Lists struct {
	kernel Kernel
	orders atomic.Uint64
	calls  reader

	mu     sync.Mutex // held while the kernel is asked; no other lock is taken meanwhile
	gpus   map[sharing.GPURef]*followed
	minors map[sharing.GPURef]int
}

// followed is the list of one GPU, and the order of the answer that it saw last.
type followed struct {
	list  listing.List
	order uint64
}

// New follows no list yet.
func New(k Kernel) *Lists {
	return &Lists{kernel: k, gpus: map[sharing.GPURef]*followed{}, minors: map[sharing.GPURef]int{}}
}

// Found tells which GPUs there are, and by which numbers their device files have them.
func (l *Lists) Found(gpus []sharing.GPU) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range gpus {
		l.minors[g.Ref()] = g.Minor
	}
}

// opener asks for the device file of one GPU.
type opener struct {
	Kernel
	minor int
	known bool
}

func (o opener) open(pid int) (bool, error) {
	if !o.known {
		return false, fmt.Errorf("device file of a GPU that was not found: %w", sharing.ErrUnavailable)
	}
	return o.Open(pid, o.minor)
}

// opener needs the lock.
func (l *Lists) opener(gpu sharing.GPURef) opener {
	minor, known := l.minors[sharing.GPURef{UUID: gpu.UUID}]
	return opener{l.kernel, minor, known}
}

// Query asks the driver about a GPU. Calls that would be made at once for one GPU become one.
func (l *Lists) Query(ctx context.Context, d Driver, gpu sharing.GPURef) Answer {
	a := l.calls.read(ctx, lineKey{d, gpu}, func() Answer {
		a := Answer{order: l.orders.Add(1)}
		a.Uses, a.Err = d.Processes(ctx, gpu)
		a.at = l.kernel.Now()
		return a
	})
	a.GPU = gpu
	return a
}

// QueryAll asks about all GPUs at once: one that hangs delays the others by no more than the time given.
func (l *Lists) QueryAll(ctx context.Context, d Driver, gpus []sharing.GPURef, within time.Duration) []Answer {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out := make([]Answer, len(gpus))
	var all sync.WaitGroup
	for i, id := range gpus {
		all.Go(func() { out[i] = l.Query(ctx, d, id) })
	}
	all.Wait()
	return out
}

// Attribute says to whom what the driver listed belongs. Answers to questions that were asked before those of a later
// look change nothing of what is remembered.
func (l *Lists) Attribute(answers []Answer, grants []Grant) []Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[int]fact{}
	out := make([]Observation, 0, len(answers))
	for _, a := range answers {
		look := Observation{GPU: a.GPU, Err: a.Err}
		if a.Err == nil {
			look.Lines = l.judge(a, view{opener: l.opener(a.GPU), gpu: a.GPU, grants: grants, listed: a.Uses,
				seen: seen, unknown: &look.ReadErr})
		}
		out = append(out, look)
	}
	return out
}

func (l *Lists) judge(a Answer, v view) []Line {
	g := l.gpus[a.GPU]
	if g == nil {
		g = &followed{}
		l.gpus[a.GPU] = g
	}
	list := &g.list
	if a.order < g.order {
		list = list.Clone()
	} else {
		g.order = a.order
	}
	entries := make([]listing.Entry, 0, len(a.Uses))
	for _, u := range a.Uses {
		entries = append(entries, listing.Entry{PID: u.PID, Bytes: u.Used, Known: u.Known})
	}
	lines := make([]Line, 0, len(entries))
	for i, line := range list.Step(a.at, entries, v) {
		out := Line{Line: line, MPS: a.Uses[i].MPS}
		if line.Kind == listing.Running {
			out.Cgroup = v.seen[line.PID].dir
		}
		lines = append(lines, out)
	}
	return lines
}

// Check says whether a process may be signaled for its use of a GPU: it has the GPU's device file open. The caller
// holds the process, so that it is the one that has the pid. If it has closed the file, the next check knows that
// others keep its memory. Errors: sharing.ErrStale (it has not), and those of Kernel.Open.
func (l *Lists) Check(gpu sharing.GPURef, p listing.Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	open, err := l.opener(gpu).open(p.PID)
	if err != nil {
		return fmt.Errorf("check the files of process %d: %w", p.PID, err)
	}
	if open {
		return nil
	}
	if g := l.gpus[gpu]; g != nil {
		g.list.Closed(p)
	}
	return fmt.Errorf("process %d does not have the device file of GPU %s open: %w", p.PID, gpu, sharing.ErrStale)
}

// Retainers are the processes of a grant that have the GPU's device file open and that the sample does not list as
// running. They keep the memory of ended processes of the grant. Errors are those of Kernel and of Grant.Procs.
func (l *Lists) Retainers(look Observation, g Grant) ([]listing.Process, error) {
	var running []int
	for _, line := range look.Lines {
		if line.Kind == listing.Running {
			running = append(running, line.PID)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opener(look.GPU).retainers(g, running)
}

func (o opener) retainers(g Grant, but []int) ([]listing.Process, error) {
	pids, err := g.Procs()
	if err != nil {
		return nil, fmt.Errorf("list the processes of grant %s: %w", g.Owner, err)
	}
	var out []listing.Process
	for _, pid := range pids {
		if slices.Contains(but, pid) {
			continue
		}
		start, err := o.Start(pid)
		var open bool
		if err == nil {
			open, err = o.open(pid)
		}
		switch {
		case ended(err):
		case err != nil:
			return nil, fmt.Errorf("read process %d of grant %s: %w", pid, g.Owner, err)
		case open:
			out = append(out, listing.Process{PID: pid, Start: start})
		}
	}
	return out, nil
}

func ended(err error) bool {
	return errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale)
}
