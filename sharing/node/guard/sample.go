// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// deadline bounds one reading of the process list of a GPU.
const deadline = 500 * time.Millisecond

// sample reads process lists, and finds to which grants their entries belong. unclear says why the usage of grants
// cannot be read.
func (g *Guard) sample(ctx context.Context, v View) (s reactive.Sample, unclear map[reactive.GrantID]string) {
	s.EndUnmanaged = v.kills()
	for _, gr := range v.Grants {
		s.Caps = append(s.Caps, v.caps(gr)...)
	}
	if v.Driver == nil || len(s.Caps) == 0 && !s.EndUnmanaged {
		return reactive.Sample{}, nil // without a driver every grant has level unknown already
	}
	var ask []sharing.GPURef
	for _, gpu := range v.GPUs {
		watched := s.EndUnmanaged && !gpu.MIG ||
			slices.ContainsFunc(s.Caps, func(c reactive.Cap) bool { return c.GPU == gpu.Ref() })
		if watched && gpu.Health != sharing.HealthLost && gpu.Health != sharing.HealthSuspect {
			ask = append(ask, gpu.Ref())
		}
	}
	unclear = map[reactive.GrantID]string{}
	for _, look := range g.opt.Lists.Attribute(g.opt.Lists.QueryAll(ctx, v.Driver, ask, deadline), v.Owners) {
		if look.Err == nil {
			s.GPUs = append(s.GPUs, g.sort(look, v, s, unclear))
		}
	}
	for _, c := range s.Caps {
		if !slices.ContainsFunc(s.GPUs, func(one reactive.GPU) bool { return one.ID == c.GPU }) {
			s.GPUs = append(s.GPUs, reactive.GPU{ID: c.GPU})
		}
	}
	return s, unclear
}

// sort divides the entries of a GPU's list among grants and unmanaged processes. Nothing is done about unattributed
// entries.
func (g *Guard) sort(look lists.Observation, v View, s reactive.Sample,
	unclear map[reactive.GrantID]string) reactive.GPU {
	out := reactive.GPU{ID: look.GPU, Answered: true}
	for _, line := range look.Lines {
		switch {
		case line.Owner != "":
			of, _ := v.grant(ledger.GrantID(line.Owner))
			out.Uses = append(out.Uses, reactive.Use{
				Process: reactive.Process{PID: line.PID, Start: line.Process.Start},
				Grant:   v.speaker(ledger.GrantID(line.Owner)), Bytes: line.Bytes, Known: line.Known,
				Escaped: line.Kind == listing.Running && !line.MPS && of.served(), Ended: line.Kind == listing.Ended,
				Inferred: line.Inferred,
			})
		case line.Kind == listing.Running && s.EndUnmanaged && line.Cgroup != "" &&
			g.opt.mayEnd(v, line.PID, line.Cgroup):
			out.Unmanaged = append(out.Unmanaged, reactive.Process(line.Process))
		}
	}
	for _, o := range v.Owners {
		if why := unclearWhy(look, v.index(look.GPU), o.Owner); why != "" && o.On(look.GPU) {
			id := v.speaker(ledger.GrantID(o.Owner))
			out.Unclear = append(out.Unclear, id)
			unclear[id] = why
		}
	}
	out.Retainers = g.retainers(look, v, out.Uses, s.Caps)
	return out
}

// retainers returns the processes that keep the memory of ended processes, for grants that are over their cap. It reads
// the open files of no other processes. A grant whose processes cannot be read has none.
func (g *Guard) retainers(look lists.Observation, v View, uses []reactive.Use,
	caps []reactive.Cap) (out []reactive.Retainer) {
	for _, c := range caps {
		var held, ended sharing.Bytes
		for _, u := range uses {
			if u.Grant != c.Grant {
				continue
			}
			if held += u.Bytes; u.Ended { // of one GPU, so that the sum does not wrap
				ended += u.Bytes
			}
		}
		if c.GPU != look.GPU || held <= c.Memory || ended == 0 {
			continue
		}
		for _, o := range v.Owners {
			if v.speaker(ledger.GrantID(o.Owner)) != c.Grant {
				continue
			}
			all, _ := g.opt.Lists.Retainers(look, o) // status says why they cannot be read
			for _, p := range all {
				out = append(out, reactive.Retainer{Process: reactive.Process(p), Grant: c.Grant})
			}
		}
	}
	return out
}

// unclearWhy says why the usage of a grant on a GPU is unknown. It is empty if the usage is known, or if the driver
// does not answer.
func unclearWhy(look lists.Observation, gpu int, grants ...listing.Owner) string {
	for _, line := range look.Lines {
		if line.Kind != listing.Unclear || !line.May(grants...) {
			continue
		}
		if look.ReadErr != nil {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read: %v", line.PID, gpu, look.ReadErr)
		}
		if len(line.Suspects) == 0 {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read", line.PID, gpu)
		}
		return fmt.Sprintf("process %d, which is listed on GPU %d, has the number of one that has ended, and the "+
			"driver lists both as one", line.PID, gpu)
	}
	return ""
}

// mayEnd reports whether a process without a grant on a GPU may be killed. This agent may not, nor a process of a grant
// that is about to become active, of another agent, or of the driver.
func (o Options) mayEnd(v View, pid int, dir string) bool {
	if pid == os.Getpid() || o.ofAnotherAgent(dir) || v.activating(dir) {
		return false
	}
	program, err := process.Program(pid)
	return err == nil && !slices.Contains(driverPrograms(), path.Base(program))
}

// ofAnotherAgent reports whether a cgroup is among the grants of another agent of this machine.
func (o Options) ofAnotherAgent(dir string) bool {
	return o.Agents != "" && cgroup.Beneath(dir, o.Agents) && !cgroup.Beneath(dir, o.Own)
}

// driverPrograms are programs of the driver that a GPU's lists may show. A program of a tenant with such a name is
// reported as unmanaged, and not killed.
func driverPrograms() []string {
	return []string{
		"nvidia-persistenced", "nvidia-powerd", "nvidia-imex", "nvidia-smi", "nvidia-modprobe", "nv-fabricmanager",
		"nv-hostengine",
		"nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
	}
}
