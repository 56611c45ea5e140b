// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package recovery knows how much an agent has found of the grants that were made before it started.
package recovery

import "github.com/kerf-gpu/kerf/internal/cgroup"

// State is what was found. It is not safe for concurrent use.
type State struct {
	// Restored is set once the checkpoint was read.
	Restored bool
	// Unrecorded is set if the newest checkpoint is missing or damaged. Damaged is set if any checkpoint is damaged.
	Unrecorded, Damaged bool
	// Expected is set if a container runtime will list its containers, and Listed once it has.
	Expected, Listed bool
	// Orphans are the cgroups of grants that have processes and are not in the checkpoint. Their grants are rebuilt once a
	// driver answers.
	Orphans []cgroup.Group
	// Unaccounted counts the containers that run with a hook device and without a known grant.
	Unaccounted int
}

// TakeOrphans returns the orphans, and keeps none.
func (s *State) TakeOrphans() []cgroup.Group {
	out := s.Orphans
	s.Orphans = nil
	return out
}

// Missing says what must be known before anything is granted.
func (s *State) Missing() (why []string) {
	if !s.Restored {
		why = append(why, "the record has not been read yet")
	}
	if s.Expected && s.Unrecorded && !s.Listed {
		why = append(why, "there is no record of what runs, and the container runtime has not told it yet")
	}
	return why
}

// ContainersKnown reports whether all containers with a grant are known, as far as anything lists them.
func (s *State) ContainersKnown() bool { return s.Restored && (!s.Expected || s.Listed) }

// Complete reports whether each process with a grant is known. Only then is a process without one unmanaged. Only the container
// runtime lists the containers of a damaged checkpoint.
func (s *State) Complete() bool {
	listed := s.Listed || !s.Expected && !s.Damaged
	return listed && len(s.Missing()) == 0 && len(s.Orphans) == 0 && s.Unaccounted == 0
}
