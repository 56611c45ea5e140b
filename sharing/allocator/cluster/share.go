// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math/bits"

	"github.com/kerf-gpu/kerf/sharing"
)

// tooMuch is a share that no GPU has.
const tooMuch = WholeGPU + 1

// share is what a request for the shape takes from each GPU on this node: its part of the GPU's memory if that is more,
// and a whole instance where the GPUs are in MIG mode.
func (n *Node) share(s Shape) Milli {
	switch {
	case n.Table != nil && s.GPUs > 0:
		if p, ok := n.instance(s); ok {
			return n.cuts().booked(p)
		}
		return tooMuch
	case s.Profile != "":
		return tooMuch
	}
	share := n.compute(s)
	if s.GPUMemory > 0 {
		if s.GPUMemory > n.GPUMemory {
			return tooMuch // no share is larger than the GPU, however often its memory is given
		}
		high, low := bits.Mul64(uint64(s.GPUMemory), uint64(WholeGPU))
		part, rest := bits.Div64(high, low, uint64(n.Overcommit.Memory.Of(n.GPUMemory))) // of at least as much
		if rest > 0 {
			part++
		}
		share = max(share, Milli(part)) //nolint:gosec // at most WholeGPU
	}
	return share
}

// compute is what the shape's percent takes of a GPU's compute; without an amount of memory it is of the memory as well.
func (n *Node) compute(s Shape) Milli {
	f := n.Overcommit.Compute
	if s.GPUMemory == 0 {
		f = min(f, n.Overcommit.Memory)
	}
	if !f.More() || s.GPUMemory == 0 && s.Share >= WholeGPU {
		return s.Share // a whole GPU is given once
	}
	return (s.Share*100 + Milli(f) - 1) / Milli(f)
}

// resolve is the shape as this node books it.
func (n *Node) resolve(s Shape) Shape {
	switch {
	case s.GPUs == 0:
	case n.Table != nil:
		booked := n.share(s)
		if p, ok := n.instance(s); ok {
			s.Profile, s.GPUMemory = p.Name, 0
		}
		s.Share = booked
	case s.GPUMemory > 0 || s.Profile != "" || n.Overcommit != sharing.Overcommit{}:
		s.Share = n.share(s)
	}
	return s
}
