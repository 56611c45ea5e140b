// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy has the placement policies that Kerf's own is compared with. They score nodes alone, and promise no
// more than their sentences say.
package policy

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Policies are the names that New knows.
func Policies() []string {
	return []string{
		"kerf", "fgd", "bestfit", "packing", "clustering", "dotprod", "random", "spread",
		"nvidia-whole", "nvidia-timeslice", "hami-binpack", "kai-gpupack",
	}
}

// New is the policy of that name. Pods are the usual workload; where there are none, kerf learns it from what
// arrives, and fgd knows nothing. The seed is that of a policy that draws.
func New(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (cluster.Policy, error) {
	switch name {
	case "kerf":
		return simulate.NewKerf(nodes, pods), nil
	case "fgd":
		return NewFGD(simulate.WorkloadOf(pods)), nil
	case "bestfit":
		return BestFit{}, nil
	case "dotprod":
		return DotProd{}, nil
	case "packing":
		return Packing{}, nil
	case "clustering":
		return Clustering{}, nil
	case "random":
		return NewRandom(seed), nil
	case "spread":
		return cluster.Spread{}, nil
	case "nvidia-whole":
		return WholeOnly{}, nil
	case "nvidia-timeslice":
		return TimeSlice{}, nil
	case "hami-binpack":
		return HAMiBinpack{}, nil
	case "kai-gpupack":
		return KAIGPUPack{}, nil
	}
	return nil, fmt.Errorf("policy %q: not one of %s", name, strings.Join(Policies(), ", "))
}
