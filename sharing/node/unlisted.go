// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// UnlistedReason of the node: memory of a GPU is in use that none of the processes that the driver lists has.
const UnlistedReason = "GPUMemoryUnlisted"

// unlistedSlack is what a driver may hold for itself beside what it tells of processes: some MiB, by what nvidia-smi shows.
const unlistedSlack = 32 * sharing.MiB

// unlistedIn is what a GPU has in use beyond what the driver tells of its processes; false where it does not tell that of each.
// A program can bring that about: memory that it exported, and released, lives as long as anybody holds the file that stands for
// it, or several others have imported it, and is then in nobody's use.
func unlistedIn(s Sample) (sharing.Bytes, bool) {
	var sum sharing.Bytes
	for _, use := range s.Processes {
		var err error
		if sum, err = sum.Add(use.Used); err != nil || !use.Known {
			return 0, false
		}
	}
	return s.Used.SubFloor(sum), true
}

// setUnlisted looks at a picture, and the one before it: a GPU's use and that of its processes are not told at one moment, so the
// lesser of two is believed. Of a GPU in MIG mode nothing is said: its use is that of its instances.
func (p *picture) setUnlisted(before picture, gpus []sharing.GPU) {
	p.beyondList, p.unlisted = map[sharing.GPUID]sharing.Bytes{}, map[sharing.GPUID]sharing.Bytes{}
	for _, gpu := range gpus {
		s, told := p.gpus[gpu.UUID]
		if gpu.MIG || !told {
			continue
		}
		now, known := unlistedIn(s)
		if !known {
			continue
		}
		p.beyondList[gpu.UUID] = now
		if was, seen := before.beyondList[gpu.UUID]; seen && min(was, now) > unlistedSlack {
			p.unlisted[gpu.UUID] = min(was, now)
		}
	}
}

// unlistedOn says that a GPU's memory is in nobody's use, and whose programs may have brought that about; empty where it is not so.
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
	text := fmt.Sprintf("GPU %d has %s in use that none of its processes has: memory that was exported and that its maker has let go lives while a file or several processes hold it, and no cap counts it", gpu.Index, bytes)
	if len(whose) == 0 {
		return text + "; no grant is on the GPU, so look for a process that holds such a file"
	}
	return text + fmt.Sprintf("; it may be held by programs of grant %s: it goes with the one that holds it", strings.Join(whose, ", "))
}

// unlisteds tells those who run the node of each GPU once, until it is otherwise. The meter's loop alone uses it.
type unlisteds struct {
	*Runtime
	said map[sharing.GPUID]bool
}

func (u *unlisteds) see(ctx context.Context, p picture, gpus map[sharing.GPUID]sharing.GPU, grants []ledger.Grant) {
	for _, gpu := range sortedGPUs(gpus) {
		text := unlistedOn(gpu, p, grants)
		if text != "" && !u.said[gpu.UUID] {
			u.log.Warn("memory of a gpu is in use that no process has", "gpu", string(gpu.UUID), "bytes", uint64(p.unlisted[gpu.UUID]))
			if u.tellNode != nil {
				u.tellNode(ctx, UnlistedReason, text)
			}
		}
		if now, known := p.beyondList[gpu.UUID]; known {
			u.said[gpu.UUID] = now > unlistedSlack && (u.said[gpu.UUID] || text != "")
		}
	}
}
