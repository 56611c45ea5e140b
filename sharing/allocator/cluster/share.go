// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"math/bits"
)

// migSlices are what a GPU in MIG mode is cut into, in thousandths: seven instances of one slice, three of two, two of
// three, or one of all. Where instances of several sizes meet, the sums of these never promise more than fits.
func migSlices() [4]Milli { return [4]Milli{142, 333, 500, WholeGPU} }

// tooMuch is a share that no GPU has.
const tooMuch = WholeGPU + 1

// share is what a request for the shape takes from each GPU on this node: its part of the GPU's memory if that is more,
// and a whole instance where the GPUs are in MIG mode.
func (n *Node) share(s Shape) Milli {
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
	if n.MIG {
		for _, size := range migSlices() {
			if share <= size {
				return size
			}
		}
	}
	return share
}

// resolve is the shape as this node books it.
func (n *Node) resolve(s Shape) Shape {
	if s.GPUs > 0 && (s.GPUMemory > 0 || n.MIG) {
		s.Share = n.share(s)
	}
	return s
}
