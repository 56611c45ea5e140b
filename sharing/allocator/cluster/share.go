// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"math/bits"
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
	share := s.Share
	if s.GPUMemory > 0 {
		high, low := bits.Mul64(uint64(s.GPUMemory), uint64(WholeGPU))
		if n.GPUMemory == 0 || high >= uint64(n.GPUMemory) {
			return tooMuch
		}
		part, rest := bits.Div64(high, low, uint64(n.GPUMemory))
		if rest > 0 && part < math.MaxInt64 {
			part++
		}
		share = max(share, Milli(min(part, uint64(tooMuch))))
	}
	return share
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
	case s.GPUMemory > 0 || s.Profile != "":
		s.Share = n.share(s)
	}
	return s
}
