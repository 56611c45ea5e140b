// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// UnmanagedReason of the node: unmanaged processes use a GPU.
const UnmanagedReason = "UnmanagedGPUProcess"

// mostNamed is how many processes one report names.
const mostNamed = 8

// user is a process on a GPU.
type user struct {
	gpu   sharing.GPURef
	pid   int
	start uint64
}

// Reporter reports each unmanaged process once for each GPU, until it is gone from there. It is not safe for concurrent
// use.
type Reporter struct {
	Options

	known map[user]bool
}

// See reports the unmanaged processes that are new in a sample. It reports none while it is not certain which processes
// have grants. Processes of a GPU that did not answer stay known.
func (r *Reporter) See(ctx context.Context, s observe.Sample) {
	v := r.View()
	if !v.Complete {
		return
	}
	now := map[user]bool{}
	for one := range r.known {
		if _, answered := s.GPUs[one.gpu]; !answered {
			now[one] = true
		}
	}
	for _, gpu := range v.GPUs {
		var fresh []string
		for _, pid := range s.Unmanaged[gpu.Ref()] {
			one, name, ok := r.identify(v, gpu.Ref(), pid)
			if !ok || now[one] {
				continue
			}
			now[one] = true
			if !r.known[one] {
				fresh = append(fresh, fmt.Sprintf("%d (%s)", pid, name))
			}
		}
		r.report(ctx, gpu, fresh)
	}
	r.known = now
}

// identify names a process, if it is unmanaged and not one that may be left alone.
func (r *Reporter) identify(v View, gpu sharing.GPURef, pid int) (one user, name string, ok bool) {
	start, err := process.StartOf(pid)
	if err != nil {
		return user{}, "", false
	}
	dir, err := r.Cgroups.OfProcess(pid)
	if err != nil || !r.mayEnd(v, pid, dir) {
		return user{}, "", false
	}
	program, err := process.Program(pid)
	return user{gpu, pid, start}, path.Base(program), err == nil
}

func (r *Reporter) report(ctx context.Context, gpu sharing.GPU, fresh []string) {
	if len(fresh) == 0 {
		return
	}
	names := strings.Join(fresh[:min(len(fresh), mostNamed)], ", ")
	if more := len(fresh) - mostNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	r.Log.Warn("found unmanaged processes on a GPU", "gpu", gpu.Ref().String(), "processes", names)
	r.Notify.Audit.Write(audit.Entry{Type: audit.Violation, Shares: []audit.Share{{GPU: gpu.Ref().String()}},
		Reason: "unmanaged: process " + names})
	what := "an unmanaged process"
	if n := len(fresh); n > 1 {
		what = fmt.Sprintf("%d unmanaged processes", n)
	}
	r.Notify.Node(ctx, UnmanagedReason,
		fmt.Sprintf("GPU %d (%s) has %s: PID %s.", gpu.Index, gpu.Ref(), what, names))
}
