// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Policies are the names that NewPolicy knows.
func Policies() []string {
	return []string{
		"kerf", "fgd", "bestfit", "packing", "clustering", "dotprod", "random", "spread",
		"nvidia-whole", "nvidia-timeslice", "hami-binpack", "kai-gpupack",
	}
}

// NewPolicy is the policy of that name. Pods are the usual workload; where there are none, kerf learns it from what
// arrives, and fgd knows nothing. The seed is that of a policy that draws.
func NewPolicy(name string, nodes []cluster.Node, pods []Pod, seed int64) (cluster.Policy, error) {
	switch name {
	case "kerf":
		if len(pods) == 0 {
			return cluster.NewOnline(nodes), nil
		}
		return cluster.NewKerf(workload(pods), nodes), nil
	case "fgd":
		return cluster.NewFGD(workload(pods)), nil
	case "bestfit":
		return cluster.BestFit{}, nil
	case "dotprod":
		return cluster.DotProd{}, nil
	case "packing":
		return cluster.Packing{}, nil
	case "clustering":
		return cluster.Clustering{}, nil
	case "random":
		return cluster.NewRandom(seed), nil
	case "spread":
		return cluster.Spread{}, nil
	case "nvidia-whole":
		return cluster.WholeOnly{}, nil
	case "nvidia-timeslice":
		return cluster.TimeSlice{}, nil
	case "hami-binpack":
		return cluster.HAMiBinpack{}, nil
	case "kai-gpupack":
		return cluster.KAIGPUPack{}, nil
	}
	return nil, fmt.Errorf("policy %q: not one of %s", name, strings.Join(Policies(), ", "))
}

func workload(pods []Pod) cluster.Workload {
	requests := make([]cluster.Request, len(pods))
	for i := range pods {
		requests[i] = pods[i].Request
	}
	return cluster.NewWorkload(requests)
}
