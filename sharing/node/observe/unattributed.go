// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// unlistedIn is what a GPU has in use beyond the memory of known processes and the managed memory that libkerf has
// charged. It is false if the driver does not know what each process has. Programs cause it in these ways:
//   - They use managed memory.
//   - They export memory and release it. It lives as long as a file or another process holds it.
//   - They end before a sample has them, while another process has their files open.
func unlistedIn(r Reading, look lists.Observation, managed sharing.Bytes) (sharing.Bytes, bool) {
	sum := managed
	for _, use := range r.Processes {
		var err error
		if sum, err = sum.Add(use.Used); err != nil || !use.Known {
			return 0, false
		}
	}
	return r.Used.SubFloor(sum) + look.Unattributed(), true // the second is a part of the sum
}

// setUnattributed compares a sample with the one before it. The driver does not read the use of a GPU and of its
// processes at one moment, so the lesser of two samples is believed. It says nothing of a GPU in MIG mode: its use is
// that of its instances. Nor does it of a GPU with the system's memory: the driver does not report its use.
func (s *Sample) setUnattributed(before Sample, gpus []sharing.GPU, managed map[sharing.GPURef]sharing.Bytes) {
	s.unlisted, s.unattributed = map[sharing.GPURef]sharing.Bytes{}, map[sharing.GPURef]sharing.Bytes{}
	for _, gpu := range gpus {
		r, answered := s.GPUs[gpu.Ref()]
		if gpu.MIG || gpu.SystemMemory || !answered {
			continue
		}
		now, known := unlistedIn(r, s.looks[gpu.Ref()], managed[gpu.Ref()])
		if !known {
			continue
		}
		s.unlisted[gpu.Ref()] = now
		if was, seen := before.unlisted[gpu.Ref()]; seen && min(was, now) > s.slack(gpu.Ref()) {
			s.unattributed[gpu.Ref()] = min(was, now)
		}
	}
}

// slack is how much memory may belong to no process although nothing is wrong.
func (s *Sample) slack(gpu sharing.GPURef) sharing.Bytes {
	return contextsize.Slack(len(s.GPUs[gpu].Processes))
}

// Unattributed reports a GPU's unattributed memory with its possible causes, and which grants are on the GPU; empty
// where there is none. It names no grant as the cause: the driver does not tell.
func (s Sample) Unattributed(gpu sharing.GPU, grants []ledger.Grant) string {
	bytes, is := s.unattributed[gpu.Ref()]
	if !is {
		return ""
	}
	var on []string
	for _, g := range grants {
		if g.Active != nil && Touches(g.Placement, gpu.Ref()) {
			on = append(on, string(g.ID))
		}
	}
	text := fmt.Sprintf("GPU %d has %s of unattributed memory, which belongs to no known process and no cap counts. "+
		"It is managed memory (cudaMallocManaged), memory that a program exported and released while a file or "+
		"another process holds it, "+
		"or memory of an ended process whose files another process has open", gpu.Index, bytes)
	if len(on) == 0 {
		return text + ". No grant is on the GPU"
	}
	return text + fmt.Sprintf(". Kerf does not know its owner. Grants on the GPU: %s", strings.Join(on, ", "))
}

// Touches reports whether a placement has a share on the GPU. A share on a MIG instance counts for the whole GPU. The
// GPU's list has its processes, too, and a driver may not report the instance of a process.
func Touches(p sharing.Placement, gpu sharing.GPURef) bool {
	return slices.ContainsFunc(p, func(f sharing.Share) bool { return f.GPU.UUID == gpu.UUID })
}

// Unattributed says of which GPUs a new time with unattributed memory has begun. The zero value is ready for use.
type Unattributed struct {
	known map[sharing.GPURef]bool
}

// News are the GPUs with unattributed memory of which that was not said before, and how much it is. It ends once the
// GPU has less than what is usual.
func (u *Unattributed) News(s Sample) map[sharing.GPURef]sharing.Bytes {
	out := map[sharing.GPURef]sharing.Bytes{}
	if u.known == nil {
		u.known = map[sharing.GPURef]bool{}
	}
	for gpu, now := range s.unlisted {
		bytes, is := s.unattributed[gpu]
		if is && !u.known[gpu] {
			out[gpu] = bytes
		}
		u.known[gpu] = now > s.slack(gpu) && (u.known[gpu] || is)
	}
	return out
}
