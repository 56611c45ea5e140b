// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

const (
	// StrangerReason of the node: processes use a GPU without a grant for it.
	StrangerReason = "GPUStranger"
)

// DaemonsOf is the cgroup of the daemons that an agent runs for its grants, beside that of the grants, relative to the
// hierarchy's mount as parent is.
func DaemonsOf(parent string) string { return parent + ".mps" }

// mostStrangers is how many processes one sentence names.
const mostStrangers = 8

// intruder is a process without a grant on a GPU, for good.
type intruder struct {
	gpu   sharing.GPUID
	pid   int
	start uint64
}

// intruders tells of each once, those that are found together on a GPU in one sentence. The meter's loop alone uses it.
type intruders struct {
	r     *Runtime
	known map[intruder]bool
}

// see looks at a picture. While it is not sure who has a grant nobody is told of, and of a GPU that did not answer all is
// taken to be as it was.
func (s *intruders) see(ctx context.Context, p observe.Sample, gpus map[sharing.GPUID]sharing.GPU) {
	s.r.mu.Lock()
	sure := s.r.sure()
	s.r.mu.Unlock()
	if !sure {
		return
	}
	now := map[intruder]bool{}
	for who := range s.known {
		if _, answered := p.GPUs[who.gpu]; !answered {
			now[who] = true
		}
	}
	for _, gpu := range sortedGPUs(gpus) {
		var fresh []string
		for _, pid := range p.Unmanaged[gpu.UUID] {
			who, name, ok := s.identify(gpu.UUID, pid)
			if !ok || now[who] {
				continue
			}
			now[who] = true
			if !s.known[who] {
				fresh = append(fresh, fmt.Sprintf("%d (%s)", pid, name))
			}
		}
		s.tell(ctx, gpu, fresh)
	}
	s.known = now
}

// identify says who a process is; ok is false for one that has ended, and for one that may be there.
func (s *intruders) identify(gpu sharing.GPUID, pid int) (who intruder, name string, ok bool) {
	start, err := process.StartOf(pid)
	if err != nil {
		return intruder{}, "", false
	}
	dir, err := s.r.opt.Cgroups.OfProcess(pid)
	if err != nil || !s.r.mayEnd(pid, dir) {
		return intruder{}, "", false
	}
	program, err := process.Program(pid)
	return intruder{gpu, pid, start}, path.Base(program), err == nil
}

func (s *intruders) tell(ctx context.Context, gpu sharing.GPU, fresh []string) {
	if len(fresh) == 0 {
		return
	}
	names := strings.Join(fresh[:min(len(fresh), mostStrangers)], ", ")
	if more := len(fresh) - mostStrangers; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	s.r.log.Warn("processes on a gpu without a grant for it", "gpu", string(gpu.UUID), "processes", names)
	s.r.notify.Audit.Note(audit.Entry{What: audit.Violation, Fragments: []audit.Fragment{{GPU: string(gpu.UUID)}}, Why: "stranger: process " + names})
	s.r.notify.Node(ctx, StrangerReason, fmt.Sprintf("GPU %d (%s) is used by processes that have no grant for it: process %s", gpu.Index, gpu.UUID, names))
}

// sortedGPUs are the GPUs by their index.
func sortedGPUs(all map[sharing.GPUID]sharing.GPU) []sharing.GPU {
	out := make([]sharing.GPU, 0, len(all))
	for _, g := range all {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b sharing.GPU) int { return a.Index - b.Index })
	return out
}
