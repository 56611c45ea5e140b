// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// apart are the idle instances that have no unit in common with what is taken.
func (s *search) apart(taken mig.Occupancy) []int {
	var list []int
	for _, i := range s.idle {
		if s.units[i]&taken.Taken == 0 {
			list = append(list, i)
		}
	}
	return list
}

// stay are the idle instances beside what is taken that need not go. Mostly that is all of them; where they want
// engines or slices that are taken, as many steps as possible are saved.
func (s *search) stay(taken mig.Occupancy) []int {
	if s.Exact {
		return nil
	}
	list := s.apart(taken)
	all := taken
	for _, i := range list {
		var fits bool
		if all, fits = s.Table.Try(all, s.Have[i].Place); !fits {
			return s.most(taken, list)
		}
	}
	return list
}

// most are those of the list that can stay together and save the most steps.
func (s *search) most(taken mig.Occupancy, list []int) []int {
	var best []int
	saved := -1
	var try func(o mig.Occupancy, n int, kept []int, steps int)
	try = func(o mig.Occupancy, n int, kept []int, steps int) {
		if n == len(list) {
			if steps > saved {
				best, saved = slices.Clone(kept), steps
			}
			return
		}
		if next, fits := s.Table.Try(o, s.Have[list[n]].Place); fits {
			try(next, n+1, append(kept, list[n]), steps+s.destroying(list[n]))
		}
		try(o, n+1, kept, steps)
	}
	try(taken, 0, nil, 0)
	return best
}

// destroying is the number of steps that destroy an instance.
func (s *search) destroying(i int) int { return len(s.Have[i].CIs) + 1 }
