// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// The largest machine that BestFit and DotProd measure by: 128 cores and 8 GPUs.
const (
	largestCPU = 128000
	largestGPU = 8000
)

// BestFit takes the node that has least left afterwards, CPU and GPU counted alike.
type BestFit struct{}

// Score implements Policy.
func (BestFit) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	rest := int64(n.CPU-s.CPU)*largestGPU + int64(n.Free()-s.Demand())*largestCPU
	return 100 - (50*rest+largestCPU*largestGPU-1)/(largestCPU*largestGPU), cluster.Tightest(n, s)
}

// DotProd takes the node whose free CPU and GPU lie least along the request.
type DotProd struct{}

// Score implements Policy.
func (DotProd) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	cpu := int64(n.CPU) * int64(s.CPU) * 1_000_000 / (largestCPU * largestCPU)
	gpu := int64(n.Free()) * int64(s.Demand()) * 1_000_000 / (largestGPU * largestGPU)
	return (2_000_000 - cpu - gpu) / 20_000, cluster.Tightest(n, s)
}
