// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

// The largest machine that BestFit and DotProd measure by: 128 cores and 8 GPUs.
const (
	largestCPU = 128000
	largestGPU = 8000
)

// BestFit takes the node that has least left afterwards, CPU and GPU counted alike.
type BestFit struct{}

// Score implements Policy.
func (BestFit) Score(n *Node, s Shape) (int64, int) {
	rest := int64(n.CPU-s.CPU)*largestGPU + int64(n.Free()-s.Demand())*largestCPU
	return 100 - (50*rest+largestCPU*largestGPU-1)/(largestCPU*largestGPU), tightestOne(n, s)
}

// DotProd takes the node whose free CPU and GPU lie least along the request.
type DotProd struct{}

// Score implements Policy.
func (DotProd) Score(n *Node, s Shape) (int64, int) {
	cpu := int64(n.CPU) * int64(s.CPU) * 1_000_000 / (largestCPU * largestCPU)
	gpu := int64(n.Free()) * int64(s.Demand()) * 1_000_000 / (largestGPU * largestGPU)
	return (2_000_000 - cpu - gpu) / 20_000, tightestOne(n, s)
}

// Spread takes the node with the most GPU left, and on it the emptiest GPU.
type Spread struct{}

// Score implements Policy.
func (Spread) Score(n *Node, s Shape) (int64, int) {
	return int64(n.Free() - s.Demand()), emptiest(n, s)
}

func tightestOne(n *Node, s Shape) int {
	if s.GPUs != 1 {
		return 0
	}
	at := -1
	for g, left := range n.GPUs {
		if n.room(g, left, s) && (at < 0 || left < n.GPUs[at]) {
			at = g
		}
	}
	return at
}
