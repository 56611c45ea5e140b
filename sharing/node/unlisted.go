// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// UnlistedReason of the node: a GPU has unattributed memory, which is in use and belongs to no process that the driver lists.
const UnlistedReason = "GPUMemoryUnlisted"

// unlistedIn is what a GPU has in use beyond what belongs to processes that are known, and beyond the managed memory that
// libkerf has charged; false where the driver does not know what each process has. Programs cause it by managed memory, by
// memory that they exported and released, which lives as long as a file or another process holds it, and by ending before
// they were seen while another process has their files open.
func unlistedIn(s Sample, look lists.Look, managed sharing.Bytes) (sharing.Bytes, bool) {
	sum := managed
	for _, use := range s.Processes {
		var err error
		if sum, err = sum.Add(use.Used); err != nil || !use.Known {
			return 0, false
		}
	}
	return s.Used.SubFloor(sum) + look.Nobody(), true // the second is a part of the sum
}

// setUnlisted looks at a picture, and the one before it: a GPU's use and that of its processes are not told at one moment, so the
// lesser of two is believed. managed is what libkerf has charged. Of a GPU in MIG mode nothing is said: its use is that of its
// instances.
func (p *picture) setUnlisted(before picture, gpus []sharing.GPU, managed map[sharing.GPUID]sharing.Bytes) {
	p.beyondList, p.unlisted = map[sharing.GPUID]sharing.Bytes{}, map[sharing.GPUID]sharing.Bytes{}
	for _, gpu := range gpus {
		s, told := p.gpus[gpu.UUID]
		if gpu.MIG || !told {
			continue
		}
		now, known := unlistedIn(s, p.looks[gpu.UUID], managed[gpu.UUID])
		if !known {
			continue
		}
		p.beyondList[gpu.UUID] = now
		if was, seen := before.beyondList[gpu.UUID]; seen && min(was, now) > p.slack(gpu.UUID) {
			p.unlisted[gpu.UUID] = min(was, now)
		}
	}
}

// slack is how much may belong to no process although nothing is wrong.
func (p *picture) slack(gpu sharing.GPUID) sharing.Bytes {
	return contextsize.Slack(len(p.gpus[gpu].Processes))
}

// unlistedOn reports a GPU's unattributed memory with its possible causes, and which grants are on the GPU; empty where there is
// none. It names no grant as the cause: the driver does not tell.
func unlistedOn(gpu sharing.GPU, p picture, grants []ledger.Grant) string {
	bytes, is := p.unlisted[gpu.UUID]
	if !is {
		return ""
	}
	var whose []string
	for _, g := range grants {
		if g.Lease != nil && touches(g.Claim.Placement, gpu.UUID) {
			whose = append(whose, string(g.Claim.ID))
		}
	}
	text := fmt.Sprintf("GPU %d has %s of unattributed memory, which belongs to no known process and no cap counts. "+
		"It is managed memory (cudaMallocManaged), memory that a program exported and released while a file or another process holds it, "+
		"or memory of an ended process whose files another process has open", gpu.Index, bytes)
	if len(whose) == 0 {
		return text + ". No grant is on the GPU"
	}
	return text + fmt.Sprintf(". Kerf cannot tell whose it is; on the GPU: %s", strings.Join(whose, ", "))
}

// unlisteds tells those who run the node of each GPU once, until it is otherwise. The meter's loop alone uses it.
type unlisteds struct {
	r    *Runtime
	said map[sharing.GPUID]bool
}

func (u *unlisteds) see(ctx context.Context, p picture, gpus map[sharing.GPUID]sharing.GPU, grants []ledger.Grant) {
	for _, gpu := range sortedGPUs(gpus) {
		text := unlistedOn(gpu, p, grants)
		if text != "" && !u.said[gpu.UUID] {
			u.r.log.Warn("memory of a gpu is in use that no process has", "gpu", string(gpu.UUID), "bytes", uint64(p.unlisted[gpu.UUID]))
			u.r.notify.Node(ctx, UnlistedReason, text)
		}
		if now, known := p.beyondList[gpu.UUID]; known {
			u.said[gpu.UUID] = now > p.slack(gpu.UUID) && (u.said[gpu.UUID] || text != "")
		}
	}
}
