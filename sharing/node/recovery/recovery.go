// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package recovery knows how much an agent has found of the grants that were made before it started.
package recovery

import (
	"sync"

	"github.com/kerf-gpu/kerf/internal/cgroup"
)

// Facts are what was found.
type Facts struct {
	// Restored is set once the checkpoint was read.
	Restored bool
	// Unrecorded is set if the newest checkpoint is missing or damaged. Damaged is set if any checkpoint is damaged.
	Unrecorded, Damaged bool
	// Expected is set if a container runtime will list its containers, and Listed once it has.
	Expected, Listed bool
	// Orphans are the cgroups of grants that have processes and are not in the checkpoint. Their grants are rebuilt
	// once a driver answers.
	Orphans []cgroup.Group
	// Unaccounted counts the containers that run with a hook device and without a known grant.
	Unaccounted int
}

// State has the facts. It is safe for concurrent use; its lock is taken after all others.
type State struct {
	mu  sync.Mutex
	now Facts
}

// Get returns the facts of this moment.
func (s *State) Get() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Set changes the facts.
func (s *State) Set(change func(*Facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
}

// TakeOrphans returns the orphans, and keeps none.
func (s *State) TakeOrphans() (out []cgroup.Group) {
	s.Set(func(f *Facts) { out, f.Orphans = f.Orphans, nil })
	return out
}

// Missing says what must be known before anything is granted.
func (f Facts) Missing() (why []string) {
	if !f.Restored {
		why = append(why, "the record has not been read yet")
	}
	if f.Expected && f.Unrecorded && !f.Listed {
		why = append(why, "there is no checkpoint, and the container runtime has not reported its containers yet")
	}
	return why
}

// ContainersKnown reports whether all containers with a grant are known, as far as anything lists them.
func (f Facts) ContainersKnown() bool { return f.Restored && (!f.Expected || f.Listed) }

// Complete reports whether each process with a grant is known. Only then is a process without one unmanaged. Only the
// container runtime lists the containers of a damaged checkpoint.
func (f Facts) Complete() bool {
	listed := f.Listed || !f.Expected && !f.Damaged
	return listed && len(f.Missing()) == 0 && len(f.Orphans) == 0 && f.Unaccounted == 0
}
